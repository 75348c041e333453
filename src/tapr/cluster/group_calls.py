"""Calls groups of actors: one copy of each group, or another copy if that one is lost or slow."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from tapr.cluster.actor import ActorRetiring
from tapr.cluster.actor_names import ActorName
from tapr.cluster.chunked_calls import Call, cut, join
from tapr.cluster.connect import NAMESPACE
from tapr.errors import NewProcessNeeded, Overloaded, TaprError, Unavailable

_AVOID_SECONDS = 1.0  # how long a failed copy is tried last
_PING_SECONDS = 1.0  # a copy that takes longer to answer is pinged, and the ping may take as long
_POLL_SECONDS = 0.05  # between two checks for a copy while waiting


@dataclass(frozen=True)
class RetryPolicy:
    """How long a caller waits for groups."""

    seconds: float = 30.0  # for an answer, in all
    missing: float = 0.0  # of these, for a copy to come back if a group has none
    hedge: float | None = None  # after this many seconds, call another copy too; the first answer counts


class LayoutChanged(Exception):
    """The groups were re-partitioned, or the copies hold another snapshot: repeat the whole call."""


@dataclass
class _GroupCall:
    """The state of a call to one group."""

    call: Call
    tried: set[int] = field(default_factory=set)  # serial numbers of the handles tried
    looked: bool = False  # looked for new copies after all known ones failed
    began: float = 0.0  # start of the last call
    waiting: int = 0  # running calls
    handle: Any = None  # handle of the last call
    pinged: float | None = None  # when the last copy was pinged
    alive: bool = False  # it answered the ping
    reason: str = ""


class Groups:
    """The running copies of one layout of a gallery. Thread-safe."""

    def __init__(self, ray: Any, gallery: str, snapshot: int) -> None:
        self._ray, self._gallery, self._snapshot = ray, gallery, snapshot
        self._lock, self._turn, self._serial = Lock(), itertools.count(), itertools.count()
        # with a serial number, because a restarted actor can have the same name
        self._handles: dict[ActorName, tuple[int, Any]] = {}
        self._avoided: dict[ActorName, float] = {}
        self.layout, self.count = -1, 0
        self.look()

    def look(self) -> bool:
        """Refresh the list of copies. Returns whether the layout is unchanged."""
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
                except ValueError:  # it stopped in between
                    continue
            self._handles = handles
            return same

    def copies(self, group: int) -> list[ActorName]:
        """The copies of a group in round-robin order; recently failed ones come last."""
        now = time.monotonic()
        with self._lock:
            names = sorted(name for name in self._handles if name.group == group)
            turn = next(self._turn) % len(names) if names else 0
            names = names[turn:] + names[:turn]
            return sorted(names, key=lambda name: self._avoided.get(name, 0) > now)

    def ask(
        self, method: str, calls: Mapping[int, Call], retry_policy: RetryPolicy, layout: int
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """Call one copy of each group. Returns the answers, and for groups without one the reason.

        `layout` is the one that the calls are meant for.
        """
        return _GroupCalls(self, self._ray, method, calls, retry_policy, layout).run()

    def shape(self) -> tuple[int, int]:
        """The layout, and how many groups it has."""
        with self._lock:
            return self.layout, self.count

    def handle(self, name: ActorName) -> tuple[int, Any]:
        """The serial number and handle of a copy; -1 and None if it is gone."""
        return self._handles.get(name, (-1, None))

    def forget(self, name: ActorName) -> None:
        """Mark a copy as failed: it is looked up again and tried last for a moment."""
        with self._lock:
            self._handles.pop(name, None)
            self._avoided[name] = time.monotonic() + _AVOID_SECONDS


class _GroupCalls:
    """One call to several groups."""

    def __init__(
        self,
        groups: Groups,
        ray: Any,
        method: str,
        calls: Mapping[int, Call],
        retry_policy: RetryPolicy,
        layout: int,
    ) -> None:
        self._groups, self._ray, self._method, self._retry_policy = groups, ray, method, retry_policy
        self._layout = layout
        self._asked = {group: _GroupCall(call) for group, call in calls.items()}
        self._cut: dict[int, list[bytes]] = {}  # by identity of the arguments, which several groups may share
        self._calls: dict[Any, tuple[int, ActorName, list[Any]]] = {}  # by the reference of the answer's first chunk
        self._pings: dict[Any, int] = {}
        self._answers: dict[int, Any] = {}
        self._missing: dict[int, str] = {}
        self._began = time.monotonic()

    def run(self) -> tuple[dict[int, Any], dict[int, str]]:
        for group, one in self._asked.items():
            if not self._send(group, one):
                one.reason = "no copy of it lives"
        while open_ := [group for group in self._asked if group not in self._answers and group not in self._missing]:
            for group in open_:
                self._go_on(group, self._asked[group])
            waiting = [*self._calls, *self._pings]
            if waiting:
                ready, _ = self._ray.wait(waiting, num_returns=1, timeout=self._step())
                for ref in ready:
                    self._take(ref)
            elif any(group not in self._missing for group in open_):
                time.sleep(_POLL_SECONDS)
        return self._answers, self._missing

    def _step(self) -> float:
        """Seconds until something must be done even without an answer."""
        left = max(0.0, self._began + self._retry_policy.seconds - time.monotonic())
        idle = any(not one.waiting and group not in self._answers for group, one in self._asked.items())
        return min(left, _POLL_SECONDS if idle else _PING_SECONDS / 4, self._retry_policy.hedge or left)

    def _go_on(self, group: int, one: _GroupCall) -> None:
        now = time.monotonic()
        if now - self._began >= self._retry_policy.seconds:
            self._missing[group] = one.reason or f"it did not answer within {self._retry_policy.seconds:.3g} seconds"
        elif one.waiting:
            if self._retry_policy.hedge is not None and now - one.began >= self._retry_policy.hedge:
                self._send(group, one)  # if there is another copy
            self._check_alive(group, one, now)
        elif not self._send(group, one):
            if one.looked and now - self._began >= self._retry_policy.missing:
                self._missing[group] = one.reason
                return
            one.looked = True
            if not self._groups.look():
                raise LayoutChanged
            self._send(group, one)

    def _check_alive(self, group: int, one: _GroupCall, now: float) -> None:
        """Ping a slow copy: Ray queues calls to an actor that is being restarted and reports nothing."""
        if one.pinged is None and now - one.began >= _PING_SECONDS:
            one.pinged, one.alive = now, False
            self._pings[one.handle.ping.remote()] = group
        elif one.pinged is not None and not one.alive and now - one.pinged >= _PING_SECONDS:
            one.reason = "its actor gives no sign of life; it may be being restarted"
            if not self._send(group, one) and now - self._began >= self._retry_policy.missing:
                self._missing[group] = one.reason

    def _send(self, group: int, one: _GroupCall) -> bool:
        """Call a copy that was not tried yet. Returns whether there was one."""
        copies = self._groups.copies(group)
        if self._groups.layout != self._layout or any(name.layout != self._layout for name in copies):
            raise LayoutChanged  # another search has looked
        for name in copies:
            serial, handle = self._groups.handle(name)
            if serial in one.tried or handle is None:
                continue
            one.tried.add(serial)
            try:
                refs = self._remote(handle, one.call)
            except self._ray.exceptions.PendingCallsLimitExceeded:
                raise Overloaded(
                    f"shard group {group + 1} of {self._groups.count} has as many calls waiting as it may: ask again"
                ) from None
            self._calls[refs[0]] = group, name, refs
            one.began, one.handle, one.pinged = time.monotonic(), handle, None
            one.waiting += 1
            return True
        return False

    def _remote(self, handle: Any, call: Call) -> list[Any]:
        key = id(call.arguments)
        if key not in self._cut:
            self._cut[key] = cut(call.arguments)
        method = handle.call if call.returns == 1 else handle.call.options(num_returns=call.returns)
        refs = method.remote(self._method, call.returns, call.shared, *self._cut[key])
        return [refs] if call.returns == 1 else list(refs)

    def _take(self, ref: Any) -> None:
        if ref in self._pings:
            group = self._pings.pop(ref)
            with contextlib.suppress(self._ray.exceptions.RayError):  # its call fails too and gives the reason
                self._ray.get(ref)
                self._asked[group].alive = True
            return
        group, name, refs = self._calls.pop(ref)
        one = self._asked[group]
        one.waiting -= 1
        if group in self._answers:
            return
        errors = self._ray.exceptions
        try:
            self._answers[group] = join(self._ray.get(refs))
        except ActorRetiring:
            self._groups.forget(name)
            one.reason = "its copies are being replaced"
        except TaprError as error:
            raise _plain(error) from None
        except errors.RayActorError as error:
            self._groups.forget(name)
            lost = isinstance(error, errors.ActorUnavailableError)
            one.reason = "its actor cannot be reached" if lost else "its actor died and is being restarted"
        except errors.RayError as error:  # lost objects, a failed raylet, ...
            one.reason = str(error).strip().splitlines()[0][:200]


def _plain(error: TaprError) -> TaprError:
    """The actor's own error without Ray's traceback."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, TaprError) else error


def names_of(ray: Any, gallery: str | None = None) -> list[ActorName]:
    """The names of all copies that run or are being restarted."""
    try:
        found = ray.util.list_named_actors(all_namespaces=True)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0][:200]
        if "WrongClusterID" in reason:
            raise NewProcessNeeded(
                "the head of the Ray cluster has been replaced, and Ray joins a process to one head only: "
                "start this program again"
            ) from None
        raise Unavailable(f"the head of the Ray cluster does not answer ({reason}): ask again in a moment") from None
    names = [ActorName.parse(one["name"]) for one in found if one["namespace"] == NAMESPACE]
    return sorted(name for name in names if name is not None and gallery in (None, name.gallery))


def newest_layout(names: list[ActorName]) -> int:
    """The newest layout of a snapshot with a copy of every group; or else the newest; -1 if there is none."""
    layouts = sorted({name.layout for name in names}, reverse=True)
    for layout in layouts:
        here = {(name.group, name.groups) for name in names if name.layout == layout}
        if len(here) == next(iter(here))[1]:
            return layout
    return layouts[0] if layouts else -1
