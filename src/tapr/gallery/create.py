"""Making a new gallery, and refusing to change what an existing one is made of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapr.arguments import text_or_none
from tapr.encoders.base import Encoder
from tapr.encoders.centred import SUFFIX, CentredEncoder, phrase_mean
from tapr.encoders.registry import DEFAULT_ENCODER, card_name, load_encoder
from tapr.errors import BadInput
from tapr.gallery import layout
from tapr.gallery.block import PRECISIONS, Precision
from tapr.gallery.build import Progress, mean_local_vector, writer_lock
from tapr.gallery.catalog import Catalog
from tapr.gallery.changes import Changes
from tapr.gallery.layout import Manifest
from tapr.gallery.sources import find

_LOCK = ".lock"
_LEFT_BY_A_KILL = rf"\{_LOCK}|catalog(-\d+)?\.sqlite(-journal)?|\.{re.escape(layout.MANIFEST)}\.\w+"


@dataclass(frozen=True)
class Options:
    """What was asked of the bank; None is the default for a new gallery and "as it is" for an existing one."""

    encoder: str | Encoder | None = None
    precision: Precision | None = None
    extractor: str | None = None
    fit: str | None = None
    template: str | None = None
    centre: bool | None = None

    def __post_init__(self) -> None:
        if self.precision not in (None, *PRECISIONS):
            raise BadInput(f"unknown precision {self.precision!r}: choose {', '.join(PRECISIONS)}")
        for name, example in (("extractor", "clearclip"), ("fit", "crop"), ("template", "a photo of {}")):
            text_or_none(getattr(self, name), name, example)

    def check_against(self, folder: Path, manifest: Manifest) -> None:
        card = manifest.card
        centred = manifest.image_mean is not None
        encoder = self.encoder if isinstance(self.encoder, (str, type(None))) else self.encoder.card.name
        if encoder not in (None, card.name):
            encoder = card_name(encoder)
        pairs: list[tuple[str, Any, Any]] = [
            ("encoder", encoder, card.name),
            ("precision", self.precision, manifest.precision),
            ("extractor", self.extractor, card.extractor.removesuffix(SUFFIX)),
            ("fit", self.fit, card.fit),
            ("template", self.template, card.template),
            ("centring", self.centre, centred),
        ]
        for name, wanted, present in pairs:
            if wanted is not None and wanted != present:
                raise BadInput(
                    f"the gallery {str(folder)!r} was made with {name} {present!r}, not {wanted!r}:"
                    " leave the option out, or index into a new folder"
                )


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
    folder.mkdir(parents=True, exist_ok=True)
    with writer_lock(folder):  # what was true before may not be true any more
        if (folder / layout.MANIFEST).exists():
            return None
        _refuse_other_folder(folder)
        for item in folder.iterdir():
            if item.name != _LOCK:
                item.unlink()
        Catalog.create(layout.catalog_path(folder, 0)).close()
        Manifest(
            format_version=layout.FORMAT_VERSION,
            encoder=encoder.card.to_dict(),
            precision=options.precision or "fp16",
            shard_rows=layout.shard_rows_for(encoder.card),
            snapshot=0,
            **means,
        ).write(folder)
    return encoder


def _refuse_other_folder(folder: Path) -> None:
    """A folder is free when it is not there, is empty, or holds only what a run left that was killed at this point."""
    if not folder.exists():
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
    wanted = {"extractor": options.extractor, "fit": options.fit, "template": options.template}
    given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    return load_encoder(options.encoder or DEFAULT_ENCODER, say=progress.say, **given)
