"""Keep a gallery fresh: after changes of its files it is synced, as `tapr index` does."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from tapr.errors import BadInput, TaprError
from tapr.index.report import Report
from tapr.index.tables import LISTS, TABLES
from tapr.utils.extras import install_hint
from tapr.utils.progress import Progress

if TYPE_CHECKING:
    from tapr.gallery import Gallery

SETTLE_SECONDS = 1.0
_LONGEST = 20  # settling times that a run waits at most, where changes never end
_RETRY_SECONDS = 2.0  # until the next try of a run that could not be made


@dataclass
class Summary:
    """Counts of what was done while a gallery was watched."""

    runs: int = 0  # syncs that changed something
    encoded: int = 0
    shared: int = 0  # new files whose content was in the gallery already
    removed: int = 0
    renamed: int = 0
    troubles: int = 0  # runs that could not be made, each tried again

    def add(self, report: Report) -> None:
        self.runs += 1
        self.encoded += report.encoded
        self.shared += report.shared
        self.removed += report.removed
        self.renamed += report.renamed


class Watcher:
    """Syncs once when it starts, then after every change; `tell` hears of runs that changed something."""

    def __init__(
        self,
        gallery: Gallery,
        tell: Callable[[Report, list[tuple[str, str]]], None],
        progress: Progress,
        *,
        settle: float = SETTLE_SECONDS,
        poll: bool = False,
    ) -> None:
        if not settle > 0:
            raise BadInput(f"the settling time must be above 0 seconds, not {settle}")
        self.summary = Summary()
        self._gallery, self._tell, self._progress = gallery, tell, progress
        self._settle, self._poll = settle, poll
        self._known = {(entry.path, entry.failure or "") for entry in gallery.failures()}
        self._trouble = ""

    def run(self, stop: Event) -> None:
        """Until `stop` is set, or interrupted."""
        while not stop.is_set():
            places = places_of(self._gallery)
            there = _existing(places)
            due, stale = True, False  # due: what changed before the watch began gives no event
            for changed in self._events(there, stop):
                due = due or bool(changed)
                if due:
                    due = not self._sync()
                    # a table may name pictures elsewhere now, or be a new file in the old one's place
                    stale = stale or places_of(self._gallery) != places or any(map(os.path.isfile, changed & there))
                if not due and (stale or _existing(places) != there):
                    break

    def _events(self, there: frozenset[str], stop: Event) -> Iterator[frozenset[str]]:
        """Yield what has changed, once it has settled; nothing after a while without changes."""
        try:
            from watchfiles import watch
            from watchfiles._rust_notify import WatchfilesRustInternalError
        except ModuleNotFoundError:
            raise BadInput(f"watching needs watchfiles: {install_hint('watch')}") from None
        if not there:  # such as a disk that was unplugged
            self._progress.say(
                "nothing that the gallery was indexed from is there: waiting for it to come back; if it is elsewhere "
                f"now, see tapr sources -g {self._gallery.path}"
            )
            while not stop.wait(_RETRY_SECONDS):
                yield frozenset()
            return
        step = round(1000 * self._settle)
        try:
            for changes in watch(
                *there, watch_filter=_Outside(self._gallery.path), debounce=_LONGEST * step, step=step, stop_event=stop,
                rust_timeout=round(1000 * _RETRY_SECONDS), yield_on_timeout=True, force_polling=self._poll or None,
                ignore_permission_denied=True,
            ):  # fmt: skip
                yield frozenset(path for _, path in changes)
        except (OSError, WatchfilesRustInternalError) as error:
            raise TaprError(
                f"the system cannot watch these folders ({error}): raise its limit, on Linux "
                "fs.inotify.max_user_watches, or use --poll"
            ) from None

    def _sync(self) -> bool:
        """Return whether it could be done; a failure is reported once, and tried again."""
        try:
            before = self._gallery.published()
            report = self._gallery.sync(progress=self._progress)
        except TaprError as error:
            self.summary.troubles += 1
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._progress.say(f"not done yet, and tried again every {_RETRY_SECONDS:g} s: {error}")
            return False
        self._trouble = ""
        fresh = [failure for failure in report.failures if failure not in self._known]
        self._known = set(report.failures)
        if self._gallery.published() != before:
            self.summary.add(report)
            self._tell(report, fresh)
        return True


class _Outside:
    """Changes of hidden files and of the gallery itself, which may lie among its pictures, are none."""

    def __init__(self, gallery: Path) -> None:
        self._own = os.path.join(os.path.realpath(gallery), "")

    def __call__(self, change: Any, path: str) -> bool:
        below = os.path.realpath(os.path.dirname(path))
        return not (os.path.basename(path).startswith(".") or os.path.join(below, "").startswith(self._own))


def places_of(gallery: Gallery) -> frozenset[str]:
    """Folders and files to watch: the sources, and the folders of pictures that tables and lists name."""
    out = set()
    for source in gallery.sources():
        pattern = glob.has_magic(source) and not os.path.exists(source)
        out.add(_fixed_part(source) if pattern else source)
        if os.path.splitext(source)[1].lower() in (*TABLES, *LISTS):
            out |= gallery.folders_of(source)
    return frozenset(out)


def _existing(places: frozenset[str]) -> frozenset[str]:
    return frozenset(filter(os.path.exists, places))


def _fixed_part(pattern: str) -> str:
    """/pictures/*/a.jpg -> /pictures"""
    while glob.has_magic(pattern):
        pattern = os.path.dirname(pattern)
    return pattern
