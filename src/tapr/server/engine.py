"""The search engine of a server: everything is loaded once and shared by all requests. No HTTP in here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from tapr.encoders.base import Evidence
from tapr.encoders.caching import CachingEncoder
from tapr.errors import BadInput, TaprError
from tapr.factorize.base import Factorizer
from tapr.gallery import Gallery
from tapr.images.decode import DEFAULT_LIMITS, BadImage, Limits, read_bytes, sha256_of
from tapr.query.crop import kept_evidence
from tapr.query.factorization import Factorization
from tapr.query.open_reference import stored_evidence
from tapr.query.reference import Reference
from tapr.query.scoring import DEFAULT_SCORING, ReferenceFeatures, Scoring
from tapr.query.spec import EditSpec, Weights
from tapr.result import Ranking
from tapr.score.compile import TAU, CompiledQuery, Continuity, compile_query
from tapr.search.kernels.choose import choose_kernel
from tapr.search.pipeline import make_spec
from tapr.search.rank import rank
from tapr.search.topk import TopK
from tapr.server.batcher import Batcher
from tapr.server.references import References
from tapr.server.settings import Settings
from tapr.server.traces import ended, span
from tapr.store import uploads
from tapr.store.catalog import Entry
from tapr.store.filters import OWN, names_in
from tapr.store.layout import Manifest
from tapr.utils.lru import LRU

_VIEWS = 32  # filtered galleries that are kept
_PHRASES = 4096  # remembered; a vector has a few kilobytes


class UnknownPicture(BadInput):
    """An id that the gallery does not have, or whose file is gone."""


class FactorizerUnavailable(TaprError):
    """The factorizer could not answer; it may be a language model that cannot be reached."""


class Engine:
    """Thread-safe. Waits for the matching of others only where sharing a sweep with them is faster."""

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
        self.references = References(self.encoder, self.settings.references)
        self.batcher = Batcher(choose_kernel(), observe_batch)
        self._lock = Lock()
        self._views: LRU[str, Gallery] = LRU(_VIEWS)
        self._publishing = False
        self._seen = gallery.published()  # before it is opened: a run that ends in between is then seen as new
        self._gallery = gallery.reopen(self.encoder)
        self._refuse_ids_that_are_paths()
        self.rank(self._first_reference(), Factorization(EditSpec("warm up"), "given"), k=1)

    def close(self) -> None:
        self.batcher.close()

    # the gallery

    @property
    def kernel_name(self) -> str:
        """What matches: the kernel here, unless the gallery is searched elsewhere."""
        return self._gallery.kernel_name or self.batcher.kernel.name

    @property
    def gallery(self) -> Gallery:
        """The bank as the last index run left it; a server need not be restarted after one."""
        with self._lock:
            change = self._gallery.published()
            if change != self._seen and not self._publishing:
                try:
                    self._gallery = self._gallery.reopen(self.encoder)
                except BadInput as error:  # no mistake of the one who asks
                    raise TaprError(str(error)) from None
                self._seen = change
                self._views.clear()
            return self._gallery

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """While this process writes a snapshot itself, requests keep the one they have until it is taken up."""
        gallery = self.gallery  # what others published so far
        del gallery
        self._publishing = True
        try:
            yield
        finally:
            self._publishing = False

    def take_up(self, gallery: Gallery) -> None:
        """From now on requests see this snapshot."""
        seen = gallery.published()
        if Manifest.read(gallery.path) != gallery.manifest:
            seen = ()  # another process has published since: the next request opens that
        with self._lock:
            self._gallery, self._seen = gallery, seen
            self._views.clear()

    def view(self, where: str | None) -> Gallery:
        """The gallery narrowed by a filter: the same object for the same filter, so that queries share a sweep."""
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
        """Only files that the catalogue names are ever read; an upload only if it is what was put."""
        try:
            data = read_bytes(entry.path)
            if entry.source == uploads.SOURCE and sha256_of(data) != uploads.sha256_named(entry.path):
                raise BadImage("is damaged (its checksum differs): put the picture again")
            return data
        except BadImage as error:
            raise UnknownPicture(f"the file of {entry.id!r} {error}") from None

    # the way of a query

    def open_upload(self, data: bytes, limits: Limits | None = None) -> Reference:
        try:
            with span("encode"):
                return self.references.open(data, limits or self.settings.limits, self._stored)
        except BadImage as error:
            raise type(error)(f"the reference {error}") from None

    def open_picture(self, id_: str) -> Reference:
        return self.open_upload(self.picture_bytes(self.entry(id_)), DEFAULT_LIMITS)

    def factorize(self, reference: Reference, edit: str | None, spec: EditSpec | None = None) -> Factorization:
        """An edit, which is factorized, or a spec, which is taken as it is."""
        try:
            with span("factorize", **{"tapr.factorizer": self.factorizer.name}):
                return make_spec(reference, edit, spec, self.factorizer, self.encoder)
        except BadInput:
            raise
        except TaprError as error:
            raise FactorizerUnavailable(str(error)) from error

    def compile(
        self,
        references: Sequence[Reference],
        spec: EditSpec,
        weights: Weights | None,
        reference_weight: float | None = None,
        reference_features: ReferenceFeatures = DEFAULT_SCORING.reference_features,
    ) -> CompiledQuery:
        """As the ranking that reported this `reference_weight` weighs it; without one, as the paper does."""
        continuity = None if reference_weight is None else Continuity(reference_weight, reference_features)
        kept = [kept_evidence(one, self.encoder.card) for one in references]
        return compile_query(spec, kept, self.encoder, weights, continuity=continuity)

    def rank(
        self,
        reference: Reference | Sequence[Reference] | None,
        factorization: Factorization,
        k: int,
        *,
        weights: Weights | None = None,
        tau: float = TAU,
        scoring: Scoring = DEFAULT_SCORING,
        where: str | None = None,
        exclude_reference: bool = True,
        offset: int = 0,
        threshold: float | None = None,
        explain: bool = True,
        near_duplicates: float | None = None,
    ) -> Ranking:
        """tapr.search from the spec on, with matching shared among the requests of the moment."""
        view, most = self.view(where), self.settings.most_explained
        if explain and min(k, len(view) - offset) > most:
            raise BadInput(
                f"at most {most} hits come with their parts: ask for fewer and page with offset, or turn explain off"
            )
        if threshold is not None and not math.isfinite(threshold):
            raise BadInput(f"the threshold must be a number, not {threshold}")
        ranking = rank(
            view,
            reference,
            factorization,
            k,
            weights=weights,
            tau=tau,
            scoring=scoring,
            exclude_reference=exclude_reference,
            offset=offset,
            threshold=threshold,
            explain=explain,
            near_duplicates=near_duplicates,
            matcher=self._match,
        )
        ended("explain", ranking.seconds["explain"], **{"tapr.hits": len(ranking.hits)})
        return ranking

    def _match(self, query: CompiledQuery, bank: Gallery, k: int) -> TopK:
        with span("match", **{"tapr.pictures": len(bank)}):
            return self.batcher.top_k(query, bank, k)

    def _refuse_ids_that_are_paths(self) -> None:
        told = 0 if self.settings.show_paths else self._gallery.ids_that_are_paths()
        if told:
            raise BadInput(
                f"{told:,} pictures of the gallery have the path of their file as id, which everyone who asks would "
                f"see: run tapr index -g {self._gallery.path} once, give the table an id column, or allow it with "
                "--show-paths"
            )

    def _refuse_filter_on_path(self, gallery: Gallery, where: str) -> None:
        """Its answers would tell, guess by guess, where files lie."""
        if self.settings.show_paths:
            return
        names = names_in(where)
        if f"{OWN}path" in names or ("path" in names and "path" not in gallery.metadata_keys()):
            raise BadInput(
                "where the server keeps its files is not told, so no filter can ask for path: use id, or a column of "
                "the table, or start the server with --show-paths"
            )

    def _stored(self, sha256: str) -> Evidence | None:
        return stored_evidence(self.gallery, self.encoder, sha256)

    def _load(self, factorizer: str | Factorizer | None) -> Factorizer:
        if not isinstance(factorizer, (str, type(None))):
            return factorizer
        from tapr.factorize.registry import DEFAULT_FACTORIZER, load_factorizer

        return load_factorizer(factorizer or DEFAULT_FACTORIZER, encoder=self.encoder)

    def _first_reference(self) -> Reference:
        """A white picture: the first real query then finds both towers and the bank awake."""
        import io

        from PIL import Image

        buffer = io.BytesIO()
        Image.new("RGB", (8, 8), "white").save(buffer, "PNG")
        return self.open_upload(buffer.getvalue())
