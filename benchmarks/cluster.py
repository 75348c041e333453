"""What Ray costs and gives: one query at 20,000 pictures against the local engine, 8 callers, and recovery.

A real cluster on this machine: a head and two workers as raylets of their own. Vectors are random: the scan does not
look at what they mean.

    python benchmarks/cluster.py --out benchmarks/results/cluster_DATE.md
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import numpy as np

import tapr
from tapr.cluster import fleet
from tapr.cluster.connect import connect
from tapr.cluster.gallery import ClusterGallery
from tapr.encoders.base import EncoderCard, Evidence, unit
from tapr.errors import Unavailable
from tapr.gallery import Gallery, layout
from tapr.gallery.catalog import Catalog, Entry
from tapr.gallery.checksums import Seal
from tapr.gallery.layout import Manifest
from tapr.gallery.shards import ShardWriter
from tapr.match import choose_kernel, top_k
from tapr.rank import explain_hits
from tapr.score.compile import CompiledQuery, Term
from tapr.serve.batcher import Batcher

DIM, GRID = 512, (7, 7)
ATOMS = 4  # beside the 49 probes of the reference


def make_gallery(folder: Path, pictures: int) -> Gallery:
    """A gallery of random vectors: codes and fp16, as `tapr index --precision both` writes them."""
    rng = np.random.default_rng(1)
    card = EncoderCard("fake", "0" * 64, DIM, GRID, "tokens", 32, "crop")
    folder.mkdir(parents=True)
    path = layout.catalog_path(folder, 0)
    catalog = Catalog.create(path, "made up")
    manifest = Manifest(
        format_version=layout.FORMAT_VERSION, gallery_id="made up", encoder=card.to_dict(), precision="both",
        shard_rows=layout.shard_rows_for(card), snapshot=0, catalog=Seal.of(path),
    )  # fmt: skip
    with ShardWriter(folder, manifest, catalog) as shards:
        for start in range(0, pictures, 500):
            count = min(500, pictures - start)
            local = rng.standard_normal((count, card.locals_count, DIM)).astype(np.float32)
            first = shards.append(Evidence(unit(rng.standard_normal((count, DIM))), unit(local)))
            for row in range(first, first + count):
                catalog.put(Entry(f"{row}.png", f"/nowhere/{row}.png", 0, 0, f"{row:064d}", 1, 1, row=row))
        shards.commit()
    catalog.close()
    manifest.model_copy(update={"catalog": Seal.of(path)}).write(folder)
    return Gallery.open(folder)


def make_query(rng: np.random.Generator) -> CompiledQuery:
    count = GRID[0] * GRID[1] + ATOMS
    weights = rng.uniform(0.2, 1, count)
    return CompiledQuery(
        unit(rng.standard_normal((1, DIM))), np.array([0.4], np.float32), unit(rng.standard_normal((count, DIM))),
        (0.6 * weights / weights.sum()).astype(np.float32),
        (Term("target", "target", "global", 0, 1), Term("add", "probes", "local", 0, count)),
    )  # fmt: skip


def answer(gallery: Gallery, query: CompiledQuery, k: int = 10) -> tuple[list[int], list[float]]:
    """Match and explain: what is repeated for every query."""
    best = top_k(query, gallery, k)
    hits = explain_hits(query, gallery, best.positions.tolist())
    return best.positions.tolist(), [hit.score for hit in hits]


def times(work: Callable[[CompiledQuery], Any], queries: list[CompiledQuery]) -> list[float]:
    out = []
    for query in queries:
        begin = time.perf_counter()
        work(query)
        out.append((time.perf_counter() - begin) * 1e3)
    return out


def overhead(near: Gallery, far: Gallery, rounds: int) -> tuple[list[float], list[float], bool]:
    """The same queries by both, in turn: what else runs on the machine hits both alike."""
    rng = np.random.default_rng(7)
    queries = [make_query(rng) for _ in range(rounds)]
    answer(near, queries[0])
    answer(far, queries[0])
    local, remote, same = [], [], True
    for query in queries:
        local += times(lambda one: answer(near, one), [query])
        remote += times(lambda one: answer(far, one), [query])
        same = same and answer(near, query) == answer(far, query)
    return local, remote, same


def throughput(gallery: Gallery, callers: int, seconds: float) -> tuple[float, float]:
    """Queries per second of so many callers through one batcher, and how many shared a sweep."""
    sizes: list[int] = []
    batcher = Batcher(choose_kernel(), sizes.append)
    rng = np.random.default_rng(11)
    queries = [make_query(rng) for _ in range(32)]
    until = time.perf_counter() + seconds

    def call(number: int) -> int:
        done = 0
        while time.perf_counter() < until:
            query = queries[(number * 5 + done) % len(queries)]
            best = batcher.top_k(query, gallery, 10)
            explain_hits(query, gallery, best.positions.tolist())
            done += 1
        return done

    begin = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        done = sum(pool.map(call, range(callers)))
    spent = time.perf_counter() - begin
    batcher.close()
    return done / spent, float(np.mean(sizes))


def recovery(far: Gallery, query: CompiledQuery, pid: int) -> tuple[float, int, int]:
    """Seconds without an answer after kill -9 of an actor; queries that failed, and queries that were wrong."""
    wanted, failed, wrong = answer(far, query), 0, 0
    os.kill(pid, signal.SIGKILL)
    begin = last = time.perf_counter()
    right = 0
    while right < 20:
        try:
            found = answer(far, query)
        except Unavailable:
            failed, last, right = failed + 1, time.perf_counter(), 0
            time.sleep(0.01)
            continue
        wrong += found != wanted
        right += 1
        if not failed and time.perf_counter() - begin < 3:
            right = 0
    return last - begin, failed, wrong


def report(
    near: Gallery, small: Gallery, address: str, rounds: int, seconds: float, say: Callable[[str], None]
) -> None:
    ray, opened = connect(address), fleet.Opened.at(near.path)
    say("| pictures | groups | local p50 | Ray p50 | overhead at the median | at the best | Ray p99 | same answers |")
    say("|---|---|---|---|---|---|---|---|")
    for gallery, times_asked in ((small, 10 * rounds), (near, rounds)):
        for groups in (1, 2):
            fleet.start(ray, fleet.Opened.at(gallery.path), fleet.Shape(groups))
            far = ClusterGallery.open(gallery.path, address=address)
            local, remote, same = overhead(gallery, far, times_asked)
            ours, theirs, best = np.median(local), np.median(remote), min(remote) - min(local)
            say(
                f"| {len(gallery):,} | {groups} | {ours:.1f} ms | {theirs:.1f} ms | {theirs - ours:+.1f} ms "
                f"| {best:+.1f} ms | {np.percentile(remote, 99):.1f} ms | {'yes, bit for bit' if same else 'NO'} |"
            )
    say("")
    say("| 8 callers through one batcher | queries per second | queries per sweep |")
    say("|---|---|---|")
    for name, gallery in (("local", near), ("Ray, 2 groups", far)):
        rate, together = throughput(gallery, 8, seconds)
        say(f"| {name} | {rate:.1f} | {together:.1f} |")
    say("")
    say("| kill -9 of an actor | without an answer for | queries that said so | wrong answers |")
    say("|---|---|---|---|")
    for copies, name in ((1, "1 copy of each group"), (2, "2 copies of each group")):
        states = fleet.scale(ray, opened, copies=copies)
        spent, failed, wrong = recovery(far, make_query(np.random.default_rng(3)), states[0].pid)
        say(f"| {name} | {spent:.1f} s | {failed} | {wrong} |")
        fleet.states_of(ray, fleet.current(ray, opened))  # until all are back
    fleet.stop(ray)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each throughput run")
    parser.add_argument("--gallery", type=Path, help="of an earlier run, or where it is made and kept")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(tapr.__file__).parents[1])
    from ray.cluster_utils import Cluster

    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    with tempfile.TemporaryDirectory(prefix="tapr-cluster-") as place:
        folder = (options.gallery or Path(place, "gallery")).resolve()
        begin = time.perf_counter()
        near = Gallery.open(folder) if folder.exists() else make_gallery(folder, options.pictures)
        made, begin = time.perf_counter() - begin, time.perf_counter()
        store = {"object_store_memory": 200 * 2**20, "node_ip_address": "127.0.0.1"}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **store})
        for _ in range(2):
            cluster.add_node(num_cpus=2, **store)
        started = time.perf_counter() - begin
        size = sum(path.stat().st_size for path in near.path.glob("*.npy"))
        say("# Ray beside the local engine")
        say("")
        say(
            f"`python benchmarks/cluster.py`: {len(near):,} pictures, {size / 1e9:.2f} GB (49 x 512, codes"
            f" and fp16), 53 probes per query, k = 10, match and explain. {os.cpu_count()} processors "
            f"({choose_kernel().name}), Ray {version('ray')}, head and two workers on this machine; load average "
            f"{os.getloadavg()[0]:.1f} at the start. The gallery was made or opened in {made:.0f} s,"
            f" the cluster in {started:.0f} s."
        )
        say("")
        try:
            small = make_gallery(Path(place, "small"), 200)  # next to no scan: what is left is Ray
            report(near, small, cluster.address, options.rounds, options.seconds, say)
        finally:
            connect(cluster.address).shutdown()
            cluster.shutdown()
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
