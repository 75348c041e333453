"""Adds summaries to a gallery that has none, as its next snapshot. From then on ShardWriter adds them to each row.

An index run does it where the gallery is large, or where it was asked to; `tapr first-stage` for any gallery.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tapr.errors import BadInput, TaprError
from tapr.index.apply_writes import refuse_stopped_run
from tapr.store import layout
from tapr.store.catalog import Catalog
from tapr.store.checksums import RunningSum
from tapr.store.layout import REPAIR, GrowingArray, Manifest
from tapr.store.shards import ShardReader, keep_subspaces, summariser_in, summary_parts
from tapr.store.snapshot import Draft, open_catalog
from tapr.store.summary import SAMPLE, Subspaces
from tapr.store.verify import damaged_files
from tapr.utils.progress import Progress

_BATCH = 256  # pictures summarised at a time


def add_first_stage(folder: Path, manifest: Manifest, progress: Progress) -> bool:
    """Add it; False where the gallery has one. The caller holds the writer's lock.

    A run that is stopped leaves the gallery as it was, and is begun again.
    """
    if manifest.first_stage:
        return False
    published = open_catalog(folder, manifest, wait=True)
    try:
        if not published.rows_committed():
            raise BadInput(f"the gallery {str(folder)!r} has no pictures yet: index some before its first stage")
        refuse_stopped_run(folder, manifest, published)
        hurt = damaged_files(folder, manifest, published)
        if hurt:
            raise TaprError(f"{folder / hurt[0].file} {hurt[0].reason}: {REPAIR}")
        draft = Draft(folder, manifest, published, alone=True)
        try:
            catalog = draft.begin()
            _write(folder, manifest, catalog, progress)
            catalog.commit()
            draft.publish(first_stage=True)
        finally:
            draft.close()
    finally:
        published.close()
    return True


def _write(folder: Path, manifest: Manifest, catalog: Catalog, progress: Progress) -> None:
    stored = ShardReader(folder, manifest, catalog)
    few = np.unique(np.linspace(0, stored.rows - 1, min(stored.rows, SAMPLE)).astype(np.int64))
    keep_subspaces(catalog, Subspaces.fitted(layout.block_of(stored.gather_parts(few)).decoded()))
    summariser = summariser_in(catalog)  # as later writers read it
    kinds = manifest.model_copy(update={"first_stage": True}).kinds()
    progress.start(stored.rows, "summarising")
    for shard, (start, stop) in enumerate(stored.spans()):
        files = {}
        try:
            for kind in layout.SUMMARY_KINDS:
                path = layout.shard_path(folder, kind, catalog.generation(), shard)
                path.unlink(missing_ok=True)  # of a run that was killed
                files[kind] = GrowingArray(path, *kinds[kind], 0)
            sums = {kind: RunningSum(kind, shard, _bytes(*kinds[kind]), 0, None) for kind in files}
            for first in range(start, stop, _BATCH):
                last = min(first + _BATCH, stop)
                parts = summary_parts(stored.parts(first, last), summariser)
                for kind, file in files.items():
                    file.append(parts[kind])
                    sums[kind].add(parts[kind])
                progress.advance(last - first)
            for kind, file in files.items():
                file.flush()
                catalog.put_checksums(sums[kind].take())
        finally:
            for file in files.values():
                file.close()


def _bytes(shape: tuple[int, ...], dtype: np.dtype[np.void]) -> int:
    return int(np.prod(shape)) * dtype.itemsize
