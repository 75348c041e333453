"""How much a server takes: answers per second, waiting times and memory, by gallery size and number of clients.

    python benchmarks/serve.py --sizes 458 20000 --clients 1 8 64 --seconds 300 [--gallery FOLDER] [--writes]

With --writes, pictures are put, changed and deleted all the while, and each write must be seen by the next request.
Every answer is compared with the one that this process computed alone before: ids and scores, to the last bit. Clients
only search (three in five by a spec, one in four by an edit, the rest upload a picture that has to be encoded). Beside
them one connection asks for /healthz and one for thumbnails, twice a second. Clients and server share the processors.

Of a larger size than the gallery's, the gallery's own pictures come first; the others are mixtures of two of them and
of noise, so that scores lie as close together as in a real gallery.
"""

from __future__ import annotations

import json
import os
import platform
import random
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

import tapr
from tapr.client import Client, NotFound
from tapr.encoders.base import Evidence, unit
from tapr.gallery import Gallery
from tapr.store import layout
from tapr.store.block import Precision
from tapr.store.catalog import Catalog, Entry
from tapr.store.checksums import FileDigest
from tapr.store.layout import Manifest
from tapr.store.shards import ShardWriter

BATCH, K = 250, 24
WRITTEN, KEPT = "written-", 8  # the ids of pictures that are put, and how many of them stay for a while
MADE_UP = "made-up-"  # the ids of pictures that have vectors and no file
EDITS = ("the same, but red", "at night", "with two people and without the car", "the same as a drawing")
Form = Callable[[dict[str, str], bytes | None], tuple[bytes, dict[str, str]]]


@dataclass(frozen=True)
class QueryLike:
    """A search, and what this process alone answers to it."""

    kind: str
    path: str
    body: bytes
    headers: dict[str, str]
    hits: list[tuple[str, float]]


@dataclass
class Seen:
    times: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    parts: dict[str, list[float]] = field(default_factory=dict)  # seconds of each part of a search, as the server says
    other: int = 0  # answers that are not those of one process alone


def enlarged(source: Gallery, folder: Path, pictures: int, precision: Precision) -> Path:
    """A gallery of so many pictures, written as an index run would write it."""
    folder.mkdir()
    path, card = layout.catalog_path(folder, 0), source.card
    catalog = Catalog.create(path, "made up")
    manifest = Manifest(
        gallery_id="made up",
        encoder=card.to_dict(),
        precision=precision,
        shard_rows=layout.shard_rows_for(card),
        snapshot=0,
        catalog=FileDigest.of(path),
    )
    own = source.gather(source.rows)
    globals_, locals_ = own.global_vectors.astype(np.float32), own.decoded().astype(np.float32)
    entries, rng = source.entries(range(len(source))), np.random.default_rng(0)
    with ShardWriter(folder, manifest, catalog) as shards:
        for start in range(0, pictures, BATCH):
            rows = np.arange(start, min(start + BATCH, pictures))
            first, second = rows % len(source), rng.integers(0, len(source), len(rows))
            made = rows >= len(source)
            vectors = []
            for of in (globals_, locals_):
                mixed = of[first] + 0.7 * of[second] + 0.5 * unit(rng.standard_normal(of[first].shape, np.float32))
                vectors.append(np.where(made.reshape(-1, *[1] * (of.ndim - 1)), unit(mixed), of[first]))
            shards.append(Evidence(*vectors))
            for row, which in zip(rows.tolist(), first.tolist(), strict=True):
                entry = entries[which]
                if row < len(source):
                    catalog.put(replace(entry, row=row, key=None))
                else:
                    catalog.put(Entry(f"{MADE_UP}{row}", f"/made-up/{row}.jpg", 1, 1, f"{row:064x}", row=row))
        shards.commit()
    catalog.close()
    manifest.model_copy(update={"catalog": FileDigest.of(path)}).write(folder)
    return folder


def searches(gallery: Gallery, specs: Sequence[dict[str, Any]], form: Form) -> list[QueryLike]:
    """Some of each kind; the references are pictures that have a file."""
    dice, ids, found = random.Random(0), [id_ for id_ in gallery.ids() if not id_.startswith(MADE_UP)], []

    def hits(ranking: tapr.Ranking) -> list[tuple[str, float]]:
        return [(hit.id, hit.score) for hit in ranking.hits]

    def file_of(id_: str) -> bytes:
        entry = gallery.find(id_)
        assert entry is not None
        return Path(entry.path).read_bytes()

    for _ in range(12):
        id_, spec = dice.choice(ids), dice.choice(specs)
        weights = {name: round(dice.uniform(0.1, 1.5), 2) for name in ("target", "add", "preserve", "remove")}
        body = {"spec": spec, "reference_id": id_, "weights": weights, "k": K}
        answer = tapr.search(gallery, file_of(id_), spec=spec, weights=weights, k=K)
        plain = {"Content-Type": "application/json"}
        found.append(QueryLike("rank", "/api/rank", json.dumps(body).encode(), plain, hits(answer)))
    for number in range(5):
        id_, edit = dice.choice(ids), EDITS[number % len(EDITS)]
        sent = form({"reference_id": id_, "edit": edit, "k": str(K)}, None)
        found.append(QueryLike("search", "/api/search", *sent, hits(tapr.search(gallery, file_of(id_), edit, k=K))))
    for number in range(3):
        file, edit = file_of(dice.choice(ids)), EDITS[number % len(EDITS)]
        # a few bytes after the end make it a picture that the gallery does not have; each client adds others
        answer = tapr.search(gallery, file + b"none", edit, k=K)
        found.append(
            QueryLike("upload", "/api/search", *form({"edit": edit, "k": str(K)}, file + b"@@@@"), hits(answer))
        )
    return found


def client(server: Any, seed: int, until: float, asked: Sequence[QueryLike], seen: Seen) -> None:
    dice, connection = random.Random(seed), server.connection()
    while time.perf_counter() < until:
        one = dice.choice(asked)
        body = one.body.replace(b"@@@@", b"%08x" % dice.getrandbits(32)) if one.kind == "upload" else one.body
        begin = time.perf_counter()
        try:
            connection.request("POST", one.path, body, one.headers)
            reply = connection.getresponse()
            text = reply.read()
        except OSError as error:
            seen.statuses[repr(error)] += 1
            connection = server.connection()
            continue
        seen.statuses[str(reply.status)] += 1
        if reply.status == 429:
            time.sleep(float(reply.headers["Retry-After"]))
        if reply.status != 200:
            continue
        seen.times.append(time.perf_counter() - begin)
        answer = json.loads(text)
        hits = [(hit["id"], hit["score"]) for hit in answer["hits"]]
        known = [hit for hit in hits if not hit[0].startswith(WRITTEN)]  # whose order and scores do not change
        seen.other += len(hits) != K or len(known) < K - KEPT or known != one.hits[: len(known)]
        for name, seconds in answer["seconds"].items():
            seen.parts.setdefault(name, []).append(seconds)


def watch(server: Any, until: float, path: str, times: list[float]) -> None:
    """One small request, twice a second."""
    connection = server.connection()
    while time.perf_counter() < until:
        begin = time.perf_counter()
        connection.request("GET", path)
        connection.getresponse().read()
        times.append(time.perf_counter() - begin)
        time.sleep(0.5)


class Writes:
    """Pictures that come, change and go while others search: copies of the gallery's, with a few bytes more."""

    def __init__(self, server: Any, gallery: Gallery) -> None:
        own = [entry for entry in gallery.entries(range(len(gallery))) if not entry.id.startswith(MADE_UP)]
        self._files = [Path(entry.path).read_bytes() for entry in own[:: max(1, len(own) // 20)]]
        self._server, self._number = server, 0
        self.times: dict[str, list[float]] = {"put": [], "change": [], "delete": []}
        self.unseen = 0

    def run(self, until: float) -> None:
        with Client(self._server.url, seconds=120) as client:
            while time.perf_counter() < until:
                id_, gone = f"{WRITTEN}{self._number}", f"{WRITTEN}{self._number - KEPT}"
                file = self._files[self._number % len(self._files)] + b"%08x" % self._number
                self._timed("put", lambda: client.put(id_, file, {"price": self._number}))  # noqa: B023
                self.unseen += not client.image(id_, size=64)
                self._timed("change", lambda: client.put(id_, metadata={"price": -1}))  # noqa: B023
                if self._number >= KEPT:
                    self._timed("delete", lambda: client.delete(gone))  # noqa: B023
                    try:
                        client.image(gone)
                        self.unseen += 1
                    except NotFound:
                        pass
                self._number += 1
                time.sleep(0.2)

    def _timed(self, name: str, act: Callable[[], object]) -> None:
        begin = time.perf_counter()
        act()
        self.times[name].append(time.perf_counter() - begin)

    def tell(self) -> None:
        parts = [
            f"{len(times)} of {name} (p50 {1000 * float(np.median(times)):.0f} ms)"
            for name, times in self.times.items()
            if times
        ]
        print(f"writes beside all of these: {', '.join(parts)}; {self.unseen} were not seen at once", flush=True)


def processor_seconds(pid: int) -> float:
    """Of all threads of a process, on Linux: on a machine with other work to do, the steadiest figure."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(
    server: Any, clients: int, seconds: float, asked: Sequence[QueryLike], ids: list[str], writes: Writes | None
) -> bool:
    until, seen = time.perf_counter() + seconds, [Seen() for _ in range(clients)]
    health: list[float] = []
    pictures: list[float] = []
    threads = [threading.Thread(target=client, args=(server, i, until, asked, one)) for i, one in enumerate(seen)]
    threads.append(threading.Thread(target=watch, args=(server, until, "/healthz", health)))
    thumbnail = f"/api/images/{quote(ids[0], safe='')}?size=256"
    threads.append(threading.Thread(target=watch, args=(server, until, thumbnail, pictures)))
    if writes:
        threads.append(threading.Thread(target=writes.run, args=(until,)))
    begin, used = time.perf_counter(), processor_seconds(server.process.pid)
    for thread in threads:
        thread.start()
    memory = [server.memory()]
    while time.perf_counter() < until:
        time.sleep(min(5.0, max(0.1, until - time.perf_counter())))
        memory.append(server.memory())
    for thread in threads:
        thread.join()
    taken, used = time.perf_counter() - begin, processor_seconds(server.process.pid) - used
    times = [each for one in seen for each in one.times]
    statuses = sum((one.statuses for one in seen), Counter[str]())
    other = sum(one.other for one in seen)
    p50, p99 = np.percentile(times, (50, 99)) if times else (np.nan, np.nan)
    parts: dict[str, list[float]] = {}
    for one in seen:
        for name, values in one.parts.items():
            parts.setdefault(name, []).extend(values)
    where = ", ".join(f"{name} {1000 * float(np.mean(values)):.0f}" for name, values in parts.items())
    print(
        f"| {clients} | {len(times)} | {len(times) / taken:.2f} | {1000 * p50:.0f} | {1000 * p99:.0f} | "
        f"{1000 * used / max(len(times), 1):.0f} | "
        f"{1000 * np.percentile(health, 99):.0f} | {1000 * np.percentile(pictures, 99):.0f} | {max(memory):.0f} | "
        f"{other} | {', '.join(f'{status}: {number}' for status, number in statuses.items())} | {where} |",
        flush=True,
    )
    return other == 0 and set(statuses) <= {"200", "429"}


def processor() -> str:
    try:
        names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def capacity(
    make_server: Callable[..., Any],
    source: Gallery,
    sizes: Sequence[int],
    loads: Sequence[int],
    seconds: float,
    precision: Precision,
    specs: Sequence[dict[str, Any]],
    form: Form,
    with_writes: bool,
) -> bool:
    """-> whether every answer was the one of a single process, and every write was seen"""
    good = True
    for size in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            same = size == len(source) and precision == source.precision and not with_writes
            path = source.path if same else enlarged(source, Path(scratch, "gallery"), size, precision)
            gallery = Gallery.open(path)
            asked = searches(gallery, specs, form)
            print(f"\n{size:,} pictures, {gallery.card.name}, {gallery.precision}, {seconds:.0f} s each, {processor()}")
            print("| clients | answers | per second | p50 ms | p99 ms | processor ms per answer ", end="")
            print("| healthz p99 ms | thumbnail p99 ms | MB | other answers | statuses | ms on average of |")
            print("|---|---|---|---|---|---|---|---|---|---|---|---|")
            server = make_server(path, *(["--allow-write"] if with_writes else []))
            try:
                writes = Writes(server, gallery) if with_writes else None
                for clients in loads:
                    good &= load(server, clients, seconds, asked, gallery.ids(), writes)
                if writes:
                    writes.tell()
                    good &= writes.unseen == 0
            finally:
                server.process.kill()
                server.process.wait()
    return good
