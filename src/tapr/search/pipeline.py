"""The pipeline: reference and edit -> spec -> compiled query -> scores -> ranking. Read it top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.factorize.base import Factorizer
from tapr.gallery import Gallery
from tapr.options import MAX_EDIT_CHARACTERS, TAPR, Budget, SearchOptions
from tapr.query.crop import cropped
from tapr.query.factorization import Factorization
from tapr.query.open_reference import ReferenceLike, open_reference
from tapr.query.reference import Reference
from tapr.query.scoring import ReferenceFeatures, Rule
from tapr.query.single_modality import picture_alone, words_alone
from tapr.query.spec import EditSpec, Weights
from tapr.result import Hit, Ranking
from tapr.search.feedback import feedback_of
from tapr.search.kernels.base import Kernel
from tapr.search.kernels.choose import choose_kernel
from tapr.search.match import match
from tapr.search.rank import Matcher, rank
from tapr.utils.clock import Clock

__all__ = ["Hit", "Ranking", "answer", "factorize", "search"]

Factorize = Callable[[Sequence[Reference], str], Factorization]


def search(
    gallery: Gallery | str | Path,
    reference: ReferenceLike | None = None,
    edit: str | EditSpec | Mapping[str, Any] | None = None,
    spec: EditSpec | Mapping[str, Any] | None = None,
    k: int = 10,
    *,
    text: str | None = None,
    like: ReferenceLike | None = None,
    crop: Sequence[float] | str | None = None,
    more_references: Sequence[ReferenceLike] = (),
    more_like: Sequence[ReferenceLike] = (),
    not_like: Sequence[ReferenceLike] = (),
    factorizer: str | Factorizer | None = None,
    weights: Weights | Mapping[str, float] | str | None = None,
    tau: float | None = None,
    score: Rule | None = None,
    reference_weight: float | None = None,
    reference_features: ReferenceFeatures | None = None,
    where: str | None = None,
    exclude_reference: bool = True,
    offset: int = 0,
    threshold: float | None = None,
    explain: bool = True,
    near_duplicates: float | None = None,
    method: str = TAPR,
    prefilter: Budget | None = None,
    budget_ms: float | None = None,
    kernel: Kernel | None = None,
) -> Ranking:
    """Rank the gallery for "like this picture, but ...". Give an edit, which is factorized, or a spec, which is not.
    Or search by words alone, with `text` (or a spec and no reference), or by a picture alone, with `like`.

    tapr/options.py describes every option; None is its default. The gallery may be named by its folder; for many
    searches open it once. The reference is a path, a gallery id, bytes, a file opened with 'rb', a PIL image or an
    opened Reference. A further reference can be cropped too: open it, and use tapr.query.crop.cropped.
    An option that the `method` does not read is refused. Of a search by a first stage (docs/scaling.md),
    `ranking.prefilter` says whether these are the best of all.
    """
    given = {name: value for name, value in locals().items() if name not in ("gallery", "kernel")}
    if isinstance(edit, (EditSpec, Mapping)) and spec is None:  # a spec may stand in the edit's place
        given |= {"edit": None, "spec": edit}
    asked = SearchOptions.of(**given)
    if not isinstance(gallery, Gallery):
        gallery = Gallery.open(gallery)
    return answer(gallery, asked, kernel=kernel)


def answer(
    gallery: Gallery,
    asked: SearchOptions,
    *,
    kernel: Kernel | None = None,
    factorize_edit: Factorize | None = None,
    matcher: Matcher | None = None,
    select: Callable[[str], Gallery] | None = None,
    open_picture: Callable[[Any], Reference] | None = None,
) -> Ranking:
    """The whole search. A server brings its own factorizer, shared matching, views, and ways to name a picture."""
    clock = Clock()
    open_picture = open_picture or (lambda picture: open_reference(picture, gallery.encoder, gallery))
    encoder, factorizer, other = gallery.encoder, asked.factorizer, None
    if asked.method != TAPR:
        from tapr.methods.single_search import choose_method

        other = choose_method(asked.method, {**asked.given, **({} if kernel is None else {"kernel": kernel})})
        factorizer = factorizer if "factorizer" in other.options else "target-only"  # what nobody reads is not made
    first = asked.like if asked.like is not None else asked.reference
    references = [] if first is None else [cropped(open_picture(first), asked.crop)]
    references += [open_picture(one) for one in asked.more_references]
    marked = [open_picture(one) for one in asked.more_like], [open_picture(one) for one in asked.not_like]
    clock.lap("reference")
    if asked.text is not None:
        factorization = words_alone(asked.text)
    elif asked.like is not None:
        factorization = picture_alone()
    elif asked.spec is not None:
        factorization = Factorization(asked.spec, "given")
    else:
        assert asked.edit is not None
        make = factorize_edit or (lambda pictures, edit: factorize(pictures, edit, factorizer, encoder))
        factorization = make(references, asked.edit)
    clock.lap("factorize")
    searched = gallery if asked.filter is None else (select or gallery.select)(asked.filter)
    if other is not None:
        from tapr.methods.single_search import rank_with_method

        return rank_with_method(other, searched, references[0], factorization, asked)
    matcher = matcher or _matcher(asked, kernel)
    ranking = rank(searched, references, factorization, asked, matcher, feedback_of(*marked, gallery))
    return replace(ranking, seconds={**clock.laps, **ranking.seconds})


def _matcher(asked: SearchOptions, kernel: Kernel | None) -> Matcher:
    chosen = kernel or choose_kernel()
    if isinstance(chosen, (str, type)):
        raise BadInput("kernel must be what search.kernels.choose.choose_kernel gives: choose_kernel('numpy'), for one")
    return lambda query, bank, count: match([query], bank, count, chosen, asked.prefilter, asked.budget_ms)[0]


def factorize(
    references: Sequence[Reference], edit: str, factorizer: str | Factorizer | None, encoder: Encoder
) -> Factorization:
    """An edit -> a spec, by a factorizer or the one of this name (None: the default). Only `grounded` reads further
    references than the first."""
    if not edit.strip():
        raise BadInput(
            "say what should be different: give an edit such as 'at night', or a spec", code="missing_option"
        )
    if len(edit) > MAX_EDIT_CHARACTERS:
        what = f"the edit has {len(edit):,} characters, more than the {MAX_EDIT_CHARACTERS:,} allowed"
        raise BadInput(what, code="bad_option")
    if isinstance(factorizer, (str, type(None))):
        from tapr.factorize.registry import DEFAULT_FACTORIZER, load_factorizer

        factorizer = load_factorizer(factorizer or DEFAULT_FACTORIZER, encoder=encoder)
    if isinstance(factorizer, type) or not callable(getattr(factorizer, "factorize", None)):
        raise BadInput("factorizer must be a name such as 'grounded', or an object with the method factorize")
    from tapr.factorize.grounded import GroundedFactorizer

    if len(references) > 1 and isinstance(factorizer, GroundedFactorizer):
        return factorizer.factorize(references[0], edit, more=references[1:])
    return factorizer.factorize(references[0], edit)
