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
    kept: int = 0  # known pictures whose source or folder could not be looked into
    pictures: int = 0  # in the gallery now
    described: int = 0  # of them, those with a caption
    unsure: int = 0  # and those that were looked at and have none, because it was not sure
    columns: list[Column] = field(default_factory=list)  # of the metadata
    failures: list[tuple[str, str]] = field(default_factory=list)  # path, reason: all that stand in the catalogue
    skipped: list[str] = field(default_factory=list)  # files beside the pictures that are none
    left_out: list[tuple[str, str]] = field(default_factory=list)  # path, reason: may hold pictures, not looked into
    away: list[tuple[str, str]] = field(default_factory=list)  # source, reason: it gave nothing, its pictures are kept
    # ids of pictures that were put over HTTP and whose file is damaged, and how; their vectors are kept
    damaged_uploads: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    encoder_seconds: float = 0.0

    def tell(self, catalog: Catalog) -> None:
        """What the gallery holds now."""
        self.pictures = catalog.counts()["pictures"]
        self.described, self.unsure = catalog.captions()
        self.columns = catalog.columns()
        self.failures = [(entry.path, entry.failure or "") for entry in catalog.failures()]
