"""Exports pictures: copies, links, a CSV list or a ZIP file. Existing files are never overwritten.

Names begin with the place in the order, 01-red.png, so that a folder shows the pictures as they were ranked. A folder
that holds something, and a file that is there, stay as they are: the export goes beside them, into found-2.

Copies and ZIP files are handed on, so the place where a photograph was taken is left out, unless it is asked for.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, get_args

from tapr.errors import BadInput, TaprError
from tapr.images.decode import BadImage, NoRoomToDecode, View, read_bytes, sha256_of
from tapr.images.location import without_location
from tapr.images.workers import decode_apart
from tapr.store.catalog import Entry

Kind = Literal["copy", "link", "csv", "zip"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LIST = "pictures.csv"  # the list inside a ZIP file
_NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]')  # characters that some system forbids in file names
_OF_THE_PLACE = {  # errors that another location would avoid; a full disk is not the user's mistake
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOENT, errno.EINVAL,
    errno.ENAMETOOLONG, errno.ELOOP,
}  # fmt: skip
_LONGEST_NAME = 150  # characters; file systems allow 255 bytes


@dataclass(frozen=True)
class Picture:
    """A picture to export. `columns` come before its metadata in the CSV."""

    id: str
    path: str
    sha256: str = ""  # of the indexed content; "": unknown
    columns: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, entry: Entry, **columns: Any) -> Picture:
        return cls(entry.id, entry.path, entry.sha256, columns, entry.metadata)


@dataclass(frozen=True)
class ExportResult:
    """The result of an export."""

    place: Path
    kind: Kind
    count: int
    missing: tuple[tuple[str, str], ...] = ()  # id and reason


def kind_of(place: str) -> Kind:
    """The kind that a file name implies: .csv, .zip, or else a folder of copies."""
    suffix = os.path.splitext(place)[1].lower()
    return "csv" if suffix == ".csv" else "zip" if suffix == ".zip" else "copy"


def export(pictures: Sequence[Picture], place: str | Path, kind: Kind, *, keep_location: bool = False) -> ExportResult:
    """Write to a new folder (copy, link) or a new file (csv, zip); the result says where, if the name was taken.

    `keep_location`: leave it in the files where a photograph was taken. Links lead to the originals in any case.
    """
    place = Path(place)
    try:
        if kind in ("copy", "link"):
            return _into_folder(pictures, _new_folder(place), kind, keep_location)
        place.parent.mkdir(parents=True, exist_ok=True)
        missing: list[tuple[str, str]] = []
        chunks = (
            [csv_of(pictures).encode()] if kind == "csv" else zip_of(pictures, missing, keep_location=keep_location)
        )
        with _new_file(place) as file:
            for chunk in chunks:
                file.write(chunk)
        return ExportResult(Path(file.name), kind, len(pictures) - len(missing), tuple(missing))
    except OSError as error:
        what = f"cannot write {str(error.filename or place)!r}: {(error.strerror or str(error)).lower()}"
        if error.errno in _OF_THE_PLACE:
            raise BadInput(f"{what}; name a place that can be written to") from None
        raise TaprError(f"{what}; mend that, or name another place") from None


def csv_of(pictures: Iterable[Picture], files: Sequence[str] | None = None) -> str:
    """One row per picture: rank, id, further columns, metadata. Lists and objects are written as JSON."""
    rows = []
    for number, picture in enumerate(pictures):
        row: dict[str, Any] = {"file": files[number]} if files is not None else {}
        row |= {"rank": number + 1, "id": picture.id, **picture.columns}
        rows.append(row | {name: value for name, value in picture.metadata.items() if name not in row})
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["rank", "id"]
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, names, lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return out.getvalue()


def zip_of(
    pictures: Sequence[Picture], missing: list[tuple[str, str]] | None = None, *, keep_location: bool = False
) -> Iterator[bytes]:
    """Stream a ZIP of the pictures' files and LIST. Unreadable files are left out and marked in LIST."""
    stream, names = _Pieces(), []
    moment = _zip_moment(time.localtime())
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, picture in zip(_file_names(pictures), pictures, strict=True):
            try:
                data = _original(picture, keep_location)
            except (BadImage, NoRoomToDecode) as error:
                names.append("")
                if missing is not None:
                    missing.append((picture.id, str(error)))
                continue
            names.append(name)
            archive.writestr(zipfile.ZipInfo(name, moment), data)
            yield stream.take()
        archive.writestr(zipfile.ZipInfo(LIST, moment), csv_of(pictures, names))
    yield stream.take()


def _zip_moment(now: time.struct_time) -> tuple[int, int, int, int, int, int]:
    """Return the time for files in a ZIP, which knows the years 1980 to 2107, whatever a clock says."""
    if now.tm_year < 1980:
        return 1980, 1, 1, 0, 0, 0
    if now.tm_year > 2107:
        return 2107, 12, 31, 23, 59, 58
    return now[:6]


def _into_folder(pictures: Sequence[Picture], folder: Path, kind: Kind, keep_location: bool) -> ExportResult:
    missing = []
    for name, picture in zip(_file_names(pictures), pictures, strict=True):
        try:
            if kind == "link":
                _link(picture, folder / name)
            else:
                data = _original(picture, keep_location)
                with _new_file(folder / name) as file:
                    file.write(data)
                shutil.copystat(picture.path, file.name)
        except (FileNotFoundError, BadImage) as error:
            missing.append((picture.id, str(error) if os.path.lexists(picture.path) else "its file is gone"))
    return ExportResult(folder, kind, len(pictures) - len(missing), tuple(missing))


def _link(picture: Picture, name: Path) -> None:
    if not os.path.exists(picture.path):
        raise FileNotFoundError(picture.path)
    try:
        os.symlink(picture.path, name)
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"cannot make links in {str(name.parent)!r} ({reason}): use --as copy") from None


def _new_folder(place: Path) -> Path:
    """The folder of this name if it is empty or not there yet; otherwise the next of found-2, found-3, ..."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not any(place.iterdir()):
        return place
    if place.exists() and not place.is_dir():
        raise FileExistsError(errno.EEXIST, "it is a file, not a folder", str(place))
    while True:
        folder = place.with_name(_free(place.name, lambda name: os.path.lexists(place.with_name(name)), folder=True))
        with contextlib.suppress(FileExistsError):  # another program created it first
            folder.mkdir()
            return folder


@contextlib.contextmanager
def _new_file(place: Path) -> Iterator[BinaryIO]:
    """A new file, open for writing. Fails if it exists; removed if writing fails."""
    file = _opened(place)
    try:
        with file:
            yield file
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            os.unlink(file.name)
        raise


def _opened(place: Path) -> BinaryIO:
    while True:
        name = _free(place.name, lambda name: os.path.lexists(place.with_name(name)))
        with contextlib.suppress(FileExistsError):  # another program created it first
            return open(place.with_name(name), "xb")


def _free(name: str, is_taken: Callable[[str], bool], *, folder: bool = False) -> str:
    """red.png, red-2.png, red-3.png"""
    stem, suffix = (name, "") if folder else os.path.splitext(name)
    number = 1
    while is_taken(name):
        number += 1
        name = f"{stem}-{number}{suffix}"
    return name


def _file_names(pictures: Sequence[Picture]) -> list[str]:
    digits = max(2, len(str(len(pictures))))
    return [f"{number:0{digits}}-{_file_name(picture)}" for number, picture in enumerate(pictures, 1)]


def _file_name(picture: Picture) -> str:
    """A safe file name: the last part of the id, with the file's suffix."""
    name = _NOT_IN_NAMES.sub("_", PurePosixPath(picture.id.replace("\\", "/")).name).strip(". ")
    suffix = os.path.splitext(picture.path)[1]
    stem = name[: -len(suffix)] if suffix and name.lower().endswith(suffix.lower()) else name
    stem = stem.encode(errors="replace").decode()[:_LONGEST_NAME]
    return (stem or "picture") + _NOT_IN_NAMES.sub("_", suffix)


def _original(picture: Picture, keep_location: bool) -> bytes:
    """Read a picture's file; refuse one that was neither indexed nor can be decoded."""
    data = read_bytes(picture.path)
    if not picture.sha256 or sha256_of(data) != picture.sha256:
        decode_apart(data, [View(1, longest=1)])
    return data if keep_location else without_location(data)


def _cell(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value


class _Pieces(io.RawIOBase):
    """A write-only stream whose content is taken out in pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._data += data
        return len(data)

    def take(self) -> bytes:
        out, self._data = bytes(self._data), bytearray()
        return out
