"""Compaction: rewrites the shards without rows that no picture uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tapr.errors import TaprError
from tapr.store.catalog import Catalog
from tapr.store.layout import REPAIR, Manifest
from tapr.store.shards import ShardReader, ShardWriter
from tapr.store.verify import damaged_files

FEW = 16  # fewer unused rows are never worth it
_BATCH = 1024  # rows


def compact(folder: Path, manifest: Manifest, catalog: Catalog) -> bool:
    """When most rows are dead, rewrite the shards without them, under the next generation's names.

    The old files are deleted once the catalogue that no longer needs them is published. Damaged rows are not carried
    over, where they would get checksums that hold: the run ends before that.
    """
    in_use = catalog.rows_in_use()
    if catalog.rows_committed() - in_use <= max(in_use, FEW):
        return False
    keys, rows = catalog.select()
    live, new_of = np.unique(rows, return_inverse=True)
    hurt = damaged_files(folder, manifest, catalog)
    if hurt:
        raise TaprError(f"{folder / hurt[0].file} {hurt[0].reason}: {REPAIR}")
    old, generation = ShardReader(folder, manifest, catalog), catalog.generation() + 1
    with ShardWriter(folder, manifest, catalog, generation) as shards:
        for start in range(0, len(live), _BATCH):
            shards.append_parts(old.gather_parts(live[start : start + _BATCH]))
        catalog.renumber(zip(new_of.tolist(), keys.tolist(), strict=True))
        shards.commit()
    return True
