"""The search engine of a server. Everything is loaded once and shared by all requests. No HTTP here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

from tapr.encoders.base import Evidence
from tapr.encoders.caching import CachingEncoder
from tapr.errors import BadInput, BadOption, TaprError
from tapr.factorize.base import Factorizer
from tapr.gallery import Gallery
from tapr.images.decode import DEFAULT_LIMITS, BadImage, Limits, read_bytes, sha256_of
from tapr.options import TAPR, RankOptions, SearchOptions
from tapr.query.crop import kept_evidence
from tapr.query.factorization import Factorization
from tapr.query.open_reference import stored_evidence
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec
from tapr.result import Ranking
from tapr.score.compile import CompiledQuery, Continuity, compile_query
from tapr.search.feedback import Marked
from tapr.search.kernels.choose import choose_kernel
from tapr.search.pipeline import answer, factorize
from tapr.search.topk import TopK
from tapr.server.batcher import Batcher
from tapr.server.fetching import Allowed, Fetcher
from tapr.server.references import References
from tapr.server.settings import Settings
from tapr.server.traces import ended, span
from tapr.store import uploads
from tapr.store.catalog import Entry
from tapr.store.filters import OWN, names_in
from tapr.store.layout import Manifest
from tapr.utils.lru import LRU

SERVED_METHODS = (TAPR,)  # others read all vectors of the gallery for each search
_VIEWS = 32  # filtered galleries that are kept
_PHRASES = 4096  # cached text vectors; each has a few kilobytes


class UnknownPicture(BadInput):
    """An unknown id, or one whose file is gone."""

    code = "unknown_picture"


class FactorizerUnavailable(TaprError):
    """The factorizer failed; for example, a language model cannot be reached."""

    code = "factorizer_unavailable"


class Engine:
    """Thread-safe. A request waits for others only if sharing a sweep is faster."""

    def __init__(
        self,
        gallery: Gallery,
        factorizer: str | Factorizer | None = None,
        settings: Settings | None = None,
        observe_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self.settings = settings or Settings()
        self.encoder = CachingEncoder(gallery.encoder, together=1, limit=_PHRASES)
        self.factorizer = self._load(factorizer)
        self.references = References(self.encoder, self.settings.references, self._holds)
        self.fetcher = Fetcher(Allowed.of(self.settings.fetch), self.settings.limits)
        self.batcher = Batcher(choose_kernel(), observe_batch)
        self._lock = Lock()
        self._views: LRU[str, Gallery] = LRU(_VIEWS)
        self._publishing = False
        self._seen = gallery.published()  # read before opening: a run that publishes in between is then seen as new
        self._gallery = gallery.reopen(self.encoder)
        self.search(SearchOptions.of(reference=self._first_reference(), spec=EditSpec("warm up"), k=1))

    def close(self) -> None:
        self.batcher.close()

    # the gallery

    @property
    def kernel_name(self) -> str:
        """The name of the kernel, here or where the gallery is searched."""
        return self._gallery.kernel_name or self.batcher.kernel.name

    @property
    def gallery(self) -> Gallery:
        """The newest snapshot of the gallery. A server need not be restarted after an index run."""
        with self._lock:
            change = self._gallery.published()
            if change != self._seen and not self._publishing:
                try:
                    self._gallery = self._gallery.reopen(self.encoder)
                except BadInput as error:  # not the client's mistake
                    raise TaprError(str(error)) from None
                self._seen = change
                self._views.clear()
            return self._gallery

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """While this process writes a snapshot, requests keep the current one until `take_up`."""
        gallery = self.gallery  # picks up what others have published
        del gallery
        self._publishing = True
        try:
            yield
        finally:
            self._publishing = False

    def take_up(self, gallery: Gallery) -> None:
        """Requests from now on use this snapshot."""
        seen = gallery.published()
        if Manifest.read(gallery.path) != gallery.manifest:
            seen = ()  # another process has published meanwhile: the next request opens that
        with self._lock:
            self._gallery, self._seen = gallery, seen
            self._views.clear()

    def view(self, where: str | None) -> Gallery:
        """The gallery restricted by a filter: the same object for the same filter, so that queries share a sweep."""
        gallery = self.gallery
        if not where or not where.strip():
            return gallery
        self._refuse_filter_on_path(gallery, where)
        known = self._views.get(where)
        if known is not None:
            return known
        view = gallery.select(where)
        with self._lock:
            if gallery is self._gallery:
                self._views.put(where, view)
        return view

    def entry(self, id_: str, gallery: Gallery | None = None) -> Entry:
        entry = (self.gallery if gallery is None else gallery).find(id_)
        if entry is None:
            raise UnknownPicture(f"the gallery has no picture with the id {id_[:200]!r}")
        return entry

    def picture_bytes(self, entry: Entry) -> bytes:
        """Read a picture's file. Only files in the catalogue are read, and an upload only if it is undamaged."""
        try:
            data = read_bytes(entry.path)
            if entry.source == uploads.SOURCE and sha256_of(data) != uploads.sha256_named(entry.path):
                raise BadImage("is damaged (its checksum differs): put the picture again")
            return data
        except BadImage as error:
            raise UnknownPicture(f"the file of {entry.id!r} {error}") from None

    # the steps of a query

    def open_upload(self, data: bytes, limits: Limits | None = None) -> Reference:
        try:
            with span("encode"):
                return self.references.open(data, limits or self.settings.limits, self._stored)
        except BadImage as error:
            raise type(error)(f"the reference {error}") from None

    def open_picture(self, id_: str) -> Reference:
        return replace(self.open_upload(self.picture_bytes(self.entry(id_)), DEFAULT_LIMITS), id=id_)

    def factorize(self, references: Sequence[Reference], edit: str) -> Factorization:
        try:
            with span("factorize", **{"tapr.factorizer": self.factorizer.name}):
                return factorize(references, edit, self.factorizer, self.encoder)
        except BadInput:
            raise
        except TaprError as error:
            raise FactorizerUnavailable(str(error)) from error

    def compile(
        self, references: Sequence[Reference], asked: RankOptions, feedback: Sequence[Marked] = ()
    ) -> CompiledQuery:
        """As the ranking that reported this `reference_weight` weighs it; without one, as the paper does."""
        assert asked.spec is not None
        weight = asked.reference_weight
        continuity = None if weight is None else Continuity(weight, asked.reference_features)
        kept = [kept_evidence(one, self.encoder.card) for one in references]
        marked = [one.compiled(self.encoder.card) for one in feedback]
        return compile_query(asked.spec, kept, self.encoder, asked.weights, asked.tau, continuity, marked)

    def search(self, asked: SearchOptions) -> Ranking:
        """tapr.search, with matching shared among the requests of the moment."""
        view, most = self.view(asked.filter), self.settings.most_explained
        if asked.method not in SERVED_METHODS:
            what = f"unknown method {asked.method[:80]!r}: choose {', '.join(SERVED_METHODS)}"
            raise BadOption(what, "method", "unknown_name")
        if asked.explain and min(asked.k, len(view) - asked.offset) > most:
            what = f"at most {most} hits come with their parts: ask for fewer and page with offset, or turn explain off"
            raise BadOption(what, "k")
        ranking = answer(
            self.gallery,
            asked,
            kernel=self.batcher.kernel,
            factorize_edit=self.factorize,
            matcher=lambda query, bank, k: self._match(query, bank, k, asked),
            select=self.view,
            open_picture=lambda picture: picture if isinstance(picture, Reference) else picture.opened(self),
        )
        ended("explain", ranking.seconds["explain"], **{"tapr.hits": len(ranking.hits)})
        return ranking

    def _match(self, query: CompiledQuery, bank: Gallery, k: int, asked: SearchOptions) -> TopK:
        with span("match", **{"tapr.pictures": len(bank)}):
            return self.batcher.top_k(query, bank, k, asked.prefilter, asked.budget_ms)

    def _refuse_filter_on_path(self, gallery: Gallery, where: str) -> None:
        """Refuse filters on `path`: their answers would reveal where files are, guess by guess."""
        if self.settings.show_paths:
            return
        names = names_in(where)
        if f"{OWN}path" in names or ("path" in names and "path" not in gallery.metadata_keys()):
            raise BadInput(
                "where the server keeps its files is not told, so no filter can ask for path: use id, or a column of "
                "the table, or start the server with --show-paths",
                code="bad_filter",
            )

    def _holds(self, sha256: str) -> bool:
        return self.gallery.holds(sha256)

    def _stored(self, sha256: str) -> Evidence | None:
        return stored_evidence(self.gallery, self.encoder, sha256)

    def _load(self, factorizer: str | Factorizer | None) -> Factorizer:
        if not isinstance(factorizer, (str, type(None))):
            return factorizer
        from tapr.factorize.registry import DEFAULT_FACTORIZER, load_factorizer

        return load_factorizer(factorizer or DEFAULT_FACTORIZER, encoder=self.encoder)

    def _first_reference(self) -> Reference:
        """A white picture, to warm up encoder and kernel before the first request."""
        import io

        from PIL import Image

        buffer = io.BytesIO()
        Image.new("RGB", (8, 8), "white").save(buffer, "PNG")
        return self.open_upload(buffer.getvalue())
