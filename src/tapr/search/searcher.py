"""The searcher: a question goes in, a ranking comes out. Read `Searcher.search`, and downward its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from tapr.encoders.base import Encoder
from tapr.encoders.registry import refuse_other
from tapr.errors import BadInput
from tapr.factorize.base import Factorizer, factorize
from tapr.gallery import Gallery
from tapr.options import TAPR, Budget, RankOptions, SearchOptions
from tapr.query.crop import cropped, kept_evidence
from tapr.query.factorization import Factorization
from tapr.query.open_reference import ReferenceLike, open_reference
from tapr.query.reference import Reference
from tapr.query.scoring import ReferenceFeatures, Rule
from tapr.query.single_modality import picture_alone, words_alone
from tapr.query.spec import EditSpec, Weights
from tapr.result import Ranking
from tapr.score.compile import EncodedSpec
from tapr.search.answer import Question, answer
from tapr.search.batching import KernelMatcher, Matcher
from tapr.search.feedback import Marked, feedback_of
from tapr.search.kernels.base import Kernel
from tapr.search.kernels.choose import choose_kernel
from tapr.search.reference_weight import Decision, decide
from tapr.search.topk import TopK
from tapr.utils.clock import Clock
from tapr.utils.lru import LRU

_VIEWS = 32  # filtered galleries that are kept


class PictureOpener(Protocol):
    """Opens whatever names a picture in a question."""

    def open(self, picture: Any) -> Reference: ...


@dataclass(frozen=True, eq=False)
class GalleryPictures:
    """Opens paths, gallery ids, bytes, files and PIL images."""

    gallery: Gallery
    encoder: Encoder

    def open(self, picture: Any) -> Reference:
        return open_reference(picture, self.encoder, self.gallery)


@dataclass(frozen=True, eq=False)
class Pictures:
    """The opened pictures of a question."""

    references: tuple[Reference, ...]
    marked: tuple[Marked, ...] = ()


class Searcher:
    """A gallery, an encoder, a factorizer and a kernel: whatever a search needs. Safe to use from many threads.

    `factorizer` is a name or an object, for questions that name none. `matcher` takes the kernel's place, `pictures`
    opens what a question names pictures by.
    """

    def __init__(
        self,
        gallery: Gallery | str | Path,
        *,
        encoder: Encoder | None = None,
        factorizer: str | Factorizer | None = None,
        kernel: Kernel | None = None,
        matcher: Matcher | None = None,
        pictures: PictureOpener | None = None,
    ) -> None:
        self.gallery = gallery if isinstance(gallery, Gallery) else Gallery.open(gallery, encoder=encoder)
        if encoder is not None:
            refuse_other(self.gallery.card, encoder.card)
        _refuse_no_kernel(kernel)
        self.kernel = kernel
        self._encoder, self._factorizer, self._matcher, self._pictures = encoder, factorizer, matcher, pictures
        self._views: LRU[tuple[int, str], Gallery] = LRU(_VIEWS)

    def search(self, options: SearchOptions) -> Ranking:
        """Answer a question."""
        if options.method != TAPR:
            from tapr.methods.single_search import search_with_method

            return search_with_method(self, options)
        clock = Clock()
        pictures = self.open_pictures(options)
        clock.lap("reference")
        factorization = self.read_edit(options, pictures.references)
        clock.lap("factorize")
        question = self.compile(options, pictures, factorization)
        clock.lap("compile")
        top = self.rank(question)
        clock.lap("match")
        ranking = answer(question, top)
        clock.lap("explain")
        return replace(ranking, seconds=clock.laps)

    def open_pictures(self, options: SearchOptions) -> Pictures:
        """Open the references and the marked pictures."""
        first = options.reference if options.like is None else options.like
        references = () if first is None else (cropped(self.pictures.open(first), options.crop),)
        more_references, more_like, not_like = (
            tuple(map(self.pictures.open, pictures))
            for pictures in (options.more_references, options.more_like, options.not_like)
        )
        return Pictures((*references, *more_references), tuple(feedback_of(more_like, not_like, self.gallery)))

    def read_edit(self, options: SearchOptions, references: Sequence[Reference]) -> Factorization:
        """Turn the words of a question into a spec: an edit is factorized, all else stands as it is."""
        if options.text is not None:
            return words_alone(options.text)
        if options.like is not None:
            return picture_alone()
        if options.spec is not None:
            return Factorization(options.spec, "given")
        assert options.edit is not None  # SearchOptions refuses a question without any of them
        factorizer = self.factorizer if options.factorizer is None else self._loaded(options.factorizer)
        return factorize(references, options.edit, factorizer)

    def compile(self, options: RankOptions, pictures: Pictures, factorization: Factorization) -> Question:
        """Encode the phrases, decide how much of the reference stays, and weigh every probe."""
        gallery = self.view(options.filter)
        encoder, spec, references = self.encoder, factorization.spec, pictures.references
        kept = [kept_evidence(reference, encoder.card) for reference in references]
        encoded = EncodedSpec.of(spec, kept, encoder, [marked.compiled(encoder.card) for marked in pictures.marked])
        decision = Decision(None)
        if references:
            (decision,) = decide(options.scoring, [spec], encoded.target[None], gallery)
        query = encoded.compile(options.weights, options.tau, decision.continuity)
        return Question(options, gallery, encoder, references, pictures.marked, factorization, decision, query)

    def rank(self, question: Question) -> TopK | None:
        """Find the top k; None: there is nothing to match."""
        if not question.wanted:
            return None
        limits = question.options.prefilter, question.options.budget_ms
        return self.matcher.top_k(question.query, question.gallery, question.wanted, *limits)

    def view(self, where: str | None) -> Gallery:
        """Return the part of the gallery that meets a filter; the same object each time, so that sweeps are shared."""
        if where is None or not where.strip():
            return self.gallery
        snapshot = self.gallery.manifest.snapshot or 0  # an open gallery follows its own `sync`
        return self._views.get_or_make((snapshot, where), lambda: self.gallery.select(where))

    @property
    def encoder(self) -> Encoder:
        return self._encoder or self.gallery.encoder

    @cached_property
    def factorizer(self) -> Factorizer:
        """The factorizer of questions that name none, loaded when it is first used."""
        return self._loaded(self._factorizer)

    @cached_property
    def matcher(self) -> Matcher:
        return self._matcher or KernelMatcher(self.kernel or choose_kernel())

    @cached_property
    def pictures(self) -> PictureOpener:
        return self._pictures or GalleryPictures(self.gallery, self.encoder)

    def _loaded(self, factorizer: str | Factorizer | None) -> Factorizer:
        if isinstance(factorizer, (str, type(None))):
            from tapr.factorize.registry import DEFAULT_FACTORIZER, load_factorizer
            from tapr.factorize.tags import use_vocabulary

            use_vocabulary(self.encoder, self.gallery.path)
            return load_factorizer(factorizer or DEFAULT_FACTORIZER, encoder=self.encoder)
        if isinstance(factorizer, type) or not callable(getattr(factorizer, "factorize", None)):
            raise BadInput("factorizer must be a name such as 'grounded', or an object with the method factorize")
        return factorizer


def _refuse_no_kernel(kernel: object) -> None:
    if isinstance(kernel, (str, type)):
        what = "kernel must be an object that tapr.search.kernels.choose.choose_kernel returns, such as"
        raise BadInput(f"{what} choose_kernel('numpy')")


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
    sort: str | None = None,
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
    searches make a Searcher once. The reference is a path, a gallery id, bytes, a file opened with 'rb', a PIL image or
    an opened Reference. A further reference can be cropped too: open it, and use tapr.query.crop.cropped.
    An option that the `method` does not read is refused. Of a search by a first stage (docs/scaling.md),
    `ranking.prefilter` says whether these are the best of all.
    """
    options = SearchOptions.of(**{name: value for name, value in locals().items() if name not in ("gallery", "kernel")})
    return Searcher(gallery, kernel=kernel).search(options)
