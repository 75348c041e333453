"""Starts, counts, moves and stops the actors of a gallery. Ray restarts crashed ones; this decides how many there are,
and where.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tapr import __version__
from tapr.cluster.actor import CONCURRENCY, GroupActor, State
from tapr.cluster.actor_names import ActorName, key_of
from tapr.cluster.chunked_calls import cut
from tapr.cluster.connect import NAMESPACE
from tapr.cluster.files import DownloadedFiles, is_url, small_files
from tapr.cluster.group import HOLDS, GroupAssignment, Hold, spans_of
from tapr.cluster.group_calls import names_of, newest_layout
from tapr.errors import BadInput, TaprError, Unavailable
from tapr.store.catalog import Catalog
from tapr.store.layout import Manifest
from tapr.store.shards import summariser_in
from tapr.store.snapshot import open_catalog

START_SECONDS = 600.0  # to open a group's rows or read them into memory
LEAVE_SECONDS = 60.0  # for running calls of an actor that is being stopped
GRACE_SECONDS = 5.0  # for servers to switch to a newer snapshot
_READY_SECONDS = 0.5  # for an actor to report its status
WAITING_CALLS = 256  # waiting calls per caller and copy; further ones are refused


@dataclass(frozen=True)
class DeploymentOptions:
    """How a gallery is distributed."""

    groups: int = 1
    copies: int = 1
    hold: Hold = "mapped"
    kernel: str | None = None
    threads: int | None = None
    # reserved per actor; not 0, so that nodes without processors for Ray (such as a head node) get none
    cpus: float = 0.001
    gpus: float = 0.0

    def __post_init__(self) -> None:
        for name in ("groups", "copies"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.hold not in HOLDS:
            raise BadInput(f"a group is held {' or in '.join(HOLDS)}, not {self.hold!r}")


@dataclass(frozen=True, eq=False)
class OpenedGallery:
    """The manifest and catalogue of a gallery, without its vectors."""

    location: str
    manifest: Manifest
    catalog: Catalog
    folder: Path
    copied: DownloadedFiles | None  # keeps the downloaded catalogue alive

    @classmethod
    def at(cls, location: str | Path) -> OpenedGallery:
        copied = small_files(str(location)) if is_url(location) else None
        folder = copied.folder if copied else Path(location).expanduser().resolve()
        while True:
            manifest = Manifest.read(folder)
            try:
                catalog = open_catalog(folder, manifest)
            except TaprError:
                if Manifest.read(folder) != manifest:
                    continue  # an index run has just published
                raise
            place = str(location).rstrip("/") if is_url(location) else str(folder)
            return cls(place, manifest, catalog, folder, copied)

    @property
    def key(self) -> str:
        return key_of(self.location)

    @property
    def snapshot(self) -> int:
        return self.manifest.snapshot


def start(ray: Any, opened: OpenedGallery, shape: DeploymentOptions) -> list[State]:
    """Start missing actors and stop those that hold an older snapshot. Returns the status of the running ones."""
    names = [name for name in names_of(ray, opened.key) if name.snapshot == opened.snapshot]
    layout = newest_layout(names)
    groups = min(shape.groups, opened.catalog.rows_committed())
    if not groups:
        raise BadInput(f"the gallery {opened.location!r} has no pictures yet: index some first")
    same = [name for name in names if name.layout == layout]
    if not same or same[0].groups != groups:
        layout += 1
        same = []
    copies = Counter(name.group for name in same)
    wanted = [
        ActorName(opened.key, opened.snapshot, layout, group, groups, number)
        for group in range(groups)
        for number in _free_numbers(same, group, shape.copies - copies[group])
    ]
    _, rows = opened.catalog.select()
    spans = spans_of(rows, opened.catalog.rows_committed(), groups)
    subspaces = summariser_in(opened.catalog).subspaces if opened.manifest.first_stage else None
    assignments = [
        GroupAssignment(
            opened.location, opened.manifest.model_dump_json(), opened.catalog.generation(), spans[name.group],
            GroupAssignment.compact_rows(rows, spans[name.group]), shape.hold, shape.kernel, shape.threads, __version__,
            shape.cpus, shape.gpus, subspaces,
        )
        for name in wanted
    ]  # fmt: skip
    places = [(name.group + name.copy) for name in wanted]
    nodes = useful_nodes(ray)
    _create(ray, wanted, assignments, [nodes[place % len(nodes)] for place in places])
    states = states_of(ray, names_of(ray, opened.key))
    old = [name for name in names_of(ray, opened.key) if (name.snapshot, name.layout) != (opened.snapshot, layout)]
    if any(name.snapshot != opened.snapshot for name in old):
        time.sleep(GRACE_SECONDS)  # servers check every second and then switch to the new snapshot
    retire(ray, old)
    return [state for state in states if _name(state).layout == layout and _name(state).snapshot == opened.snapshot]


def scale(ray: Any, opened: OpenedGallery, copies: int | None = None, groups: int | None = None) -> list[State]:
    """Change the number of copies or groups. Queries are answered meanwhile."""
    names = current(ray, opened)
    assignment = _assignment(ray, names[0])
    now = max(Counter(name.group for name in names).values())
    shape = DeploymentOptions(
        groups or names[0].groups, copies or now, assignment.hold, assignment.kernel, assignment.threads,
        assignment.cpus, assignment.gpus,
    )  # fmt: skip
    start(ray, opened, shape)
    names = current(ray, opened)
    surplus = []
    for group in range(names[0].groups):
        surplus += sorted(name for name in names if name.group == group)[shape.copies :]
    retire(ray, surplus)
    return states_of(ray, current(ray, opened))


def drain(ray: Any, node: str, galleries: Iterable[str] | None = None) -> int:
    """Move every copy off a node: a new copy is started elsewhere before the old one stops. Returns how many moved."""
    node = _node_id(ray, node)
    others = [one for one in useful_nodes(ray) if one != node]
    if not others:
        raise BadInput("there is no other node to move to: join one to the cluster first, with ray start --address")
    names = [name for name in names_of(ray) if galleries is None or name.gallery in set(galleries)]
    here = [_name(state) for state in states_of(ray, names) if state.node == node]
    for number, old in enumerate(here):
        taken = [name for name in names_of(ray, old.gallery) if name.snapshot == old.snapshot]
        (free,) = _free_numbers([name for name in taken if name.layout == old.layout], old.group, 1)
        new = replace(old, copy=free)
        _create(ray, [new], [_assignment(ray, old)], [others[number % len(others)]])
        retire(ray, [old])
    return len(here)


def stop(ray: Any, gallery: str | None = None) -> int:
    """Stop all actors. Returns how many."""
    names = names_of(ray, gallery)
    retire(ray, names, seconds=5.0)
    return len(names)


def retire(ray: Any, names: Sequence[ActorName], seconds: float = LEAVE_SECONDS) -> None:
    """Stop actors: each accepts no more calls, finishes running ones and ends."""
    handles = [handle for name in names if (handle := _handle(ray, name)) is not None]
    left = [handle.leave.remote(seconds) for handle in handles]
    ray.wait(left, num_returns=len(left), timeout=seconds + 5) if left else None
    for handle in handles:
        ray.kill(handle, no_restart=True)


def current(ray: Any, opened: OpenedGallery) -> list[ActorName]:
    """The copies of the newest layout of this snapshot."""
    names = [name for name in names_of(ray, opened.key) if name.snapshot == opened.snapshot]
    newest = newest_layout(names)
    names = [name for name in names if name.layout == newest]
    if not names:
        others = {name.snapshot for name in names_of(ray, opened.key)}
        older = f" (it holds snapshot {max(others)}, and the gallery is at {opened.snapshot})" if others else ""
        raise Unavailable(
            f"the cluster does not hold the gallery {opened.location!r}{older}: run tapr cluster start on it"
        )
    return names


def is_held(ray: Any, gallery: str, snapshot: int) -> bool:
    """Whether every group of this snapshot has a ready copy."""
    names = [name for name in names_of(ray, gallery) if name.snapshot == snapshot]
    names = [name for name in names if name.layout == newest_layout(names)]
    if not names or len({name.group for name in names}) < names[0].groups:
        return False
    ready = {_name(state).group for state in states_of(ray, names, _READY_SECONDS) if state.problem is None}
    return len(ready) == names[0].groups


def states_of(ray: Any, names: Sequence[ActorName], seconds: float = START_SECONDS) -> list[State]:
    """The status of each actor. One that is being restarted is asked again until it answers or time is up."""
    out, deadline = [], time.monotonic() + seconds
    for name in names:
        state = _state(ray, name, deadline)
        if state is not None:
            out.append(state)
    return out


def _state(ray: Any, name: ActorName, deadline: float) -> State | None:
    state: State | None = _ask(ray, name, "state", deadline)
    return state


def _ask(ray: Any, name: ActorName, method: str, deadline: float) -> Any:
    """Call an actor; again while Ray restarts it. None if there is no such actor, or when time is up."""
    while (handle := _handle(ray, name)) is not None:
        try:
            return ray.get(getattr(handle, method).remote(), timeout=max(0.1, deadline - time.monotonic()))
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.1)
    return None


def useful_nodes(ray: Any) -> list[str]:
    """Ids of running nodes; only those with processors for Ray, if there are any."""
    alive = sorted((node["NodeID"], node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
    return [node for node, cpus in alive if cpus] or [node for node, _ in alive]


def _create(ray: Any, names: Sequence[ActorName], assignments: Sequence[GroupAssignment], nodes: Sequence[str]) -> None:
    """Start actors and wait until each has opened its rows. If one fails, all are removed."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actor = ray.remote(GroupActor)
    for name, assignment, node in zip(names, assignments, nodes, strict=True):
        actor.options(
            name=str(name), namespace=NAMESPACE, lifetime="detached", get_if_exists=True,
            max_restarts=-1, max_task_retries=0, max_concurrency=CONCURRENCY, max_pending_calls=WAITING_CALLS,
            num_cpus=assignment.cpus, num_gpus=assignment.gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
        ).remote(str(name), *cut(assignment))  # fmt: skip
    states = states_of(ray, names)
    problem = next((state.problem for state in states if state.problem), None)
    if problem is None and len(states) < len(names):
        problem = f"{len(names) - len(states)} of {len(names)} actors did not start: has the cluster the resources?"
    if problem is not None:
        for name in names:
            handle = _handle(ray, name)
            if handle is not None:
                ray.kill(handle, no_restart=True)
        raise TaprError(problem)


def _handle(ray: Any, name: ActorName) -> Any:
    try:
        return ray.get_actor(str(name), namespace=NAMESPACE)
    except ValueError:
        return None


def _assignment(ray: Any, name: ActorName) -> GroupAssignment:
    assignment: GroupAssignment | None = _ask(ray, name, "assignment", time.monotonic() + START_SECONDS)
    if assignment is None:
        raise Unavailable(f"the actor {name} does not answer: try again, or run tapr cluster start")
    return assignment


def _name(state: State) -> ActorName:
    name = ActorName.parse(state.name)
    assert name is not None
    return name


def _free_numbers(names: Sequence[ActorName], group: int, count: int) -> list[int]:
    taken = {name.copy for name in names if name.group == group}
    return [number for number in range(len(taken) + max(count, 0)) if number not in taken][: max(count, 0)]


def _node_id(ray: Any, wanted: str) -> str:
    """Find a node by a prefix of its id, its address or its host name."""
    found = [
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"]
        and (node["NodeID"].startswith(wanted) or wanted in (node["NodeManagerAddress"], node["NodeManagerHostname"]))
    ]
    if len(found) != 1:
        what = "no living node" if not found else f"{len(found)} nodes"
        raise BadInput(
            f"{what} of the cluster can be meant by {wanted!r}: name one by its id, as tapr cluster status does"
        )
    return str(found[0])
