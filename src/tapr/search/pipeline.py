"""The pipeline: reference and edit -> spec -> compiled query -> scores -> ranking. Read it top to bottom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.factorize.base import Factorizer
from tapr.gallery import Gallery
from tapr.query.crop import cropped
from tapr.query.factorization import Factorization
from tapr.query.open_reference import ReferenceLike, open_reference
from tapr.query.reference import Reference
from tapr.query.scoring import ReferenceFeatures, Rule, Scoring
from tapr.query.single_modality import picture_alone, words_alone
from tapr.query.spec import EditSpec, Weights, edit_and_spec
from tapr.result import Hit, Ranking
from tapr.score.compile import TAU
from tapr.search.kernels.base import Kernel
from tapr.search.kernels.choose import choose_kernel
from tapr.search.prefilter.stage import Budget, checked_budget
from tapr.search.rank import Matcher, rank
from tapr.search.topk import top_k
from tapr.utils.arguments import count, number_above_zero, text_or_none
from tapr.utils.clock import Clock

__all__ = ["Hit", "Ranking", "make_spec", "search"]

MAX_EDIT_CHARACTERS = 1000


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
    reference_weight: float | None = None,
    reference_features: ReferenceFeatures | None = None,
    where: str | None = None,
    exclude_reference: bool = True,
    crop: Sequence[float] | None = None,
    more_references: Sequence[ReferenceLike] = (),
    near_duplicates: float | None = None,
    kernel: Kernel | None = None,
    method: str = "tapr",
    first_stage: Budget | None = None,
) -> Ranking:
    """Rank the gallery for "like this picture, but ...". Give an edit, which is factorized, or a spec, which is not.
    Or search by words alone, with `text` (or a spec and no reference), or by a picture alone, with `like`.

    The gallery may be named by its folder; for many searches open it once. The reference is a path, a gallery id,
    bytes, a file opened with 'rb', a PIL image or an opened Reference. It is left out of the answer unless
    `exclude_reference` is off; `where` narrows the gallery by metadata. `reference_weight` says how much of the reference stays,
    from 0 (the words decide) to 1 (the picture decides); `score` names the rule that decides it otherwise, or `paper`.
    `crop` (left, top, right, bottom, each from 0 to 1) says which part of the reference counts. `more_references` holds up to two
    further references; to crop one of them, open it and use tapr.query.crop.cropped. `near_duplicates` marks hits that are
    alike to a better one: see search/near_duplicates.py.
    `method` names a compared system of tapr.methods that needs no records of its own; an option that it does not read
    is refused. `first_stage` is for very large galleries (docs/scaling.md): how many pictures to read exactly at most,
    or 'exact' for as many as it takes; `ranking.proof` says whether these are the best of all.
    """
    edit, spec = edit_and_spec(edit, spec)
    k = count(k, "k")
    weights = None if weights is None else Weights.parse(weights)
    where = text_or_none(where, "where", "price < 40")
    if not isinstance(method, str):
        raise BadInput("method must be the name of a method, such as 'tapr'")
    if not isinstance(gallery, Gallery):
        gallery = Gallery.open(gallery)
    clock = Clock()
    factorization: Factorization | None = None
    if text is not None or like is not None:
        beside = {
            "reference": reference, "edit": edit, "spec": spec, "text": text, "like": like, "factorizer": factorizer,
            "weights": weights, "score": score, "reference_weight": reference_weight, "reference_features": reference_features,
            "crop": crop, "more_references": more_references or None,
            "method": None if method == "tapr" else method,
        }  # fmt: skip
        factorization = words_alone(text, beside) if text is not None else picture_alone(beside)
        reference = like
    budget = None if first_stage is None else checked_budget(first_stage)
    if budget is not None and method != "tapr":
        raise BadInput(f"a first stage knows the score of tapr only: leave it out, or the method {method}")
    if method != "tapr":
        from tapr.methods.single_search import choose_method, rank_with_method

        options = {"factorizer": factorizer, "weights": weights, "tau": tau, "kernel": kernel}
        options |= {"score": score, "reference_weight": reference_weight, "reference_features": reference_features}
        other = choose_method(method, {name: value for name, value in options.items() if value is not None})
        factorizer = factorizer if "factorizer" in other.options else "target-only"  # what nobody reads is not made
    tau = None if tau is None else number_above_zero(tau, "tau")  # after the method had its say whether it reads one
    opened = None if reference is None else open_reference(reference, gallery.encoder, gallery)
    if opened is None and (method != "tapr" or (score, reference_weight, reference_features) != (None, None, None)):
        raise BadInput(
            "method, score, reference_weight and reference_features go with a reference picture: name one, or leave them out"
        )
    references = [] if opened is None else [cropped(opened, crop)]
    references += [open_reference(one, gallery.encoder, gallery) for one in more_references]
    if (crop is not None or more_references) and opened is None:
        raise BadInput("crop and more_references go with a reference picture: name one, or leave them out")
    if (crop is not None or more_references or near_duplicates is not None) and method != "tapr":
        raise BadInput(
            "crop, more_references and near_duplicates go with the method tapr: leave them out, or choose it"
        )
    clock.lap("reference")
    factorization = factorization or make_spec(
        references[0] if references else None, edit, spec, factorizer, gallery.encoder, references[1:]
    )
    clock.lap("factorize")
    searched = gallery.select(where) if where else gallery
    if method != "tapr":
        assert opened is not None
        return rank_with_method(
            other, searched, opened, factorization, k, edit=edit, exclude_reference=exclude_reference
        )
    chosen = kernel or choose_kernel()
    if isinstance(chosen, (str, type)):
        raise BadInput("kernel must be what search.kernels.choose.choose_kernel gives: choose_kernel('numpy'), for one")
    matcher: Matcher = lambda query, bank, count: top_k(query, bank, count, chosen)  # noqa: E731
    if budget is not None:
        from tapr.search.prefilter.store import open_prefilter

        stage = open_prefilter(gallery)
        matcher = lambda query, bank, count: stage.top_k(query, bank, count, chosen, budget)  # noqa: E731
    ranking = rank(
        searched,
        references,
        factorization,
        k,
        weights=weights,
        tau=TAU if tau is None else tau,
        scoring=Scoring.of(score, reference_weight, reference_features),
        exclude_reference=exclude_reference,
        near_duplicates=near_duplicates,
        matcher=matcher,
    )
    return replace(ranking, seconds={**clock.laps, **ranking.seconds})


def make_spec(
    reference: Reference | None,
    edit: str | None,
    spec: EditSpec | None,
    factorizer: str | Factorizer | None,
    encoder: Encoder,
    more_references: Sequence[Reference] = (),
) -> Factorization:
    """An edit, which is factorized, or a spec, which is taken as it is. Only `grounded` reads further references."""
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
    from tapr.factorize.grounded import GroundedFactorizer

    if more_references and isinstance(factorizer, GroundedFactorizer):
        return factorizer.factorize(reference, edit, more=more_references)
    return factorizer.factorize(reference, edit)
