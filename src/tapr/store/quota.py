"""Quotas: how many pictures and bytes a gallery may hold, and which writes would exceed that."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.store import uploads
from tapr.store.catalog import Catalog, Entry
from tapr.store.layout import Manifest
from tapr.store.saved_searches import SavedSearchFile
from tapr.store.write_operations import Delete, Operation, Put

_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


class QuotaExceeded(BadInput):
    """A write for which the gallery has no room."""

    code = "quota_exceeded"


@dataclass(frozen=True)
class Usage:
    """`bytes`: of the files that were put over HTTP, of vectors and metadata of all pictures, and of saved searches."""

    pictures: int = 0
    bytes: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.pictures + other.pictures, self.bytes + other.bytes)

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.pictures - other.pictures, self.bytes - other.bytes)

    @classmethod
    def of(cls, catalog: Catalog, manifest: Manifest) -> Usage:
        pictures, size = catalog.sizes(uploads.SOURCE)
        return cls(pictures, size + pictures * manifest.row_bytes())

    def with_searches(self, folder: Path) -> Usage:
        """Add the saved searches, which change without a new snapshot."""
        return self + Usage(0, SavedSearchFile(folder).size())


@dataclass(frozen=True)
class Quota:
    """None: no limit."""

    pictures: int | None = None
    bytes: int | None = None

    @classmethod
    def parse(cls, text: str) -> Quota:
        """5000, 2GB, or both: 5000,2GB"""
        found: dict[str, int] = {}
        for part in text.split(","):
            match = re.fullmatch(r"([1-9]\d{0,14})([kmgt]b)?", part.strip().lower())
            kind = "bytes" if match and match[2] else "pictures"
            if not match or kind in found:
                raise BadInput(
                    f"a quota is written like 5000 (pictures), 2GB (or kB, MB, TB), or 5000,2GB for both, not {text!r}"
                )
            found[kind] = int(match[1]) * _UNITS.get(match[2] or "", 1)
        return cls(**found)

    def refusals(
        self, operations: Sequence[Operation], catalog: Catalog, manifest: Manifest
    ) -> dict[int, QuotaExceeded]:
        """Which operations have no room, by their index: each is looked at after those before it.

        What makes a gallery smaller is never among them. An operation that will be refused for another reason counts
        as done, so that one after it may be told to try again later.
        """
        used, row_bytes = Usage.of(catalog, manifest).with_searches(catalog.folder), manifest.row_bytes()
        pictures = {order.id: _Picture.of(catalog.by_id(order.id)) for order in operations}
        refused: dict[int, QuotaExceeded] = {}
        for i, order in enumerate(operations):
            before = pictures[order.id]
            if isinstance(order, Delete):
                after = None
            elif before is None and order.content is None:
                continue  # metadata of a picture that is not there
            else:
                after = (before or _Picture(0, True, _length({}))).after(order)
            more = _usage(after, row_bytes) - _usage(before, row_bytes)
            sentence = self._exceeded(used, more)
            if sentence:
                refused[i] = QuotaExceeded(sentence)
            else:
                pictures[order.id], used = after, used + more
        return refused

    def check_saved(self, before: Usage, file: SavedSearchFile, size: int) -> None:
        """Refuse saved searches that grow to `size` bytes where there is no room. `before`: with the file as it is."""
        sentence = self._exceeded(before, Usage(0, size - file.size()))
        if sentence:
            raise QuotaExceeded(sentence)

    def _exceeded(self, used: Usage, more: Usage) -> str:
        for unit, limit, has, adds in (
            ("pictures", self.pictures, used.pictures, more.pictures),
            ("bytes", self.bytes, used.bytes, more.bytes),
        ):
            if limit is not None and adds > 0 and has + adds > limit:
                return (
                    f"the gallery may hold {limit:,} {unit} and has {has:,}, so that {adds:,} more do not fit:"
                    " delete pictures, or ask whoever runs the server for a larger quota"
                )
        return ""


@dataclass(frozen=True)
class _Picture:
    size: int  # of its file
    is_upload: bool  # files of sources do not count
    metadata: int  # bytes

    @classmethod
    def of(cls, entry: Entry | None) -> _Picture | None:
        if entry is None or entry.row is None:
            return None
        return cls(entry.size, entry.source == uploads.SOURCE, _length(entry.metadata))

    def after(self, order: Put) -> _Picture:
        """A picture of a source becomes an upload, also where only its metadata is replaced."""
        size = self.size if order.content is None else len(order.content.data)
        return _Picture(size, True, self.metadata if order.metadata is None else _length(order.metadata))


def _usage(picture: _Picture | None, row_bytes: int) -> Usage:
    if picture is None:
        return Usage()
    return Usage(1, (picture.size if picture.is_upload else 0) + row_bytes + picture.metadata)


def _length(metadata: Mapping[str, Any]) -> int:
    return len(json.dumps(dict(metadata), ensure_ascii=False, sort_keys=True).encode())
