"""One snapshot of the gallery, as requests see it: every read of a request uses the same one. No HTTP here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tapr.errors import BadInput, BadOption, TaprError
from tapr.factorize.base import Factorizer, factorize
from tapr.gallery import Gallery
from tapr.options import TAPR, Budget, SearchOptions
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.result import Ranking
from tapr.score.compile import CompiledQuery
from tapr.search.answer import Question
from tapr.search.batching import Batcher
from tapr.search.kernels.base import Bank
from tapr.search.searcher import Searcher
from tapr.search.topk import TopK
from tapr.server.pictures import ServedPictures
from tapr.server.settings import Settings
from tapr.server.traces import ended, span
from tapr.store.filters import OWN, names_in

SERVED_METHODS = (TAPR,)  # others read all vectors of the gallery for each search


class FactorizerUnavailable(TaprError):
    """The factorizer failed; for example, a language model cannot be reached."""

    code = "factorizer_unavailable"


@dataclass(frozen=True, eq=False)
class ServedFactorizer:
    """The server's factorizer: when it fails, this request is refused as one that can be asked again."""

    factorizer: Factorizer

    @property
    def name(self) -> str:
        return self.factorizer.name

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        return self.factorize_several([reference], edit)

    def factorize_several(self, references: Sequence[Reference], edit: str) -> Factorization:
        try:
            with span("factorize", **{"tapr.factorizer": self.name}):
                return factorize(references, edit, self.factorizer)
        except BadInput:
            raise
        except TaprError as error:
            raise FactorizerUnavailable(str(error)) from error


@dataclass(frozen=True, eq=False)
class ServedMatcher:
    """The server's batcher, traced."""

    batcher: Batcher

    def top_k(
        self, query: CompiledQuery, bank: Bank, k: int, prefilter: Budget | None = None, budget_ms: float | None = None
    ) -> TopK:
        with span("match", **{"tapr.pictures": len(bank)}):
            return self.batcher.top_k(query, bank, k, prefilter, budget_ms)


@dataclass(frozen=True, eq=False)
class ServedSnapshot:
    """A snapshot with its searcher and its pictures."""

    gallery: Gallery
    pictures: ServedPictures
    searcher: Searcher
    settings: Settings

    def search(self, options: SearchOptions) -> Ranking:
        """Search as tapr.search does, with matching shared among the requests of the moment."""
        view, most = self._checked(options), self.settings.most_explained
        if options.explain and min(options.k, len(view) - options.offset) > most:
            what = f"at most {most} hits come with their parts: ask for fewer and page with offset, or turn explain off"
            raise BadOption(what, "k")
        ranking = self.searcher.search(options)
        ended("explain", ranking.seconds["explain"], **{"tapr.hits": len(ranking.hits)})
        return ranking

    def factorize(self, options: SearchOptions) -> tuple[Factorization, Reference]:
        """Read the edit of a question; also return its reference."""
        references = self.searcher.open_pictures(options).references
        return self.searcher.read_edit(options, references), references[0]

    def compile(self, options: SearchOptions) -> Question:
        """Compile a question as `search` does, to explain its answer."""
        self._checked(options)
        pictures = self.searcher.open_pictures(options)
        return self.searcher.compile(options, pictures, self.searcher.read_edit(options, pictures.references))

    def view(self, where: str | None) -> Gallery:
        """Return the part of the gallery that meets a filter.

        Filters on `path` are refused: their answers would reveal where files are, guess by guess.
        """
        names = names_in(where) if where and where.strip() and not self.settings.show_paths else ()
        if f"{OWN}path" in names or ("path" in names and "path" not in self.gallery.metadata_keys()):
            raise BadInput(
                "where the server keeps its files is not told, so no filter can ask for path: use id, or a column of "
                "the table, or start the server with --show-paths",
                code="bad_filter",
            )
        return self.searcher.view(where)

    def _checked(self, options: SearchOptions) -> Gallery:
        """Refuse options that a server does not offer; return the part of the gallery that is searched."""
        if options.method not in SERVED_METHODS:
            what = f"unknown method {options.method[:80]!r}: choose {', '.join(SERVED_METHODS)}"
            raise BadOption(what, "method", "unknown_name")
        return self.view(options.filter)
