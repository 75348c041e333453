"""tapr cluster: a gallery on a Ray cluster."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from tapr.cli.terminal import gallery_option, json_option, output, print_json, say
from tapr.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tapr.cluster.actor import State

ray_option = click.option(
    "--ray", "address", default="auto", show_default=True, metavar="ADDRESS",
    help="HOST:PORT of the head; auto is RAY_ADDRESS, or the cluster on this machine.",
)  # fmt: skip


_COLUMNS = (
    "copy", "node", "pid", "rows", "pictures", "first stage", "vectors", "memory", "calls", "p50", "p99", "kernel",
)  # fmt: skip


@click.group()
def cluster() -> None:
    """Hold a gallery on the nodes of a Ray cluster. Ray itself is started with ray start: see docs/scaling.md."""


@cluster.command()
@gallery_option
@ray_option
@click.option(
    "--groups", type=click.IntRange(min=1), help="Into how many groups the rows are cut; default one per node."
)
@click.option("--copies", default=1, show_default=True, type=click.IntRange(min=1), help="Copies of each group.")
@click.option("--hold", default="mapped", show_default=True, type=click.Choice(["mapped", "memory"]),
              help="Map the shared files, or read them into memory.")  # fmt: skip
@click.option("--kernel", help="numpy, cpu, cpu-avx2, cuda, ...; by default the best of each node.")
@click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of one actor; by default all processors of its node."
)
@click.option("--cpus", default=0.001, show_default=True, help="Processors reserved with Ray per actor.")
@click.option("--gpus", default=0.0, show_default=True, help="GPUs reserved with Ray per actor.")
@json_option
def start(
    gallery_path: str, address: str, groups: int | None, copies: int, hold: Any, kernel: str | None,
    threads: int | None, cpus: float, gpus: float, as_json: bool,
) -> None:  # fmt: skip
    """Put a gallery on the cluster; after an index run, put its new state there. Searches go on meanwhile."""
    from tapr.cluster import deployment
    from tapr.cluster.connect import connect

    ray, opened = connect(address), deployment.OpenedGallery.at(gallery_path)
    shape = deployment.DeploymentOptions(
        groups or len(deployment.useful_nodes(ray)), copies, hold, kernel, threads, cpus, gpus
    )
    _show(deployment.start(ray, opened, shape), as_json)


@cluster.command()
@ray_option
@click.option("-g", "--gallery", "gallery_path", help="One gallery; by default all.")
@json_option
def status(address: str, gallery_path: str | None, as_json: bool) -> None:
    """Shard groups, rows, copies, memory and times of a search."""
    from tapr.cluster import deployment
    from tapr.cluster.actor_names import key_of
    from tapr.cluster.connect import connect
    from tapr.cluster.group_calls import names_of

    ray = connect(address)
    names = names_of(ray, key_of(gallery_path) if gallery_path else None)
    states = deployment.states_of(ray, names, seconds=5.0)
    silent = sorted({str(name) for name in names} - {state.name for state in states})
    nodes = [
        {"node": node["NodeID"], "address": node["NodeManagerAddress"], "resources": node["Resources"]}
        for node in ray.nodes()
        if node["Alive"]
    ]
    _show(states, as_json, silent, nodes)


@cluster.command()
@gallery_option
@ray_option
@click.option("--copies", type=click.IntRange(min=1), help="Copies of each group.")
@click.option("--groups", type=click.IntRange(min=1), help="Into how many groups the rows are cut.")
@json_option
def scale(gallery_path: str, address: str, copies: int | None, groups: int | None, as_json: bool) -> None:
    """More or fewer copies, or other groups, without a failed query."""
    from tapr.cluster import deployment
    from tapr.cluster.connect import connect

    if copies is None and groups is None:
        raise BadInput("say what to change: --copies or --groups")
    _show(deployment.scale(connect(address), deployment.OpenedGallery.at(gallery_path), copies, groups), as_json)


@cluster.command()
@click.argument("node")
@ray_option
@json_option
def drain(node: str, address: str, as_json: bool) -> None:
    """Move all copies off NODE (the beginning of its id, as status shows it) without a failed query."""
    from tapr.cluster import deployment
    from tapr.cluster.connect import connect

    moved = deployment.drain(connect(address), node)
    if as_json:
        print_json({"moved": moved})
    else:
        say(f"{moved} moved: nothing of tapr runs on that node now; end it there with ray stop")


@cluster.command()
@ray_option
@click.option("-g", "--gallery", "gallery_path", help="One gallery; by default all.")
@json_option
def stop(address: str, gallery_path: str | None, as_json: bool) -> None:
    """Take a gallery, or all, off the cluster. Ray itself goes on."""
    from tapr.cluster import deployment
    from tapr.cluster.actor_names import key_of
    from tapr.cluster.connect import connect

    count = deployment.stop(connect(address), key_of(gallery_path) if gallery_path else None)
    if as_json:
        print_json({"stopped": count})
    else:
        say(f"{count} stopped")


def _show(
    states: Sequence[State], as_json: bool, silent: Sequence[str] = (), nodes: Sequence[dict[str, Any]] = ()
) -> None:
    if as_json:
        print_json({"copies": [asdict(state) for state in states], "not_answering": list(silent), "nodes": list(nodes)})
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in ("copy", "node", "first stage", "kernel") else "right")
    for state in states:
        table.add_row(
            state.name.removeprefix("tapr-"), state.node[:8], str(state.pid), f"{state.rows:,}",
            f"{state.pictures:,}", "yes" if state.first_stage else "no",
            f"{state.bank_bytes / 1e6:,.0f} MB", f"{state.memory_bytes / 1e6:,.0f} MB", f"{state.calls:,}",
            _ms(state.p50_ms), _ms(state.p99_ms), state.problem or state.kernel,
        )  # fmt: skip
    out = output()
    out.print(table, soft_wrap=True)
    for name in silent:
        out.print(f"{name} does not answer: Ray restarts it", markup=False)
    for node in nodes:
        out.print(f"node {node['node'][:8]} at {node['address']}", markup=False)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} ms"
