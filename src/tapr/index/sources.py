"""Finding the pictures of a gallery: folders, globs, lists, tables with metadata columns."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.images.decode import looks_like_picture
from tapr.index.ids import hidden_id
from tapr.index.tables import LISTS, TABLES, Row, read_list, read_table
from tapr.store import uploads
from tapr.store.columns import ColumnType
from tapr.store.layout import MANIFEST


@dataclass(frozen=True)
class Candidate:
    """A file that may be a picture of the gallery."""

    id: str
    path: str  # absolute
    metadata: dict[str, Any] = field(default_factory=dict)
    source: str = ""  # the one that named it first


@dataclass
class Found:
    """Files that the sources name, and what could not be read."""

    candidates: list[Candidate] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # files beside the pictures that are none
    left_out: list[tuple[str, str]] = field(default_factory=list)  # what may hold pictures and was not read, and why
    unreadable: list[str] = field(default_factory=list)  # folders that could not be listed: not empty, but unknown
    empty: dict[str, str] = field(default_factory=dict)  # sources that gave no picture, and why
    declared: dict[str, ColumnType] = field(default_factory=dict)  # types that headers of tables declare

    def cannot_list(self, folder: str, error: OSError) -> None:
        self.unreadable.append(folder)
        reason = (error.strerror or str(error)).lower()
        self.left_out.append((folder, f"cannot be listed ({reason}): pictures known from there are kept"))

    def leave_out(self, hidden: Collection[str]) -> set[str]:
        """Files whose pictures were deleted or replaced one by one. -> those that stay so: a file that is gone, and
        comes back, is a new picture."""
        paths = {candidate.path for candidate in self.candidates}
        self.candidates = [candidate for candidate in self.candidates if candidate.path not in hidden]
        folders = tuple(os.path.join(folder, "") for folder in self.unreadable)
        return {path for path in hidden if path in paths or self.empty or path.startswith(folders)}

    def with_unique_ids(self, taken: Collection[str]) -> list[Candidate]:
        """The candidates, each with an id of its own; `taken` are ids of pictures that stay without being found."""
        used = set(taken)
        out = []
        for candidate in self.candidates:
            unique = _unique_id(candidate, used)
            used.add(unique)
            out.append(replace(candidate, id=unique))
        return out


def resolve(source: str | Path) -> str:
    """A source as it is remembered: absolute, so that a later sync from another folder finds it again."""
    return os.path.abspath(os.path.expanduser(str(source)))


def find(
    sources: Iterable[str], declared: Mapping[str, ColumnType] | None = None, folders: Collection[str] = ()
) -> Found:
    """All candidates in a stable order; each file once. A source that gives none is named, with the reason.

    `folders` are sources that were folders with pictures before: one that is a file now gives none.
    """
    found = Found()
    by_path: dict[str, int] = {}
    for source in sources:
        if source in folders and os.path.isfile(source):
            found.empty[source] = f"{source!r} was a folder and is a file now"
            continue
        before = len(by_path), len(found.unreadable)
        named = 0
        for row in _expand(source, found, declared or {}):
            named += 1
            metadata = {**_folder_of(row.path, source), **row.metadata}
            if row.path in by_path:  # the same file from two sources: the later one's metadata wins
                index = by_path[row.path]
                known = found.candidates[index]
                found.candidates[index] = replace(known, metadata={**known.metadata, **metadata})
                continue
            by_path[row.path] = len(found.candidates)
            found.candidates.append(Candidate(row.id, row.path, metadata, source))
        if not named and before == (len(by_path), len(found.unreadable)):
            found.empty.setdefault(source, _why_empty(source))
    return found


def _folder_of(path: str, source: str) -> dict[str, str]:
    """Return the column `folder`: where in the source's folder the file is; none for files of that folder itself."""
    below = os.path.join(source, "")
    folder = os.path.dirname(path[len(below) :]) if path.startswith(below) else ""
    return {"folder": folder.replace(os.sep, "/")} if folder else {}


def _why_empty(source: str) -> str:
    if os.path.isdir(source):
        return f"there are no pictures in the folder {source!r}"
    if os.path.exists(source):
        return f"{source!r} names no pictures"
    if glob.has_magic(source):
        return f"no file matches {source!r}"
    return f"there is no file or folder {source!r}"


def _expand(source: str, found: Found, declared: Mapping[str, ColumnType]) -> Iterator[Row]:
    path = Path(source)
    if os.path.isdir(source):  # those of pathlib raise for a name that is too long
        yield from _folder(path, found)
    elif os.path.isfile(source) and not _is_utf8(source):
        found.left_out.append(_badly_named(source))
    elif os.path.isfile(source):
        if path.suffix.lower() in TABLES:
            rows, own = read_table(path, declared)
            found.declared |= own
            yield from rows
        elif path.suffix.lower() in LISTS:
            yield from read_list(path)
        else:
            yield Row(path.name, str(path))
    elif glob.has_magic(source):
        matches = sorted(match for match in glob.glob(source, recursive=True) if os.path.isfile(match))
        if matches:
            root = os.path.commonpath([os.path.dirname(match) for match in matches])
        for match in matches:
            if _is_utf8(match):
                yield Row(Path(match).relative_to(root).as_posix(), match)
            else:
                found.left_out.append(_badly_named(match))


def _folder(root: Path, found: Found) -> Iterator[Row]:
    def unreadable(error: OSError) -> None:
        found.cannot_list(str(error.filename), error)

    # os.walk does not follow links to folders: a loop of links never ends
    for folder, folders, files in os.walk(root, onerror=unreadable):
        folders[:] = list(_followed(folder, folders, found))
        for name in sorted(files):
            path = Path(folder, name)
            if name.startswith("."):
                continue
            if not _is_utf8(str(path)):
                found.left_out.append(_badly_named(str(path)))
            elif looks_like_picture(path):
                yield Row(path.relative_to(root).as_posix(), str(path))
            else:
                found.skipped.append(str(path))


def _followed(folder: str, names: Iterable[str], found: Found) -> Iterator[str]:
    for name in sorted(names):
        path = os.path.join(folder, name)
        if name.startswith(".") or (name == uploads.FOLDER and os.path.exists(os.path.join(folder, MANIFEST))):
            continue  # the latter: what a gallery in this folder keeps for itself
        if not _is_utf8(path):
            found.left_out.append(_badly_named(path))
        elif os.path.islink(path):
            target = os.path.realpath(path)
            found.left_out.append((path, f"is a link to a folder, which is not followed: index {target!a} too"))
        else:
            yield name


def _badly_named(path: str) -> tuple[str, str]:
    return ascii(path)[1:-1], "has a name that is not UTF-8: rename it"  # the catalogue stores paths as text


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unique_id(candidate: Candidate, taken: Collection[str]) -> str:
    """Two folders may hold the same names: the second one's ids begin with its folder's name, or with its hash."""
    for name in (candidate.id, f"{Path(candidate.source).name}/{candidate.id}", hidden_id(candidate.path)):
        if name not in taken:
            return name
    raise BadInput(f"two pictures have the id {candidate.id!r}: give each its own in the id column")
