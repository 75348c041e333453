"""Encodes all pictures of a gallery anew, in the arithmetic of this machine; see encoders/arithmetic.py.

What is known of the pictures stays: ids, metadata, captions, order. The new vectors are written under the next
generation's names and published at once; a run that is stopped leaves the gallery as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.index.bulk import bulk_of
from tapr.index.encode import BATCH, NOT_NUMBERS, encode_checked
from tapr.index.load import Loaded, load_in_order
from tapr.index.sources import Candidate
from tapr.store.catalog import Entry
from tapr.store.layout import Manifest
from tapr.store.shards import ShardWriter
from tapr.store.snapshot import Draft, open_catalog
from tapr.utils.amounts import counted
from tapr.utils.progress import Progress


@dataclass
class Reencoding:
    encoded: int = 0
    lost: list[tuple[str, str]] = field(default_factory=list)  # paths, and why they could not be encoded anew
    seconds: float = 0.0


def run_reencode(folder: Path, encoder: Encoder, progress: Progress) -> Reencoding:
    """The caller holds the writer's lock."""
    begin, report = time.perf_counter(), Reencoding()
    manifest = Manifest.read(folder)
    if replace(encoder.card, arithmetic=manifest.card.arithmetic) != manifest.card:
        raise BadInput("pictures are encoded anew by the gallery's own encoder, in another arithmetic at most")
    renewed = manifest.model_copy(update={"encoder": encoder.card.to_dict()})
    published = open_catalog(folder, manifest, wait=True)
    draft = Draft(folder, renewed, published, alone=True)
    try:
        catalog = draft.begin()
        entries = sorted((one for one in catalog.entries() if one.row is not None), key=lambda one: one.row or 0)
        by_row = [list(same) for _, same in groupby(entries, key=lambda one: one.row)]
        progress.say(
            f"encoding {counted(len(by_row), 'picture')} anew, from {manifest.card.arithmetic} "
            f"to {encoder.card.arithmetic}"
        )
        progress.start(len(by_row), "encoding")
        new_rows: dict[int, int] = {}  # key of an entry -> row
        readied = _readied(by_row, encoder)
        with ShardWriter(folder, renewed, catalog, catalog.generation() + 1) as shards:
            while lot := list(islice(readied, bulk_of(encoder) or BATCH)):
                good = [pair for pair in lot if pair[1].pixels is not None]
                done = encode_checked(encoder, [loaded for _, loaded in good]) if good else None
                row = shards.append(done.evidence) if done is not None else 0
                fine = iter(done.good if done is not None else ())
                for same, loaded in lot:
                    if loaded.pixels is not None and next(fine):
                        new_rows |= {one.key: row for one in same if one.key is not None}
                        row += 1
                        report.encoded += 1
                        continue
                    reason = NOT_NUMBERS if loaded.pixels is not None else loaded.entry.failure or ""
                    report.lost += [(one.path, reason) for one in same]
                    for one in same:
                        catalog.put(replace(one, row=None, failure=reason))
                progress.advance(len(lot))
            catalog.renumber((row, key) for key, row in new_rows.items())
            shards.commit()
        draft.publish()
    finally:
        draft.close()
        published.close()
    report.seconds = time.perf_counter() - begin
    return report


def _readied(by_row: list[list[Entry]], encoder: Encoder) -> Iterator[tuple[list[Entry], Loaded]]:
    """Each picture from a file that is still what it was; equal files stand in for each other."""
    firsts = [Candidate(same[0].id, same[0].path) for same in by_row]
    for same, first in zip(by_row, load_in_order(firsts, encoder), strict=True):
        loaded = first
        for other in same[1:]:
            if loaded.pixels is not None and loaded.entry.sha256 == same[0].sha256:
                break
            (loaded,) = load_in_order([Candidate(other.id, other.path)], encoder)
        if loaded.pixels is not None and loaded.entry.sha256 != same[0].sha256:
            loaded = Loaded(replace(loaded.entry, failure="the file has changed since it was indexed"))
        yield same, loaded
