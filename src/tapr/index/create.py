"""Make an empty gallery where there is none, before the first index run (run.py)."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapr.encoders.base import Encoder
from tapr.encoders.centred import CentredEncoder, phrase_mean
from tapr.errors import BadInput
from tapr.index.load import mean_local_vector
from tapr.index.options import IndexOptions
from tapr.index.settings import Settings, check_sources
from tapr.index.sources import Found, find
from tapr.store import layout
from tapr.store.block import Precision
from tapr.store.catalog import Catalog
from tapr.store.checksums import FileDigest
from tapr.store.layout import Manifest
from tapr.store.lock import LOCK, NAMES
from tapr.utils.progress import Progress
from tapr.utils.rooted import Root

_LEFT_BY_A_KILL = rf"\{LOCK}(\.\w+)?|catalog(-\d+)?\.sqlite(-journal)?|\.{re.escape(layout.MANIFEST)}\.[0-9a-f]{{8}}"


@dataclass(frozen=True)
class NewGallery:
    """All that a new gallery needs before its folder is made, so that nothing is left behind where one of it fails."""

    folder: Path
    found: Found
    encoder: Encoder
    means: dict[str, Any]  # of a centred gallery
    precision: Precision

    @classmethod
    def prepare(cls, folder: Path, options: IndexOptions, progress: Progress) -> NewGallery:
        """Walk the sources, and load the encoder."""
        if not options.images:
            raise BadInput(f"there is no gallery {str(folder)!r} yet and no pictures were named: say which to index")
        _refuse_other_folder(folder)
        settings = Settings([], {}, None, None, None, set()).changed_by(options)
        found = find(settings.sources, settings.columns)
        check_sources(options, found)
        encoder = options.new_encoder(progress)
        means: dict[str, Any] = {}
        if options.centre:
            progress.say("measuring the mean local vector to centre on")
            image_mean, text_mean = mean_local_vector(found.candidates, encoder), phrase_mean(encoder)
            encoder = CentredEncoder(encoder, image_mean, text_mean)
            means = {"image_mean": image_mean.tolist(), "text_mean": text_mean.tolist()}
        return cls(folder, found, encoder, means, options.precision or "fp16")

    def write(self) -> Manifest:
        """Write an empty gallery. The caller holds the writer's lock."""
        _refuse_other_folder(self.folder)
        root = Root(self.folder)
        for name in root.files():
            if name not in NAMES and re.fullmatch(_LEFT_BY_A_KILL, name):
                root.delete(name)
        path, gallery_id = layout.catalog_path(self.folder, 0), secrets.token_hex(16)
        Catalog.create(path, gallery_id).close()
        manifest = Manifest(
            gallery_id=gallery_id,
            encoder=self.encoder.card.to_dict(),
            precision=self.precision,
            shard_rows=layout.shard_rows_for(self.encoder.card),
            snapshot=0,
            catalog=FileDigest.of(path),
            **self.means,
        )
        manifest.write(self.folder)
        return manifest


def _refuse_other_folder(folder: Path) -> None:
    """A folder is free when it is not there, is empty, or holds only what a run left that was killed at this point."""
    if not os.path.exists(folder):
        return
    if not folder.is_dir():
        raise BadInput(f"{str(folder)!r} exists and is not a gallery: choose a new folder")
    names = {item.name for item in folder.iterdir()}
    if any(re.fullmatch(rf"({'|'.join(layout.KINDS)})-\d+-\d+\.npy", name) for name in names):
        raise BadInput(
            f"{str(folder)!r} holds vectors of a gallery and no {layout.MANIFEST}: restore it, or choose a new folder"
        )
    if not all(re.fullmatch(_LEFT_BY_A_KILL, name) for name in names):
        raise BadInput(f"{str(folder)!r} exists and is not a gallery: choose a new folder")
