"""Report: what an index run did."""

from __future__ import annotations

from dataclasses import dataclass, field

from tapr.store.catalog import Catalog
from tapr.store.columns import Column


@dataclass
class Report:
    encoded: int = 0
    shared: int = 0  # new files whose content was in the gallery already
    unchanged: int = 0
    touched: int = 0  # same content, new time or metadata
    renamed: int = 0
    removed: int = 0
    kept: int = 0  # known pictures whose source or folder could not be read
    pictures: int = 0  # in the gallery now
    described: int = 0  # pictures with a caption
    unsure: int = 0  # pictures whose caption was too unsure
    summarised: int = 0  # pictures for which this run added a first stage
    columns: list[Column] = field(default_factory=list)  # of the metadata
    failures: list[tuple[str, str]] = field(default_factory=list)  # (path, reason) of all failures in the catalogue
    skipped: list[str] = field(default_factory=list)  # files that are not pictures
    # (path, reason): folders that could not be read and may hold pictures
    left_out: list[tuple[str, str]] = field(default_factory=list)
    # (source, reason): unavailable sources, whose pictures are kept
    away: list[tuple[str, str]] = field(default_factory=list)
    # ids of pictures that were put over HTTP and whose file is damaged, and how; their vectors are kept
    damaged_uploads: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    encoder_seconds: float = 0.0

    def tell(self, catalog: Catalog) -> None:
        """Add the gallery's current counts."""
        self.pictures = catalog.counts()["pictures"]
        self.described, self.unsure = catalog.captions()
        self.columns = catalog.columns()
        self.failures = [(entry.path, entry.failure or "") for entry in catalog.failures()]
