"""What Ray costs and gives: one query at 20,000 pictures against the local engine, 8 callers, and recovery.

A real cluster on this machine: a head and two workers as raylets of their own. Vectors are random: the scan does not
look at what they mean.

    python benchmarks/cluster.py --gallery FOLDER --out benchmarks/results/cluster_DATE.md

`--only staged` makes a gallery with a first stage, in which pictures that are alike lie together, as in a catalogue,
and the places of a picture are alike: in random vectors there is nothing to summarise. Queries are pictures of it. It
counts what two groups read with the exchange of floors and without. `--only call` asks 200 pictures, where next to
nothing but Ray is left, `--only overhead` all of them. Each part takes one or two minutes on a quiet machine.
"""

from __future__ import annotations

import argparse
import copy
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ |= {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # Ray's own is 15: whatever else runs would go before the actors, and not before us
}

import numpy as np

import tapr
from tapr.cluster import deployment
from tapr.cluster.connect import connect
from tapr.cluster.gallery import ClusterGallery
from tapr.cluster.group import spans_of
from tapr.encoders.base import EncoderCard, Evidence, unit
from tapr.errors import Unavailable
from tapr.gallery import Gallery
from tapr.score.compile import CompiledQuery, Term
from tapr.search.answer import explain_hits
from tapr.search.batching import Batcher
from tapr.search.kernels.choose import choose_kernel
from tapr.search.match import match
from tapr.search.topk import top_k
from tapr.store import layout
from tapr.store.block import Block
from tapr.store.catalog import Catalog, Entry
from tapr.store.checksums import FileDigest
from tapr.store.layout import Manifest
from tapr.store.shards import ShardWriter

DIM, GRID = 512, (7, 7)
FEW = 200  # pictures: next to no scan, what is left is Ray
ATOMS = 4  # beside the 49 probes of the reference
ALIKE, NOISE = (
    20,
    0.3,
)  # pictures that are alike; what a place has beside what it shares with its picture: in the part staged

Say = Callable[[str], None]


def make_gallery(folder: Path, pictures: int, noise: float | None = None) -> Gallery:
    """A gallery of random vectors: codes and fp16, as `tapr index --precision both` writes them.

    With `noise`, 20 pictures in a row are alike, and a picture's places are its global vector and so much of their own.
    """
    rng = np.random.default_rng(1)
    card = EncoderCard("fake", "0" * 64, DIM, GRID, "tokens", 32, "crop")
    folder.mkdir(parents=True)
    path = layout.catalog_path(folder, 0)
    catalog = Catalog.create(path, "made up")
    manifest = Manifest(
        gallery_id="made up", encoder=card.to_dict(), precision="both",
        shard_rows=layout.shard_rows_for(card), snapshot=0, catalog=FileDigest.of(path),
    )  # fmt: skip
    with ShardWriter(folder, manifest, catalog) as shards:
        for start in range(0, pictures, 500):
            count = min(500, pictures - start)
            local = rng.standard_normal((count, card.locals_count, DIM)).astype(np.float32)
            whole = unit(rng.standard_normal((count, DIM)))
            if noise is not None:
                kinds = np.repeat(unit(rng.standard_normal((-(-count // ALIKE), DIM))), ALIKE, axis=0)[:count]
                whole = unit(kinds + 0.5 * whole)
                local = whole[:, None] + noise * unit(local)
            first = shards.append(Evidence(whole, unit(local)))
            for row in range(first, first + count):
                catalog.put(Entry(f"{row}.png", f"/nowhere/{row}.png", 0, 0, f"{row:064d}", 1, 1, row=row))
        shards.commit()
    catalog.close()
    manifest.model_copy(update={"catalog": FileDigest.of(path)}).write(folder)
    return Gallery.open(folder)


def make_query(rng: np.random.Generator) -> CompiledQuery:
    count = GRID[0] * GRID[1] + ATOMS
    weights = rng.uniform(0.2, 1, count)
    return CompiledQuery(
        unit(rng.standard_normal((1, DIM))), np.array([0.4], np.float32), unit(rng.standard_normal((count, DIM))),
        (0.6 * weights / weights.sum()).astype(np.float32),
        (Term("target", "target", "global", 0, 1), Term("add", "probes", "local", 0, count)),
    )  # fmt: skip


def query_of(block: Block, rng: np.random.Generator) -> CompiledQuery:
    """A picture of the gallery, and atoms."""
    query = make_query(rng)
    probes = np.concatenate([block.decoded()[0].astype(np.float32), query.probes[-ATOMS:]])
    return replace(query, global_probes=block.global_vectors.astype(np.float32), probes=probes)


def answer(gallery: Gallery, query: CompiledQuery, k: int = 10) -> tuple[list[int], list[float]]:
    """Match and explain: what is repeated for every query."""
    best = top_k(query, gallery, k)
    hits = explain_hits(query, gallery, best.positions.tolist(), breakdown=best.breakdown)
    return best.positions.tolist(), [hit.score for hit in hits]


@dataclass(frozen=True)
class Overhead:
    """The same queries by both, in turn, so that what else runs on the machine hits both alike. In milliseconds."""

    local: list[float]
    remote: list[float]
    same: bool  # every answer, bit for bit

    @classmethod
    def of(cls, near: Gallery, far: Gallery, rounds: int) -> Overhead:
        rng = np.random.default_rng(7)
        spent: dict[int, list[float]] = {0: [], 1: []}
        same = True
        for number in range(rounds + 2):
            query, found = make_query(rng), {}
            for one in (0, 1) if number % 2 else (1, 0):
                begin = time.perf_counter()
                found[one] = answer((near, far)[one], query)
                spent[one].append((time.perf_counter() - begin) * 1e3)
            same = same and found[0] == found[1]
        return cls(spent[0][2:], spent[1][2:], same)  # the first two wake both

    def row(self, pictures: int, groups: int) -> str:
        low, middle, high = np.percentile(np.subtract(self.remote, self.local), [25, 50, 75])
        return (
            f"| {pictures:,} | {groups} | {len(self.local)} | {np.median(self.local):.1f} ms "
            f"| {np.median(self.remote):.1f} ms | {middle:+.1f} ms | {low:+.1f} to {high:+.1f} ms "
            f"| {np.percentile(self.remote, 10) - np.percentile(self.local, 10):+.1f} ms "
            f"| {'yes, bit for bit' if self.same else 'NO'} |"
        )


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
            explain_hits(query, gallery, best.positions.tolist(), breakdown=best.breakdown)
            done += 1
        return done

    begin = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        done = sum(pool.map(call, range(callers)))
    spent = time.perf_counter() - begin
    batcher.close()
    return done / spent, float(np.mean(sizes))


@dataclass(frozen=True)
class Recovery:
    """Queries one after the other while an actor is killed with kill -9."""

    usual: float  # seconds from one answer to the next, before
    longest: float  # the same, after the kill, at the most
    failed: int  # queries that said that a group is missing
    wrong: int

    @classmethod
    def of(cls, far: Gallery, query: CompiledQuery, pid: int, seconds: float) -> Recovery:
        wanted = answer(far, query)
        begin = time.perf_counter()
        answer(far, query)
        usual = time.perf_counter() - begin
        failed = wrong = 0
        os.kill(pid, signal.SIGKILL)
        killed = last = time.perf_counter()
        longest = 0.0
        while time.perf_counter() - killed < seconds:
            try:
                wrong += answer(far, query) != wanted
            except Unavailable:
                failed += 1
                time.sleep(0.01)
                continue
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
        return cls(usual, max(longest, time.perf_counter() - last), failed, wrong)


def hold(ray: Any, gallery: Gallery, groups: int, address: str) -> ClusterGallery:
    """All processors of this machine for one group, shared out among several."""
    threads = max(1, (os.cpu_count() or 1) // groups)
    deployment.start(
        ray, deployment.OpenedGallery.at(gallery.path), deployment.DeploymentOptions(groups, threads=threads)
    )
    return ClusterGallery.open(gallery.path, address=address)


def report_overhead(gallery: Gallery, address: str, rounds: int, say: Say, counts: Sequence[int] = (1, 2)) -> None:
    say(
        "| pictures | groups | queries | local p50 | Ray p50 | Ray - local, median of pairs | middle half "
        "| fastest tenths | same answers |"
    )
    say("|---|---|---|---|---|---|---|---|---|")
    ray = connect(address)
    for groups in counts:
        far = hold(ray, gallery, groups, address)
        say(Overhead.of(gallery, far, rounds if len(gallery) > FEW else 5 * rounds).row(len(gallery), groups))
    deployment.stop(ray)


def report_staged(near: Gallery, address: str, rounds: int, say: Say) -> None:
    """All pictures are bounded either way; the floors decide how many are read."""
    say(
        "| pictures | queries | local p50 | Ray, 2 groups, p50 | read locally | read by 2 groups "
        "| the same, each for itself | same answers |"
    )
    say("|---|---|---|---|---|---|---|---|")
    ray, kernel, rng = connect(address), choose_kernel(), np.random.default_rng(5)
    far, spans = hold(ray, near, 2, address), spans_of(near.rows, near.row_count, 2)
    parts = [copy.copy(near) for _ in spans]
    for part, span in zip(parts, spans, strict=True):
        part.rows = near.rows[span.first : span.last]
    times, read, same = np.zeros((rounds, 2)), np.zeros((rounds, 3)), True
    for number in range(rounds + 2):
        query, found = query_of(near.gather(near.rows[rng.integers(0, len(near), 1)]), rng), {}
        for one in (0, 1) if number % 2 else (1, 0):
            begin = time.perf_counter()
            (found[one],) = match([query], (near, far)[one], 10, kernel, "exact")
            times[number % rounds, one] = (time.perf_counter() - begin) * 1e3
        alone = [match([query], part, 10, kernel, "exact")[0].proof for part in parts]
        proofs = [found[0].proof, found[1].proof]
        read[number % rounds] = [proof.read for proof in proofs if proof] + [sum(one.read for one in alone if one)]
        same = same and found[0].positions.tolist() == found[1].positions.tolist()
        same = same and found[0].scores.tobytes() == found[1].scores.tobytes()
    local, remote = np.median(times, axis=0)
    counts = " | ".join(f"{count:,.0f}" for count in read.mean(axis=0))
    told = "yes, bit for bit" if same else "NO"
    say(f"| {len(near):,} | {rounds} | {local:.1f} ms | {remote:.1f} ms | {counts} | {told} |")
    deployment.stop(ray)


def report_throughput(near: Gallery, address: str, seconds: float, say: Say) -> None:
    say("| 8 callers through one batcher | queries per second | queries per sweep |")
    say("|---|---|---|")
    for name, gallery in (("local", near), ("Ray, 2 groups", hold(connect(address), near, 2, address))):
        rate, together = throughput(gallery, 8, seconds)
        say(f"| {name} | {rate:.1f} | {together:.1f} |")
    deployment.stop(connect(address))


def report_recovery(near: Gallery, address: str, seconds: float, say: Say) -> None:
    say(
        "| kill -9 of an actor, 2 groups | usual time of an answer | longest without one | queries that said so "
        "| wrong answers | restarted |"
    )
    say("|---|---|---|---|---|---|")
    ray, opened = connect(address), deployment.OpenedGallery.at(near.path)
    far = hold(ray, near, 2, address)
    for copies in (1, 2):
        killed = deployment.scale(ray, opened, copies=copies)[0].pid
        one = Recovery.of(far, make_query(np.random.default_rng(3)), killed, seconds)
        states = deployment.states_of(ray, deployment.current(ray, opened))
        back = len(states) == 2 * copies and killed not in {state.pid for state in states}
        say(
            f"| {copies} of each group | {one.usual:.1f} s | {one.longest:.1f} s | {one.failed} | {one.wrong} "
            f"| {'yes' if back else 'NO'} |"
        )
    deployment.stop(ray)


PARTS = ("call", "overhead", "staged", "throughput", "recovery")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--staged", type=int, default=5_000, help="pictures of the part staged")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--groups", type=int, nargs="+", default=(1, 2), help="of the overhead at all pictures")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each run of throughput and recovery")
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
        near = Gallery.open(folder) if folder.exists() else make_gallery(folder, options.pictures)
        store = {"object_store_memory": 200 * 2**20, "node_ip_address": "127.0.0.1"}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **store})
        for _ in range(2):
            cluster.add_node(num_cpus=2, **store)
        size = sum(path.stat().st_size for path in near.path.glob("*.npy"))
        say("# Ray beside the local engine")
        say("")
        say(
            f"`python benchmarks/cluster.py`: {len(near):,} pictures, {size / 1e9:.2f} GB (49 x 512, codes"
            f" and fp16), 53 probes per query, k = 10, match and explain. {os.cpu_count()} processors "
            f"({choose_kernel().name}), Ray {version('ray')}, head and two workers on this machine; load average "
            f"{os.getloadavg()[0]:.1f} at the start."
        )
        try:
            for part in options.only:
                say("")
                begin = time.perf_counter()
                if part == "call":
                    report_overhead(make_gallery(Path(place, "few"), FEW), cluster.address, options.rounds, say)
                elif part == "overhead":
                    report_overhead(near, cluster.address, options.rounds, say, options.groups)
                elif part == "staged":
                    alike = make_gallery(Path(place, "alike"), options.staged, NOISE)
                    Gallery.add_first_stage(alike.path)
                    report_staged(Gallery.open(alike.path), cluster.address, options.rounds, say)
                elif part == "throughput":
                    report_throughput(near, cluster.address, options.seconds, say)
                else:
                    report_recovery(near, cluster.address, options.seconds, say)
                print(f"({part}: {time.perf_counter() - begin:.0f} s)", file=sys.stderr, flush=True)
        finally:
            connect(cluster.address).shutdown()
            cluster.shutdown()
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
