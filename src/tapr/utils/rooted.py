"""Opens, writes, lists and deletes files below a root folder, so that no name and no link leads out of it.

Each part of a path is opened from the folder before it (`openat`) and never through a link (`O_NOFOLLOW`). What was
opened is checked then, not what the path named a moment before. Windows has no such calls: there each part is looked
at just before it is used, so a link that another program creates in between would be followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any

from tapr.errors import TaprError

_BY_HANDLE = {os.open, os.mkdir, os.unlink, os.rename, os.stat} <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_CLOSED_ON_EXEC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# without waiting: a named pipe that nobody writes to would hold the caller for ever
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _CLOSED_ON_EXEC
_UNLINKED = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _CLOSED_ON_EXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _UNLINKED | _CLOSED_ON_EXEC
_SEPARATORS = "/\0" if os.name != "nt" else '/\0\\:<>"|?*'
_Place = Any  # an open folder: its handle, or its path where the system has no calls by handle


class OutsideFolder(TaprError):
    """A path that leads out of the folder that it must stay in."""

    exit_code = 2
    code = "outside_folder"


class NotRegular(OSError):
    """A folder, named pipe or device where a file was expected."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(errno.EINVAL, "not a regular file", str(path))


class Root:
    """A folder, and the files below it by names such as `uploads/ab/x.png`. Only links above it are followed."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def open(self, name: str) -> BufferedReader:
        """Open a regular file to read it."""
        with self._folder_of(name) as (place, last):
            return _regular(self._call(os.open, place, last, _READ | _UNLINKED, path=name), self.folder / name)

    def size(self, name: str) -> int | None:
        """Return the size of a regular file; None if there is none."""
        with contextlib.suppress(FileNotFoundError, NotRegular), self.open(name) as file:
            return os.fstat(file.fileno()).st_size
        return None

    def create(self, name: str) -> BufferedWriter:
        """Create a file and open it for writing; refuse a name that is taken, by a link too."""
        with self._folder_of(name) as (place, last):
            return open(self._call(os.open, place, last, _CREATE, 0o666, path=name), "wb")

    def write(self, name: str, chunks: Iterable[bytes]) -> int:
        """Write a file in one step, with the folders that it needs, and return its size.

        Readers see the old content or the new content. It is on the disk when this returns, and survives a power cut.
        """
        with self._folder_of(name, make=True) as (place, last):
            new = f".{last}.{secrets.token_hex(4)}"
            try:
                with open(self._call(os.open, place, new, _CREATE, 0o666, path=name), "wb") as file:
                    for chunk in chunks:
                        file.write(chunk)
                    file.flush()
                    os.fsync(file.fileno())
                    size = file.tell()
                self._replace(place, new, last)
            except BaseException as error:
                with contextlib.suppress(OSError):  # report the first error
                    self._call(os.unlink, place, new, path=name)
                if isinstance(error, OSError):  # name the final file in the error, not the temporary one
                    error.filename, error.filename2 = str(self.folder / name), None
                raise
            _sync(place)
        return size

    def rename(self, name: str, new: str) -> None:
        """Give a file another name in the same folder, durably, in place of what had it."""
        with self._folder_of(name) as (place, last):
            self._replace(place, last, new)
            _sync(place)

    def delete(self, name: str) -> None:
        """Delete a file, or a link itself. One that is not there is no error."""
        with contextlib.suppress(FileNotFoundError), self._folder_of(name) as (place, last):
            self._call(os.unlink, place, last, path=name)

    def files(self, below: str = "") -> list[str]:
        """Return the names of what is in a folder and is no folder, links too, in order."""
        return self._names(below, folders=False)

    def folders(self, below: str = "") -> list[str]:
        """Return the names of the folders in a folder, without links to folders, in order."""
        return self._names(below, folders=True)

    def _names(self, below: str, *, folders: bool) -> list[str]:
        with contextlib.suppress(FileNotFoundError), self._folder(_parts(below)) as place, os.scandir(place) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False) == folders)
        return []

    @contextlib.contextmanager
    def _folder_of(self, name: str, *, make: bool = False) -> Iterator[tuple[_Place, str]]:
        *parts, last = _parts(name) or [""]
        if not last:
            raise OutsideFolder(f"{name!r} names no file in {self.folder}")
        with self._folder(parts, make=make) as place:
            yield place, last

    @contextlib.contextmanager
    def _folder(self, parts: list[str], *, make: bool = False) -> Iterator[_Place]:
        path = str(self.folder)
        place: _Place = os.open(path, _FOLDER) if _BY_HANDLE else path
        try:
            for part in parts:
                path = os.path.join(path, part)
                if make:
                    with contextlib.suppress(FileExistsError):
                        self._call(os.mkdir, place, part, path=path)
                    _sync(place)  # also one that another process created, and may not have synchronised
                inner = self._call(os.open, place, part, _FOLDER | _UNLINKED, path=path) if _BY_HANDLE else path
                if not _BY_HANDLE:
                    self._refuse_link(path)
                _close(place)
                place = inner
            yield place
        finally:
            _close(place)

    def _call(self, function: Any, place: _Place, last: str, *values: Any, path: str) -> Any:
        try:
            if _BY_HANDLE:
                return function(last, *values, dir_fd=place)
            if function is os.open:
                self._refuse_link(os.path.join(place, last))
            return function(os.path.join(place, last), *values)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                raise self._behind_link(path) from None
            error.filename = str(self.folder / path)
            raise

    def _replace(self, place: _Place, old: str, new: str) -> None:
        if _BY_HANDLE:
            os.replace(old, new, src_dir_fd=place, dst_dir_fd=place)
        else:
            os.replace(os.path.join(place, old), os.path.join(place, new))

    def _refuse_link(self, path: str) -> None:
        if os.path.islink(path) or getattr(os.path, "isjunction", os.path.islink)(path):
            raise self._behind_link(path)

    def _behind_link(self, path: str) -> OutsideFolder:
        return OutsideFolder(f"{str(self.folder / path)!r} is a link, or behind one, which is not followed")


def open_regular(path: str | Path) -> BufferedReader:
    """Open a file that is named by the user, through links where they lead to a regular file."""
    return _regular(os.open(path, _READ), path)


def without_following(path: str, flags: int) -> int:
    """Open a file as `opener` of the built-in open, and refuse a link."""
    try:
        return os.open(path, flags | _UNLINKED, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise OutsideFolder(f"{str(path)!r} is a link, which is not followed") from None
        raise


def _regular(handle: int, path: str | Path) -> BufferedReader:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotRegular(path)
    return open(handle, "rb")


def _parts(name: str) -> list[str]:
    parts = name.split("/") if name else []
    if any(part in ("", ".", "..") or any(character in part for character in _SEPARATORS) for part in parts):
        raise OutsideFolder(f"{name[:200]!r} leads out of the folder that it must stay in")
    return parts


def _sync(place: _Place) -> None:
    """Make new names in a folder survive a power cut. Ignored where the system cannot do that for folders."""
    if _BY_HANDLE:
        with contextlib.suppress(OSError):
            os.fsync(place)


def _close(place: _Place) -> None:
    if _BY_HANDLE:
        os.close(place)
