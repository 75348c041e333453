"""What the processes of peers.py do: one builds an index, another one searches it."""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.first_stage import read_queries
from benchmarks.peer_engines import ENGINES, Engine, Find, Pictures, form_of
from benchmarks.peer_rows import Key, Row, add, done, key
from numpy.typing import NDArray

import tapr
from tapr.result import Proof
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Kernel, finest
from tapr.search.kernels.choose import choose_kernel
from tapr.search.kernels.top_scores import best_of
from tapr.search.match import match
from tapr.search.sweep import score_rows
from tapr.search.topk import TopK, top_k_many
from tapr.store import layout
from tapr.store.shards import summary_parts
from tapr.store.summary import Summariser
from tapr.types import Float32
from tapr.utils.threads import thread_count

K = 10
OURS = ("exact", "full", "prefilter", "budget")  # the first one gives the answers that all others are held to
SUMMARISED = 4096  # pictures by which the first stage's making is timed
WARM_UP = 3  # queries of each kind before the clock counts
SELF_QUERIES, AMONG = 32, 100  # so many pictures are asked for themselves; most are among their first hundred
ROOM = 0.7  # of the free memory: what fits into so much is read once before a search is timed

By = dict[str, NDArray[Any]]  # by name


@dataclass(frozen=True)
class Answer:
    positions: NDArray[np.int64]
    scores: Float32
    candidates: int
    candidates_ms: float | None = None  # until they were found
    proof: Proof | None = None


Ask = Callable[[CompiledQuery], Answer]


class Run:
    """What the command line says, opened."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.queries = read_queries(asked.work, asked.queries)
        self.before = memory(), memory("RssFile")
        self.gallery = tapr.Gallery.open(asked.gallery)
        if self.gallery.subspaces is None:
            raise SystemExit(f"{asked.gallery} has no first stage: tapr first-stage -g {asked.gallery}")
        self.gallery = copy.copy(self.gallery)
        self.gallery.rows = self.gallery.rows[: asked.size]
        manifest = self.gallery.manifest
        self.state = f"{(manifest.gallery_id or '')[:8]}-{manifest.snapshot}"
        self.folder: Path = asked.work / f"peers-{self.state}-{len(self.gallery)}"
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def pictures(self) -> Pictures:
        return Pictures.of(self.gallery, self.folder / "pooled.npy")

    @property
    def truth(self) -> Path:
        """The exact answers, by the queries that they are of."""
        said = hashlib.sha256((self.asked.work / "queries.pkl").read_bytes()).hexdigest()[:12]
        return self.folder / f"exact-{said}-{self.asked.queries}.npz"

    @property
    def done(self) -> set[Key]:
        return done(self.asked.out, self.asked.limit_minutes)

    def count_for(self, system: str) -> int:
        if system == "exact":  # what all others are held to
            return int(self.asked.queries)
        return int(min(self.asked.queries, self.asked.fewer.get(system, self.asked.queries)))

    def settings(self, system: str) -> dict[str, float]:
        """By their names in the table."""
        numbers = {"prefilter": ("prefilter", self.asked.prefilter), "budget": ("budget_ms", self.asked.budget_ms)}
        if system in ("full", "exact"):
            return {system: 0}
        name, several = numbers.get(system, ("N", self.asked.candidates))
        return {f"{name} = {number:,}": number for number in several}

    def named(self, system: str, setting: str, kind: str) -> Row:
        return {
            "gallery": self.state,
            "pictures": len(self.gallery),
            "system": system,
            "setting": setting,
            "queries": kind,
            "asked": self.count_for(system),
        }


def build(run: Run, system: str) -> None:
    """Leaves built.json beside the index."""
    folder = run.folder / system
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    engine = engine_of(system)
    pictures = None if engine is None else run.pictures
    with Watch() as watch:
        start = time.perf_counter(), time.process_time()
        if engine is None or pictures is None:
            counted = _summarise(run.gallery)
        else:
            engine.build(pictures, engine.form, folder)
            counted = len(pictures)
        share = len(run.gallery) / counted
        seconds, used = time.perf_counter() - start[0], time.process_time() - start[1]
    size = _first_stage_bytes(run.gallery) if engine is None else _bytes_in(folder) / len(run.gallery)
    told = {
        "build_s": share * seconds,
        "build_processor_s": share * used,
        "build_threads": thread_count(),
        "build_of": counted,
        "build_memory": watch.most,
        "disk": size,
    }
    (folder / "built.json").write_text(json.dumps(told))


def _summarise(gallery: tapr.Gallery) -> int:
    """Does for some pictures what `tapr first-stage` does for all."""
    assert gallery.subspaces is not None
    summariser, count = Summariser(gallery.subspaces), min(SUMMARISED, len(gallery))
    for start in range(0, count, 256):
        block = gallery.gather(gallery.rows[start : min(start + 256, count)])
        parts = {layout.GLOBAL: block.global_vectors, layout.LOCAL: block.decoded()}
        summary_parts(parts, summariser)
    return count


def _first_stage_bytes(gallery: tapr.Gallery) -> float:
    kinds = gallery.manifest.kinds()
    return float(sum(np.prod(kinds[kind][0]) * kinds[kind][1].itemsize for kind in layout.SUMMARY_KINDS))


def _bytes_in(folder: Path) -> int:
    """On the disk: files that are set up for growth may have holes."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


class Watch:
    """The most anonymous memory while something runs."""

    def __init__(self) -> None:
        self.most, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        before = memory()
        while not self._over.wait(0.2):
            self.most = max(self.most, memory() - before)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def memory(kind: str = "RssAnon") -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not say how much memory a process uses")


def search(run: Run, system: str) -> None:
    """Adds a row per setting and kind of query to the results."""
    kernel, truth = choose_kernel(), dict[str, NDArray[Any]]()
    if system != "exact":
        truth = dict(np.load(run.truth))
    warm = _read_once(run, system)
    find = None
    if (engine := engine_of(system)) is not None:
        find = engine.open(run.folder / system)
        check_ids(run.pictures, engine, find)
    known = run.done
    for setting, number in run.settings(system).items():
        if engine is not None and find is not None:
            ask = ranking(engine, find, run.gallery, kernel, min(int(number), len(run.gallery)))
        else:
            ask = ours(run.gallery, system, number, kernel)
        for kind, several in run.queries.items():
            row = run.named(system, setting, kind)
            if key(row) in known and system != "exact":
                continue
            told, answers = timed(ask, several[: run.count_for(system)], run.before)
            if system == "exact":
                assert all(answer.proof is not None and answer.proof.proven for answer in answers)
                truth[f"{kind}-positions"] = np.stack([answer.positions for answer in answers])
                truth[f"{kind}-scores"] = np.stack([answer.scores for answer in answers])
            told |= against(truth, kind, answers)
            row |= _built(run, system) | told | {"warm": warm, "version": version_of(system), "kernel": kernel.name}
            add(run.asked.out, row)
    if system == "exact":
        new = run.truth.with_name("new.npz")
        with new.open("wb") as file:
            np.savez(file, allow_pickle=False, **truth)
        new.rename(run.truth)


def ours(gallery: tapr.Gallery, system: str, number: float, kernel: Kernel) -> Ask:
    if system == "full":
        return lambda query: _answer(top_k_many([query], gallery, K, kernel)[0], len(gallery))
    if system == "exact":
        return lambda query: _answer(match([query], gallery, K, kernel, "exact")[0])
    if system == "prefilter":
        return lambda query: _answer(match([query], gallery, K, kernel, int(number))[0])
    return lambda query: _answer(match([query], gallery, K, kernel, None, number)[0])


def _answer(found: TopK, read: int = 0) -> Answer:
    return Answer(found.positions, found.scores, found.proof.read if found.proof else read, proof=found.proof)


def ranking(engine: Engine, find: Find, gallery: tapr.Gallery, kernel: Kernel, count: int) -> Ask:
    """An engine's candidates, ranked by our exact score."""
    level = finest(gallery)

    def ask(query: CompiledQuery) -> Answer:
        start = time.perf_counter()
        found = find(form_of(query, engine.form), count)
        until = time.perf_counter()
        positions = np.sort(found[found >= 0])  # FAISS fills up with -1; ties go by gallery order
        (scores,) = score_rows([query], gallery, kernel, level, gallery.rows[positions])
        best = best_of(scores, K)
        return Answer(positions[best], scores[best], len(positions), 1e3 * (until - start))

    return ask


def check_ids(pictures: Pictures, engine: Engine, find: Find) -> None:
    """An engine's ids are positions: pictures that are asked for find themselves."""
    asked = np.unique(np.linspace(0, len(pictures) - 1, SELF_QUERIES).astype(np.int64))
    found = [find(pictures.query_like(engine.form, int(position)), AMONG) for position in asked]
    for ids in found:
        kept = ids[ids >= 0]
        assert len(np.unique(kept)) == len(kept), f"{engine.name} names a picture twice"
        assert kept.max() < len(pictures), f"{engine.name} names a picture that it was not given"
    share = np.mean([position in ids for position, ids in zip(asked, found, strict=True)])
    assert share >= 0.9, f"{engine.name} finds only {share:.0%} of the pictures that are asked for by themselves"


def timed(ask: Ask, queries: list[CompiledQuery], before: tuple[int, int]) -> tuple[Row, list[Answer]]:
    for query in queries[-WARM_UP:]:
        ask(query)
    answers, times, most, mapped = list[Answer](), list[tuple[float, float]](), 0, 0
    for query in queries:
        start = time.perf_counter(), time.process_time()
        answers.append(ask(query))
        times.append((1e3 * (time.perf_counter() - start[0]), 1e3 * (time.process_time() - start[1])))
        most, mapped = max(most, memory()), max(mapped, memory("RssFile"))
    wall, used = np.array(times).T
    told = {
        "median_ms": float(np.median(wall)),
        "p95_ms": float(np.quantile(wall, 0.95)),
        "processor_ms": float(np.median(used)),
        "candidates": float(np.mean([answer.candidates for answer in answers])),
        "memory": most - before[0],
        "mapped": mapped - before[1],
    }
    finding = [answer.candidates_ms for answer in answers if answer.candidates_ms is not None]
    if finding:
        told |= {"candidates_ms": float(np.median(finding)), "candidates_p95_ms": float(np.quantile(finding, 0.95))}
    proofs = [answer.proof.proven for answer in answers if answer.proof is not None]
    if proofs:
        told["proven"] = float(np.mean(proofs))
    return told, answers


def against(truth: By, kind: str, answers: list[Answer]) -> Row:
    """Recall of the exact ten. Answers that are proven, or of a full scan, must be those very pictures and scores."""
    shares = []
    for answer, positions, scores in zip(answers, truth[f"{kind}-positions"], truth[f"{kind}-scores"], strict=False):
        if answer.proof.proven if answer.proof is not None else answer.candidates_ms is None:
            assert answer.positions.tolist() == positions.tolist(), "an exact answer differs from the proven one"
            assert answer.scores.tolist() == scores.tolist(), "an exact answer's scores differ from the proven ones"
        shares.append(min(1.0, float((answer.scores >= scores[-1]).sum()) / len(scores)))
    return {"recall": float(np.mean(shares)), "worst": float(np.min(shares))}


def _read_once(run: Run, system: str) -> str:
    """Reads files into the system's cache, so that all are measured warm where they fit."""
    shards = -(-int(run.gallery.rows.max() + 1) // run.gallery.manifest.shard_rows)
    files = [file for file in run.gallery.path.glob("*.npy") if int(file.stem.rsplit("-", 1)[1]) < shards]
    of_engine = [file for file in (run.folder / system).rglob("*") if file.is_file()]
    files += [file for file in of_engine if file.suffix != ".lance"]  # vectors that Lance has codes of in its index
    small = [file for file in files if not file.name.startswith((f"{layout.LOCAL}-", f"{layout.CODES}-"))]
    room = ROOM * _available()
    fits = sum(file.stat().st_size for file in files) <= room
    for file in files if fits else small:
        with file.open("rb") as opened:
            while opened.read(1 << 24):
                pass
    return "all files" if fits else "all but the local vectors"


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not say how much memory is free")


def engine_of(system: str) -> Engine | None:
    return next((engine for engine in ENGINES if engine.name == system), None)


def version_of(system: str) -> str:
    engine = engine_of(system)
    try:
        return tapr.__version__ if engine is None else version(engine.package)
    except PackageNotFoundError:
        return "not installed"


def _built(run: Run, system: str) -> Row:
    """Of an engine, or of the first stage."""
    path = run.folder / (system if engine_of(system) else "first-stage") / "built.json"
    if system == "full":
        return {"disk": 0.0}
    told: Row = json.loads(path.read_text()) if path.exists() else {}
    return told
