"""First of an index run's three steps: make an empty gallery where there is none. Then plan.py, then build.py."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapr.encoders.base import Encoder
from tapr.encoders.centred import CentredEncoder, phrase_mean
from tapr.encoders.registry import DEFAULT_ENCODER, load_encoder
from tapr.errors import BadInput
from tapr.index.changes import Changes
from tapr.index.load import mean_local_vector
from tapr.index.options import Options
from tapr.index.sources import find
from tapr.store import layout
from tapr.store.catalog import Catalog
from tapr.store.checksums import FileDigest
from tapr.store.layout import Manifest
from tapr.store.lock import LOCK, NAMES, writer_lock
from tapr.utils.files import make_folder
from tapr.utils.progress import Progress
from tapr.utils.rooted import Root

_LEFT_BY_A_KILL = rf"\{LOCK}(\.\w+)?|catalog(-\d+)?\.sqlite(-journal)?|\.{re.escape(layout.MANIFEST)}\.[0-9a-f]{{8}}"


def create(folder: Path, sources: Sequence[str], options: Options, progress: Progress) -> Encoder | None:
    """Write an empty bank; nothing is left behind when the encoder cannot be had.

    -> the encoder it is made with; None when another run made a gallery there meanwhile, which stands.
    """
    _refuse_other_folder(folder)
    found = find(sources)
    Changes(add=tuple(sources)).check(found)
    encoder = _encoder(options, progress)
    means: dict[str, Any] = {}
    if options.centre:
        progress.say("measuring the mean local vector to centre on")
        image_mean, text_mean = mean_local_vector(found.candidates, encoder), phrase_mean(encoder)
        encoder = CentredEncoder(encoder, image_mean, text_mean)
        means = {"image_mean": image_mean.tolist(), "text_mean": text_mean.tolist()}
    make_folder(folder)
    with writer_lock(folder, "tapr index", say=progress.say):  # what was true before may not be true any more
        if (folder / layout.MANIFEST).exists():
            return None
        _refuse_other_folder(folder)
        root = Root(folder)
        for name in root.files():
            if name not in NAMES and re.fullmatch(_LEFT_BY_A_KILL, name):
                root.delete(name)
        path, gallery_id = layout.catalog_path(folder, 0), secrets.token_hex(16)
        Catalog.create(path, gallery_id).close()
        Manifest(
            gallery_id=gallery_id,
            encoder=encoder.card.to_dict(),
            precision=options.precision or "fp16",
            shard_rows=layout.shard_rows_for(encoder.card),
            snapshot=0,
            catalog=FileDigest.of(path),
            **means,
        ).write(folder)
    return encoder


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


def _encoder(options: Options, progress: Progress) -> Encoder:
    if isinstance(options.encoder, Encoder):
        return options.encoder
    names = ("extractor", "fit", "template", "arithmetic")
    wanted = {name: getattr(options, name) for name in names}
    given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    return load_encoder(options.encoder or DEFAULT_ENCODER, say=progress.say, **given)
