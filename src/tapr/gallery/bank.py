"""Gallery: the evidence bank of a set of pictures, opened, filtered and read in blocks."""

from __future__ import annotations

import copy
import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.arguments import encoder_of, folder_of, sources_of
from tapr.encoders.base import Encoder, EncoderCard
from tapr.encoders.centred import Centring
from tapr.encoders.registry import load_for_card, refuse_other
from tapr.errors import BadInput
from tapr.gallery import layout, where
from tapr.gallery.block import Block, Precision
from tapr.gallery.build import Progress, Report, Silent, run_index, writer_lock
from tapr.gallery.catalog import Catalog, Entry
from tapr.gallery.create import Options, create
from tapr.gallery.layout import Manifest
from tapr.gallery.shards import ShardReader
from tapr.gallery.sources import resolve


class Gallery:
    """Pictures and their evidence. `Gallery.build(...)` makes or updates one, `Gallery.open(...)` reads one."""

    rows: NDArray[np.int64]  # (N,) the physical row of each picture, in gallery order
    report: Report | None = None  # of the index run that `build` made

    def __init__(self, path: str | Path, encoder: Encoder | None = None) -> None:
        self.path = path = folder_of(path)
        self.manifest = Manifest.read(path)
        self._catalog = Catalog(path / layout.CATALOG)
        if encoder is not None:
            if isinstance(encoder_of(encoder), str):
                raise BadInput("a gallery names its own encoder: leave it out, or give the loaded encoder itself")
            refuse_other(self.manifest.card, encoder.card)
            self.__dict__["encoder"] = encoder  # fills the cached property below
        self._reload()

    @classmethod
    def open(cls, path: str | Path, *, encoder: Encoder | None = None) -> Gallery:
        return cls(path, encoder)

    @classmethod
    def build(
        cls,
        path: str | Path,
        images: str | Path | Iterable[str | Path],
        encoder: str | Encoder | None = None,
        precision: Precision | None = None,
        *,
        extractor: str | None = None,
        fit: str | None = None,
        template: str | None = None,
        centre: bool | None = None,
        progress: Progress | None = None,
    ) -> Gallery:
        """Index pictures into the folder `path`, or bring it up to date with them; `report` tells what was done."""
        folder, progress = folder_of(path), progress or Silent()
        sources = [resolve(image) for image in sources_of(images)]
        encoder = encoder_of(encoder)
        options = Options(encoder, precision, extractor, fit, template, centre)
        loaded: Encoder | None = encoder if isinstance(encoder, Encoder) else None
        if (folder / layout.MANIFEST).exists():
            options.check_against(folder, Manifest.read(folder))
        else:
            if not sources:
                raise BadInput(
                    f"there is no gallery {str(folder)!r} yet and no pictures were named: say which to index"
                )
            for source in sources:
                _check_exists(source)
            loaded = create(folder, sources, options, progress)
        gallery = cls(folder, loaded)
        gallery.report = gallery.sync(sources, progress=progress)
        return gallery

    def sync(self, images: str | Path | Iterable[str | Path] = (), *, progress: Progress | None = None) -> Report:
        """Follow the files: add new ones, drop deleted ones, keep renamed ones; resumes an interrupted run."""
        with writer_lock(self.path), self._catalog.undone_on_error():
            sources: list[str] = self._catalog.get_state("sources", [])
            sources += [source for source in map(resolve, sources_of(images)) if source not in sources]
            for source in sources:
                _check_exists(source)
            self._catalog.set_state("sources", sources)
            report = run_index(self.path, self.manifest, self._catalog, lambda: self.encoder, progress or Silent())
        self._reload()
        return report

    # what is in it

    @property
    def card(self) -> EncoderCard:
        return self.manifest.card

    @property
    def precision(self) -> Precision:
        return self.manifest.precision

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder this bank was made with; loaded when first needed, refused when its weights differ."""
        image_mean, text_mean = self.manifest.image_mean, self.manifest.text_mean
        if image_mean is None or text_mean is None:
            return load_for_card(self.card)
        means = Centring(np.array(image_mean, np.float32), np.array(text_mean, np.float32))
        return load_for_card(self.card, means)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<Gallery {str(self.path)!r}: {len(self):,} pictures, {self.card.name}, {self.precision}>"

    def ids(self) -> list[str]:
        return [entry.id for entry in self.entries(np.arange(len(self)))]

    def entries(self, positions: Sequence[int] | NDArray[np.int64]) -> list[Entry]:
        """Catalogue entries of the pictures at these gallery positions."""
        return self._catalog.by_keys(self._keys[np.asarray(positions, np.int64)].tolist())

    def find(self, id_: str) -> Entry | None:
        entry = self._catalog.by_id(id_)
        return entry if entry is not None and entry.row is not None else None

    def position_of(self, id_: str) -> int:
        entry = self.find(id_)
        if entry is None:
            raise BadInput(f"the gallery has no picture with the id {id_!r}")
        return int(np.flatnonzero(self._keys == entry.key)[0])

    def positions_of(self, sha256: str) -> NDArray[np.int64]:
        """Positions of the pictures with this content."""
        keys = [entry.key for entry in self._catalog.by_sha256(sha256) if entry.key is not None]
        return np.flatnonzero(np.isin(self._keys, keys))

    def failures(self) -> list[Entry]:
        return self._catalog.failures()

    def sources(self) -> list[str]:
        return list(self._catalog.get_state("sources", []))

    def metadata_keys(self) -> list[str]:
        return self._catalog.metadata_keys()

    def select(self, condition: str) -> Gallery:
        """The same bank, narrowed to the pictures that meet a `where` condition."""
        sql, parameters = where.to_sql(condition)
        view = copy.copy(self)
        view._keys, view.rows = self._catalog.rows_in_order(sql, parameters)
        return view

    # the evidence

    @property
    def row_count(self) -> int:
        return self._shards.rows

    @property
    def stored(self) -> object:
        """The same object as long as the stored rows are the same; `select` keeps it, an index run does not."""
        return self._shards

    def blocks(self) -> Iterator[Block]:
        """Every physical row once, in order, as views of the mapped files."""
        for start, stop in self._shards.spans():
            yield _block(start, self._shards.parts(start, stop))

    def gather(self, rows: NDArray[np.int64]) -> Block:
        """Copies of these physical rows, in this order."""
        return _block(0, self._shards.gather_parts(rows))

    def _reload(self) -> None:
        self.manifest = Manifest.read(self.path)
        self._keys, self.rows = self._catalog.rows_in_order()
        generation, rows = self._catalog.generation(), self._catalog.rows_committed()
        self._shards = ShardReader(self.path, self.manifest, generation, rows)


def _block(start: int, parts: dict[str, NDArray[Any]]) -> Block:
    return Block(
        start=start,
        global_vectors=parts[layout.GLOBAL],
        local_vectors=parts.get(layout.LOCAL),
        local_codes=parts.get(layout.CODES),
        local_scales=parts.get(layout.SCALES),
        local_errors=parts.get(layout.ERRORS),
    )


def _check_exists(source: str) -> None:
    """A folder that is not there may be a drive that is not plugged in: its pictures are not forgotten for that."""
    if not os.path.exists(source) and not glob.has_magic(source):
        raise BadInput(f"there is no file or folder {source!r}: check the path; nothing was changed")
