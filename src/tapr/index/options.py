"""IndexOptions: one index run, whoever asks for it. Every option has its type, default and description here, once.

The library, the command line and Ray take their options from this file: to add one, add a field, and use it where the
run does (run.py). docs/extending.md has an example.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, PlainValidator

from tapr.encoders.arithmetic import ARITHMETICS, asked_for
from tapr.encoders.base import Encoder
from tapr.encoders.centred import SUFFIX
from tapr.encoders.extractors import EXTRACTORS, extractor_of
from tapr.encoders.registry import DEFAULT_ENCODER, card_name, encoder_of, load_encoder, refuse_other
from tapr.errors import BadOption
from tapr.images.frame import FITS, Frame
from tapr.index.sources import resolve
from tapr.store.block import Precision
from tapr.store.columns import AUTO, COLUMN_TYPES, declared_type
from tapr.store.layout import Manifest
from tapr.utils.arguments import shown_value
from tapr.utils.option_model import OptionModel, option
from tapr.utils.progress import Progress


def paths_of(value: object, name: str) -> tuple[str, ...]:
    """Return one path or several as texts."""
    several = [value] if isinstance(value, (str, os.PathLike)) else value
    if isinstance(several, (bytes, Mapping)) or not isinstance(several, Iterable) or hasattr(several, "read"):
        what = f"{name} must be a folder, file, glob or table, or a list of them, not {shown_value(value)}"
        raise BadOption(what, name)
    paths: list[str] = []
    for path in several:
        if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
            what = f"{name} are named by their paths, not by {shown_value(path)}: save the pictures to files first"
            raise BadOption(what, name)
        paths.append(os.fspath(path))
    return tuple(paths)


def _images(value: object) -> tuple[str, ...]:
    return tuple(map(resolve, paths_of(value, "images")))


def _drop(value: object) -> tuple[str, ...]:
    return paths_of(value, "drop")


def _move(value: object) -> tuple[tuple[str, str], ...]:
    pairs = value.items() if isinstance(value, Mapping) else value
    try:
        return tuple((str(old), str(new)) for old, new in pairs)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        what = f"move must be pairs of an old and a new source, not {shown_value(value)}"
        raise BadOption(what, "move") from None


def _columns(value: object) -> Mapping[str, str]:
    """{"price": "number"}, or texts such as price=number."""
    if not isinstance(value, Mapping):
        texts = value if isinstance(value, (list, tuple)) else [value]
        value = dict(_column(text) for text in texts)
    for name, type_ in value.items():
        if type_ != AUTO:
            declared_type(name, type_)
    return dict(value)


def _column(text: object) -> tuple[str, str]:
    name, sign, type_ = text.rpartition("=") if isinstance(text, str) else ("", "", "")
    if not sign or not name:
        what = f"cannot read the column {shown_value(text)}: write it as NAME=TYPE, such as price=number"
        raise BadOption(what, "columns")
    if type_ not in (*COLUMN_TYPES, AUTO):
        what = f"the column {name!r} cannot be a {type_!r}: choose {', '.join(COLUMN_TYPES)} or {AUTO}"
        raise BadOption(what, "columns")
    return name, type_


class IndexOptions(OptionModel):
    """An index run: the sources, what a new gallery is made with, and what the run does beside its work.

    None is the default for a new gallery, and "as before" for an existing one.
    """

    images: Annotated[tuple[str, ...], PlainValidator(_images)] = option(
        (), "Folders, files, globs, lists, or CSV or JSONL tables with metadata."
    )
    drop: Annotated[tuple[str, ...], PlainValidator(_drop)] = option(
        (), "Forget a source; its pictures leave the gallery."
    )
    move: Annotated[tuple[tuple[str, str], ...], PlainValidator(_move)] = option(
        (), "A source has moved; unchanged pictures are not encoded again."
    )
    encoder: Annotated[Any, PlainValidator(encoder_of)] = option(
        None, "clip-b16 (default), open_clip:MODEL/TAG, ...; see tapr models list."
    )
    precision: Precision | None = option(
        None,
        "How local vectors are stored: fp16 (default), int8 (half the size, approximate), both (faster, exact).",
    )
    extractor: Annotated[str | None, AfterValidator(lambda name: name and extractor_of(name).name)] = option(
        None, "How local vectors are read; default clearclip.", choices=EXTRACTORS
    )
    fit: Annotated[str | None, AfterValidator(lambda fit: fit and Frame(1, fit).fit)] = option(
        None, "crop the middle square (default), pad the whole, ...", choices=FITS
    )
    template: str | None = option(
        None, 'A sentence around every phrase, such as "a photo of {}"; default the plain phrase.'
    )
    centre: bool | None = option(None, "Subtract mean vectors before matching; recorded in the bank.")
    arithmetic: Annotated[str | None, AfterValidator(asked_for)] = option(
        None,
        "In which numbers clip-b16 computes: int8-rows (default), or float16 (on a GPU).",
        choices=ARITHMETICS,
    )
    columns: Annotated[Mapping[str, str], PlainValidator(_columns)] = option(
        {}, "The type of a metadata column: number, boolean, date or text; auto infers it from its values again."
    )
    captions: bool | None = option(
        None, "Describe all pictures that have no caption, or no more of them. By default clip-b16 describes new ones."
    )
    exif: bool | None = option(
        None, "Read date, camera, place, rating and keywords of photographs (EXIF, XMP, IPTC; default), or do not."
    )
    device: str | None = option(
        None,
        "Encode on these devices, a process for each: cuda:0,cuda:1, or all GPUs: all. Default: one GPU, or the CPU.",
    )
    first_stage: bool | None = option(
        None,
        "Summarise pictures so that searches read few of them, or never do. By default from 10,000 pictures on.",
    )
    rehash: bool = option(False, "Read every file: finds changes that left size and time as they were.")
    wait: float | None = option(None, "Seconds to wait for another writer to end.")

    def check_against(self, folder: Path, manifest: Manifest) -> None:
        """Refuse what would change the vectors of an existing gallery."""
        card = manifest.card
        encoder = self.encoder.card.name if isinstance(self.encoder, Encoder) else self.encoder
        if encoder not in (None, card.name):
            encoder = card_name(encoder)
        pairs: list[tuple[str, Any, Any]] = [
            ("encoder", encoder, card.name),
            ("precision", self.precision, manifest.precision),
            ("extractor", self.extractor, card.extractor.removesuffix(SUFFIX)),
            ("fit", self.fit, card.fit),
            ("template", self.template, card.template),
            ("centring", self.centre, manifest.image_mean is not None),
            ("arithmetic", self.arithmetic, card.arithmetic),
        ]
        for name, wanted, present in pairs:
            if wanted is not None and wanted != present:
                what = (
                    f"the gallery {str(folder)!r} was made with {name} {present!r}, not {wanted!r}:"
                    " leave the option out, or index into a new folder"
                )
                raise BadOption(what, name)
        if isinstance(self.encoder, Encoder):
            refuse_other(card, self.encoder.card)

    def new_encoder(self, progress: Progress) -> Encoder:
        """Return the encoder that a new gallery is made with, before it is centred."""
        if isinstance(self.encoder, Encoder):
            return self.encoder
        wanted = {name: getattr(self, name) for name in ("extractor", "fit", "template", "arithmetic")}
        given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
        return load_encoder(self.encoder or DEFAULT_ENCODER, say=progress.say, **given)
