"""The pipeline: reference and edit -> spec -> compiled query -> scores -> ranking. Read it top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tapr.arguments import count, edit_and_spec, number_above_zero, text_or_none
from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.factorize.base import Factorization, Factorizer, Reference
from tapr.gallery import Gallery
from tapr.half import picture_alone, words_alone
from tapr.match import TopK, choose_kernel, top_k
from tapr.match.base import Kernel
from tapr.reference import ReferenceLike, open_reference
from tapr.score.compile import TAU, CompiledQuery, EncodedSpec, Looks
from tapr.score.definition import term_scores
from tapr.score.factors import Factor
from tapr.spec import EditSpec, Weights
from tapr.stay import DEFAULT_SCORING, Decision, Rule, Scoring

Matcher = Callable[[CompiledQuery, Gallery, int], TopK]  # query, bank, k
MAX_EDIT_CHARACTERS = 1000


@dataclass(frozen=True)
class Contribution:
    """What one term adds to a hit's score; negative for Remove."""

    factor: Factor
    text: str
    value: float


@dataclass(frozen=True)
class Hit:
    rank: int  # from 1
    id: str
    path: str
    score: float
    contributions: tuple[Contribution, ...]  # they sum to the score
    metadata: dict[str, Any] = field(default_factory=dict)
    caption: str | None = None  # what it shows, where the index described it and was sure

    @property
    def title(self) -> str:
        return title_of(self.id, self.metadata, self.caption)


@dataclass(frozen=True, eq=False)
class Ranking:
    """The answer, and everything that decided it."""

    hits: tuple[Hit, ...]
    spec: EditSpec
    factorizer: str
    encoder: str
    extractor: str
    kernel: str
    searched: int  # pictures that were scored
    notes: tuple[str, ...]
    seconds: dict[str, float]
    query: CompiledQuery
    reference: Reference | None  # None: a search by words alone
    gallery: Gallery  # the part that was searched
    method: str = "tapr"
    rescored: int | None = None  # pictures read exactly, where a cheaper reading ruled out the others
    scoring: Scoring = DEFAULT_SCORING
    stay: float | None = None  # how much of the reference stayed; None: as the paper weighs it
    stay_notes: tuple[str, ...] = ()  # those of the notes that say why so much

    @property
    def matched(self) -> str:
        """Which kernel ran, and how many pictures it read exactly."""
        read = "" if self.rescored is None else f", {self.rescored:,} of {len(self.gallery):,} pictures read exactly"
        return f"kernel {self.kernel}{read}"

    @property
    def scored(self) -> str:
        """By which score, and how much of the reference stayed; "" for other methods, and without a reference."""
        if self.method != "tapr" or self.reference is None:
            return ""
        stayed = "" if self.stay is None else f", stay {self.stay:.2f} (0: the words decide, 1: the picture)"
        return f", score {self.scoring.rule}{stayed}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "hits": [
                {
                    "rank": hit.rank,
                    "id": hit.id,
                    "path": hit.path,
                    "score": hit.score,
                    "contributions": [
                        {"factor": part.factor, "text": part.text, "value": part.value} for part in hit.contributions
                    ],
                    "metadata": hit.metadata,
                    "caption": hit.caption,
                }
                for hit in self.hits
            ],
            "method": self.method,
            "spec": self.spec.to_dict(),
            "factorizer": self.factorizer,
            "encoder": self.encoder,
            "extractor": self.extractor,
            "kernel": self.kernel,
            "rescored": self.rescored,
            "score": self.scoring.rule if self.method == "tapr" else None,
            "stay": self.stay,
            "tau": self.query.tau,
            "searched": self.searched,
            "notes": list(self.notes),
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
        }


def search(
    gallery: Gallery | str | Path,
    reference: ReferenceLike | None = None,
    edit: str | EditSpec | Mapping[str, Any] | None = None,
    spec: EditSpec | Mapping[str, Any] | None = None,
    k: int = 10,
    *,
    text: str | None = None,
    like: ReferenceLike | None = None,
    factorizer: str | Factorizer | None = None,
    weights: Weights | Mapping[str, float] | str | None = None,
    tau: float | None = None,
    score: Rule | None = None,
    stay: float | None = None,
    looks: Looks | None = None,
    where: str | None = None,
    exclude_reference: bool = True,
    kernel: Kernel | None = None,
    method: str = "tapr",
) -> Ranking:
    """Rank the gallery for "like this picture, but ...". Give an edit, which is factorized, or a spec, which is not.
    Or search by words alone, with `text` (or a spec and no reference), or by a picture alone, with `like`.

    The gallery may be named by its folder; for many searches open it once. The reference is a path, a gallery id,
    bytes, a file opened with 'rb', a PIL image or an opened Reference. It is left out of the answer unless
    `exclude_reference` is off; `where` narrows the gallery by metadata. `stay` says how much of the reference stays,
    from 0 (the words decide) to 1 (the picture decides); `score` names the rule that decides it otherwise, or `paper`.
    `method` names a compared system of tapr.methods that needs no records of its own; an option that it does not read
    is refused.
    """
    edit, spec = edit_and_spec(edit, spec)
    k = count(k, "k")
    weights = None if weights is None else Weights.parse(weights)
    where = text_or_none(where, "where", "price < 40")
    if not isinstance(method, str):
        raise BadInput("method must be the name of a method, such as 'tapr'")
    if not isinstance(gallery, Gallery):
        gallery = Gallery.open(gallery)
    clock = _Clock()
    factorization: Factorization | None = None
    if text is not None or like is not None:
        beside = {
            "reference": reference, "edit": edit, "spec": spec, "text": text, "like": like, "factorizer": factorizer,
            "weights": weights, "score": score, "stay": stay, "looks": looks,
            "method": None if method == "tapr" else method,
        }  # fmt: skip
        factorization = words_alone(text, beside) if text is not None else picture_alone(beside)
        reference = like
    if method != "tapr":
        from tapr.methods.single import choose, rank_by

        options = {"factorizer": factorizer, "weights": weights, "tau": tau, "kernel": kernel}
        options |= {"score": score, "stay": stay, "looks": looks}
        other = choose(method, {name: value for name, value in options.items() if value is not None})
        factorizer = factorizer if "factorizer" in other.options else "target-only"  # what nobody reads is not made
    tau = None if tau is None else number_above_zero(tau, "tau")  # after the method had its say whether it reads one
    opened = None if reference is None else open_reference(reference, gallery.encoder, gallery)
    if opened is None and (method != "tapr" or (score, stay, looks) != (None, None, None)):
        raise BadInput("method, score, stay and looks go with a reference picture: name one, or leave them out")
    clock.lap("reference")
    factorization = factorization or make_spec(opened, edit, spec, factorizer, gallery.encoder)
    clock.lap("factorize")
    searched = gallery.select(where) if where else gallery
    if method != "tapr":
        assert opened is not None
        return rank_by(other, searched, opened, factorization, k, edit=edit, exclude_reference=exclude_reference)
    chosen = kernel or choose_kernel()
    if isinstance(chosen, (str, type)):
        raise BadInput("kernel must be what tapr.match.choose_kernel gives: choose_kernel('numpy'), for one")
    ranking = rank(
        searched,
        opened,
        factorization,
        k,
        weights=weights,
        tau=TAU if tau is None else tau,
        scoring=Scoring.of(score, stay, looks),
        exclude_reference=exclude_reference,
        matcher=lambda query, bank, count: top_k(query, bank, count, chosen),
    )
    return replace(ranking, seconds={**clock.laps, **ranking.seconds})


def rank(
    gallery: Gallery,
    reference: Reference | None,
    factorization: Factorization,
    k: int,
    *,
    weights: Weights | None = None,
    tau: float = TAU,
    scoring: Scoring = DEFAULT_SCORING,
    exclude_reference: bool = True,
    matcher: Matcher = top_k,
) -> Ranking:
    """The second half of a search, from the spec on: what is repeated when a person changes a factor.

    Without a reference the words decide alone, and nothing has to be decided about what stays.
    """
    k = count(k, "k")
    clock = _Clock()
    encoder, spec = gallery.encoder, factorization.spec
    encoded = EncodedSpec.of(spec, reference.evidence if reference else None, encoder)
    (decided,) = scoring.decide([spec], encoded.target[None], gallery) if reference else (Decision(None),)
    query = encoded.compile(weights, tau, decided.continuity)
    clock.lap("compile")

    excluded = set(gallery.positions_of(reference.sha256).tolist()) if reference and exclude_reference else set()
    wanted = min(k + len(excluded), len(gallery))
    best = matcher(query, gallery, wanted) if wanted else None
    positions = [int(position) for position in best.positions if position not in excluded][:k] if best else []
    clock.lap("match")

    hits = explain_hits(query, gallery, positions)
    empty = (why_nothing(gallery, len(excluded)),) if len(gallery) == len(excluded) else ()
    clock.lap("explain")
    return Ranking(
        hits=hits,
        spec=spec,
        factorizer=factorization.factorizer,
        encoder=gallery.card.name,
        extractor=gallery.card.extractor,
        kernel=best.kernel if best else "none: there was nothing to match",
        searched=len(gallery) - len(excluded),
        notes=(*empty, *factorization.notes, *decided.notes, *(best.notes if best else ()), *_unread(spec, encoder)),
        seconds=clock.laps,
        query=query,
        reference=reference,
        gallery=gallery,
        rescored=best.rescored if best else None,
        scoring=scoring,
        stay=None if decided.continuity is None else decided.continuity.stay,
        stay_notes=decided.notes,
    )


def why_nothing(gallery: Gallery, excluded: int) -> str:
    """An empty answer says why it is empty."""
    if excluded:
        return "nothing was found: the reference is the only picture searched, and it is left out of the answer"
    if gallery.condition:
        return f"nothing was found: no picture of the gallery meets the filter {gallery.condition[:200]!r}"
    return "nothing was found: the gallery has no pictures"


def explain_hits(query: CompiledQuery, gallery: Gallery, positions: list[int]) -> tuple[Hit, ...]:
    """Scores by the definition, in float64, split into terms; the kernel's order stands but for its rounding."""
    if not positions:
        return ()
    block = gallery.gather(gallery.rows[np.array(positions, np.int64)])
    parts = term_scores(query, block.global_vectors, block.decoded())  # (k, terms)
    order = sorted(range(len(positions)), key=lambda i: (-parts[i].sum(), positions[i]))
    entries = gallery.entries(positions)
    hits = []
    for rank, i in enumerate(order, 1):
        contributions = tuple(
            Contribution(term.factor, term.text, float(value))
            for term, value in zip(query.terms, parts[i], strict=True)
        )
        entry = entries[i]
        score = sum(part.value for part in contributions)
        hits.append(Hit(rank, entry.id, entry.path, score, contributions, entry.metadata, entry.caption or None))
    return tuple(hits)


def make_spec(
    reference: Reference | None,
    edit: str | None,
    spec: EditSpec | None,
    factorizer: str | Factorizer | None,
    encoder: Encoder,
) -> Factorization:
    """An edit, which is factorized, or a spec, which is taken as it is."""
    if spec is not None:
        if edit is not None:
            raise BadInput("give an edit or a spec, not both")
        return Factorization(spec, "given")
    if reference is None:
        raise BadInput("name a reference picture for the edit; to search by words alone, give them as text")
    if edit is None or not edit.strip():
        raise BadInput("say what should be different: give an edit such as 'at night', or a spec")
    if len(edit) > MAX_EDIT_CHARACTERS:
        raise BadInput(f"the edit has {len(edit)} characters, more than the {MAX_EDIT_CHARACTERS} allowed")
    if isinstance(factorizer, (str, type(None))):
        from tapr.factorize.registry import DEFAULT_FACTORIZER, load_factorizer

        factorizer = load_factorizer(factorizer or DEFAULT_FACTORIZER, encoder=encoder)
    if isinstance(factorizer, type) or not callable(getattr(factorizer, "factorize", None)):
        raise BadInput("factorizer must be a name such as 'grounded', or an object with the method factorize")
    return factorizer.factorize(reference, edit)


def title_of(id_: str, metadata: Mapping[str, Any], caption: str | None) -> str:
    """What a person would call a picture: its name in the metadata, else its caption, else its id."""
    return str(metadata.get("name") or caption or id_)


def _unread(spec: EditSpec, encoder: Encoder) -> list[str]:
    notes = []
    for text in (spec.target, *spec.add, *spec.preserve, *spec.remove):
        unread = encoder.unread(text)
        if unread:
            notes.append(f"{encoder.card.name} reads only the beginning of {text[:40]!r}...; not read: {unread[:80]!r}")
    return notes


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now
