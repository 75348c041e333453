"""Asking groups: every group once, by one of its copies; by another one when that is lost, or slow."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from tapr.cluster.actor import Leaving
from tapr.cluster.connect import NAMESPACE
from tapr.cluster.names import Name
from tapr.errors import Overloaded, TaprError

_AVOIDED = 1.0  # seconds for which a copy that was lost is asked last
_PAUSE = 0.05  # seconds between two looks for a copy, while a caller waits for one


@dataclass(frozen=True)
class Patience:
    """How long a caller waits."""

    seconds: float = 30.0  # for an answer
    missing: float = 0.0  # of these, for a group of which no copy lives to come back
    hedge: float | None = None  # after so many seconds another copy is asked too, and the first answer counts


class LayoutChanged(Exception):
    """The rows were cut anew, or the copies hold another snapshot: what was asked has to be asked again, anew."""


@dataclass
class _Asked:
    method: str
    arguments: tuple[Any, ...]
    tried: set[int] = field(default_factory=set)  # serial numbers of handles
    looked: bool = False  # for copies that are new, after all known ones failed
    began: float = 0.0  # the last attempt
    waiting: int = 0  # attempts under way
    reason: str = ""


class Groups:
    """The living copies of one layout of a gallery, and how they are asked. Thread-safe."""

    def __init__(self, ray: Any, gallery: str, snapshot: int) -> None:
        self._ray, self._gallery, self._snapshot = ray, gallery, snapshot
        self._lock, self._turn, self._serial = Lock(), itertools.count(), itertools.count()
        # with a serial number, because a name may come to mean another actor; a handle that failed is fetched anew
        self._handles: dict[Name, tuple[int, Any]] = {}
        self._avoided: dict[Name, float] = {}
        self.layout, self.count = -1, 0
        self.look()

    def look(self) -> bool:
        """Read the names of the copies. -> whether the layout is the same as before"""
        names = [name for name in names_of(self._ray, self._gallery) if name.snapshot == self._snapshot]
        newest = newest_layout(names)
        with self._lock:
            kept = [name for name in names if name.layout == newest]
            same = newest == self.layout
            self.layout, self.count = newest, kept[0].groups if kept else 0
            handles = {}
            for name in kept:
                if name in self._handles:
                    handles[name] = self._handles[name]
                    continue
                try:
                    handles[name] = next(self._serial), self._ray.get_actor(str(name), namespace=NAMESPACE)
                except ValueError:  # it went in between
                    continue
            self._handles = handles
            return same

    def copies(self, group: int) -> list[Name]:
        """Those of a group, in turn; what was lost a moment ago comes last."""
        now = time.monotonic()
        with self._lock:
            names = sorted(name for name in self._handles if name.group == group)
            turn = next(self._turn) % len(names) if names else 0
            names = names[turn:] + names[:turn]
            return sorted(names, key=lambda name: self._avoided.get(name, 0) > now)

    def ask(
        self, method: str, arguments: Mapping[int, tuple[Any, ...]], patience: Patience
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """One call per group. -> the answers, and the groups without one, each with the reason"""
        began = time.monotonic()
        asked = {group: _Asked(method, args) for group, args in arguments.items()}
        pending: dict[Any, tuple[int, Name]] = {}
        answers: dict[int, Any] = {}
        missing: dict[int, str] = {}
        for group, one in asked.items():
            if not self._send(group, one, pending):
                one.reason = "no copy of it lives"
        while len(answers) + len(missing) < len(asked):
            now = time.monotonic()
            for group, one in asked.items():
                if group in answers or group in missing:
                    continue
                self._go_on(group, one, pending, missing, now - began, patience)
            if not pending:
                if len(answers) + len(missing) < len(asked):
                    time.sleep(_PAUSE)
                continue
            left = max(0.0, began + patience.seconds - now)
            idle = any(not one.waiting and group not in answers for group, one in asked.items())
            step = min(left, _PAUSE if idle else left, patience.hedge if patience.hedge is not None else left)
            ready, _ = self._ray.wait(list(pending), num_returns=1, timeout=step)
            for ref in ready:
                group, name = pending.pop(ref)
                asked[group].waiting -= 1
                if group in answers:
                    continue
                done, value = self._answer(ref, name)
                if done:
                    answers[group] = value
                else:
                    asked[group].reason = value
        return answers, missing

    def _go_on(
        self, group: int, one: _Asked, pending: dict[Any, tuple[int, Name]], missing: dict[int, str], spent: float,
        patience: Patience,
    ) -> None:  # fmt: skip
        if spent >= patience.seconds:
            missing[group] = one.reason or f"it did not answer within {patience.seconds:g} seconds"
        elif one.waiting:
            if patience.hedge is not None and time.monotonic() - one.began >= patience.hedge:
                self._send(group, one, pending)  # where there is another copy
        elif not self._send(group, one, pending):
            if one.looked and spent >= patience.missing:
                missing[group] = one.reason
                return
            one.looked = True
            if not self.look():
                raise LayoutChanged
            self._send(group, one, pending)

    def _send(self, group: int, one: _Asked, pending: dict[Any, tuple[int, Name]]) -> bool:
        """Ask a copy that was not asked yet, if there is one."""
        for name in self.copies(group):
            serial, handle = self._handles.get(name, (-1, None))
            if serial in one.tried or handle is None:
                continue
            one.tried.add(serial)
            try:
                ref = getattr(handle, one.method).remote(*one.arguments)
            except self._ray.exceptions.PendingCallsLimitExceeded:
                raise Overloaded(
                    f"shard group {group + 1} of {self.count} has as many calls waiting as it may: ask again soon"
                ) from None
            pending[ref] = group, name
            one.began = time.monotonic()
            one.waiting += 1
            return True
        return False

    def _answer(self, ref: Any, name: Name) -> tuple[bool, Any]:
        """-> True and the answer, or False and why there is none."""
        errors = self._ray.exceptions
        try:
            return True, self._ray.get(ref)
        except Leaving:
            with self._lock:
                self._handles.pop(name, None)
            return False, "its copies are being replaced"
        except TaprError as error:
            raise _plain(error) from None
        except errors.RayActorError as error:
            with self._lock:
                self._avoided[name] = time.monotonic() + _AVOIDED
                self._handles.pop(name, None)
            lost = isinstance(error, errors.ActorUnavailableError)
            return False, "its actor cannot be reached" if lost else "its actor died and is being restarted"
        except errors.RayError as error:  # an object that was lost with a node, the raylet of this machine, ...
            return False, str(error).strip().splitlines()[0][:200]


def _plain(error: TaprError) -> TaprError:
    """The error as the actor raised it, without Ray's traceback around it."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, TaprError) else error


def names_of(ray: Any, gallery: str | None = None) -> list[Name]:
    """Of all copies that live or are being restarted."""
    found = ray.util.list_named_actors(all_namespaces=True)
    names = [Name.parse(one["name"]) for one in found if one["namespace"] == NAMESPACE]
    return sorted(name for name in names if name is not None and gallery in (None, name.gallery))


def newest_layout(names: list[Name]) -> int:
    """Of one snapshot: the newest one of which every group has a copy; -1 where there is none, and then the newest."""
    layouts = sorted({name.layout for name in names}, reverse=True)
    for layout in layouts:
        here = {(name.group, name.groups) for name in names if name.layout == layout}
        if len(here) == next(iter(here))[1]:
            return layout
    return layouts[0] if layouts else -1
