"""The engine of a server: everything is loaded once and shared by all requests. No HTTP here."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread

from PIL import Image

from tapr.encoders.caching import CachingEncoder
from tapr.errors import BadInput, TaprError
from tapr.explain.calibration import Scale, rivals_of_things
from tapr.explain.marks import marked
from tapr.factorize.base import Factorizer
from tapr.factorize.tags import use_vocabulary
from tapr.gallery import Gallery
from tapr.images.photo_facts import LOCATION
from tapr.options import SearchOptions
from tapr.query.spec import EditSpec
from tapr.result import Ranking
from tapr.search.batching import Batcher
from tapr.search.kernels.choose import choose_kernel
from tapr.search.searcher import Searcher
from tapr.server.fetching import Allowed, Fetcher
from tapr.server.pictures import ServedPictures
from tapr.server.references import References
from tapr.server.settings import Settings
from tapr.server.snapshot import ServedFactorizer, ServedMatcher, ServedSnapshot
from tapr.store.layout import Manifest

_PHRASES = 4096  # cached text vectors; each has a few kilobytes


class Engine:
    """The newest snapshot of a gallery, and what requests share. Thread-safe.

    A request asks for `snapshot()` once, and reads from that. It waits for others only if sharing a sweep is faster.
    """

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
        self._publishing = False
        self._seen = gallery.published()  # read before opening: a run that publishes in between is then seen as new
        self._snapshot = self._served(gallery.reopen(self.encoder))
        self._warm_up()
        self._calibrated = Event()  # set once an answer can say what its pictures show
        if use_vocabulary(self.encoder, gallery.path):
            self._load_vocabulary()
        self.calibration = Thread(target=self._calibrate, name="tapr-calibrate", daemon=True)
        self.calibration.start()

    def marked(self, ranking: Ranking) -> Ranking:
        """Return an answer with its marks; without them while phrases are still being encoded for the first time."""
        return marked(ranking) if self._calibrated.is_set() else ranking

    def _load_vocabulary(self) -> None:
        rivals_of_things(self.encoder)
        self._calibrated.set()

    def _calibrate(self) -> None:
        """Encode the phrases of marks and heat maps; a slow encoder takes minutes, and requests need not wait."""
        self._load_vocabulary()
        Scale.of(self.gallery)

    def close(self) -> None:
        self.batcher.close()

    @property
    def kernel_name(self) -> str:
        """The name of the kernel, here or where the gallery is searched."""
        return self._snapshot.gallery.kernel_name or self.batcher.kernel.name

    @property
    def gallery(self) -> Gallery:
        return self.snapshot().gallery

    def snapshot(self) -> ServedSnapshot:
        """Return the newest snapshot of the gallery. A server need not be restarted after an index run."""
        with self._lock:
            change = self._snapshot.gallery.published()
            if change != self._seen and not self._publishing:
                try:
                    self._snapshot = self._served(self._snapshot.gallery.reopen(self.encoder))
                except BadInput as error:  # not the client's mistake
                    raise TaprError(str(error)) from None
                self._seen = change
            return self._snapshot

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """While this process writes a snapshot, requests keep the current one until `take_up`."""
        self.snapshot()  # picks up what others have published
        self._publishing = True
        try:
            yield
        finally:
            self._publishing = False

    def take_up(self, gallery: Gallery) -> None:
        """Let requests from now on use this snapshot."""
        seen = gallery.published()
        if Manifest.read(gallery.path) != gallery.manifest:
            seen = ()  # another process has published meanwhile: the next request opens that
        with self._lock:
            self._snapshot, self._seen = self._served(gallery), seen

    def _served(self, gallery: Gallery) -> ServedSnapshot:
        if not self.settings.show_location:
            gallery.hide_columns(LOCATION)
        pictures = ServedPictures(gallery, self.encoder, self.references, self.fetcher, self.settings.limits)
        searcher = Searcher(
            gallery,
            encoder=self.encoder,
            factorizer=ServedFactorizer(self.factorizer),
            matcher=ServedMatcher(self.batcher),
            pictures=pictures,
        )
        return ServedSnapshot(gallery, pictures, searcher, self.settings)

    def _holds(self, sha256: str) -> bool:
        return self.gallery.holds(sha256)

    def _load(self, factorizer: str | Factorizer | None) -> Factorizer:
        if not isinstance(factorizer, (str, type(None))):
            return factorizer
        from tapr.factorize.registry import DEFAULT_FACTORIZER, load_factorizer

        return load_factorizer(factorizer or DEFAULT_FACTORIZER, encoder=self.encoder)

    def _warm_up(self) -> None:
        """Search by a white picture, so that encoder and kernel are ready before the first request."""
        buffer = io.BytesIO()
        Image.new("RGB", (8, 8), "white").save(buffer, "PNG")
        reference = self._snapshot.pictures.open_bytes(buffer.getvalue(), self.settings.limits)
        self._snapshot.search(SearchOptions.of(reference=reference, spec=EditSpec("warm up"), k=1))
