"""Searches by a first stage while the gallery is written to: every answer is compared with a full scan of its snapshot.

    PYTHONPATH=src:. python -m benchmarks.first_stage_writes --gallery FOLDER [--pictures 12000] [--compared 2000]

The gallery's vectors are written as a new gallery with a first stage; of more pictures than it has, the others are
mixtures of two of them. A server of its own process serves it, as `tapr serve` does. Writers put, replace and
delete pictures over HTTP, five per second together. Clients ask by words, by a picture, by both and with a filter, with
`prefilter: exact`. Of a gallery above 12,000 pictures a fifth of the searches says nothing, and the server uses the
first stage by itself.

Every answer names its snapshot. This process opens each snapshot as it is published, scores all its pictures, and
compares ids and scores to the last bit. What is put is a picture of one colour, which stands for a mixture of two
vectors: encoding it costs nothing, and the processors do searches and writes.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import io
import json
import queue
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import Encoder, EncoderCard, Evidence, unit
from tapr.encoders.caching import CachingEncoder
from tapr.encoders.registry import load_encoder
from tapr.encoders.wrapper import EncoderWrapper
from tapr.gallery import Gallery
from tapr.options import SearchOptions
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel
from tapr.search.kernels.choose import choose_kernel
from tapr.search.searcher import Searcher
from tapr.search.topk import TopK, top_k_many
from tapr.store import layout
from tapr.store.catalog import Catalog, Entry
from tapr.store.checksums import FileDigest
from tapr.store.layout import Manifest
from tapr.store.shards import ShardWriter
from tapr.store.summary import WORTH
from tapr.store.verify import verify

SPECS: tuple[dict[str, Any], ...] = (
    {"target": "a red car in a street", "add": ["a red car"], "preserve": ["a street"], "remove": ["people"]},
    {"target": "a dog on a beach", "add": ["a beach"], "preserve": ["a dog"], "remove": []},
    {"target": "a kitchen at night", "add": ["night"], "preserve": [], "remove": ["a window", "daylight"]},
    {"target": "two people ride bicycles", "add": ["two people"], "preserve": ["bicycles"], "remove": ["cars"]},
)
WORDS = ("a train", "a plate of food", "a man with a surfboard", "snow", "a cat that sleeps", "a giraffe")
FILTERS = ("width = 16", "width < 16", "id like '%7'")
JSON = {"Content-Type": "application/json"}
WRITERS = 8  # together they do as many writes per second as were asked for
BATCH = 128  # pictures written at a time
KEPT = 200  # snapshots that an answer may still come from
WAITING = 60  # answers that may wait for their check before clients pause


# pictures that stand for vectors


class Colours(EncoderWrapper):
    """Reads texts as another encoder does. A picture's colour is a number, which names a mixture of stored vectors."""

    def __init__(self, encoder: Encoder, source: Gallery) -> None:
        super().__init__(encoder)
        self._source = source

    @property
    def card(self) -> EncoderCard:
        return replace(super().card, name="colours")

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        return np.array(image.convert("RGB").getpixel((0, 0)), np.uint8)

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        found = [self._mixture(int(colour @ np.array([1, 256, 65536]))) for colour in prepared]
        wholes, locals_ = zip(*found, strict=True) if found else ((), ())
        dim, count = self.card.dim, self.card.locals_count
        return Evidence(
            np.array(wholes, np.float32).reshape(-1, dim), np.array(locals_, np.float32).reshape(-1, count, dim)
        )

    def _mixture(self, number: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        dice = np.random.default_rng((17, number))
        block = self._source.gather(dice.integers(0, self._source.row_count, 2))
        x = np.float32(dice.uniform(0, 0.35))
        wholes, locals_ = block.global_vectors.astype(np.float32), block.decoded().astype(np.float32)
        return unit((1 - x) * wholes[0] + x * wholes[1]), unit((1 - x) * locals_[0] + x * locals_[1])


def encoder_of(source: Path) -> CachingEncoder:
    gallery = Gallery.open(source)
    return CachingEncoder(Colours(load_encoder(gallery.card.name), gallery), together=1)


def colour_of(number: int) -> NDArray[np.uint8]:
    return np.array([number & 255, number >> 8 & 255, number >> 16], np.uint8)


def picture(number: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((16, 16, 3), colour_of(number))).save(out, "PNG")
    return out.getvalue()


def build(source: Path, folder: Path, pictures: int) -> None:
    """Written as an index run would write it."""
    gallery, encoder = Gallery.open(source), encoder_of(source)
    folder.mkdir()
    path = layout.catalog_path(folder, 0)
    catalog = Catalog.create(path, "colours")
    manifest = Manifest(
        gallery_id="colours",
        encoder=encoder.card.to_dict(),
        precision="fp16",
        shard_rows=layout.shard_rows_for(encoder.card),
        snapshot=0,
        catalog=FileDigest.of(path),
    )
    with ShardWriter(folder, manifest, catalog) as shards:
        for start in range(0, pictures, BATCH):
            rows = np.arange(start, min(start + BATCH, pictures))
            own = gallery.gather(rows[rows < gallery.row_count])
            made = encoder.encode_images([colour_of(row) for row in rows[rows >= gallery.row_count].tolist()])
            shards.append(
                Evidence(
                    np.concatenate([own.global_vectors, made.global_vectors]),
                    np.concatenate([own.decoded(), made.local_vectors]),
                )
            )
            for row in rows.tolist():
                catalog.put(Entry(f"stored-{row}", f"/stored/{row}.jpg", 1, 1, f"{row:064x}", row=row))
        shards.commit()
    catalog.close()
    manifest.model_copy(update={"catalog": FileDigest.of(path)}).write(folder)
    Gallery.add_first_stage(folder)


def serve(folder: Path, source: Path) -> None:
    """A process of its own: the server's address goes to its standard output."""
    from tapr.server.app import create_app
    from tapr.server.connections import listen, server_of
    from tapr.server.settings import Settings

    settings = Settings(port=0, allow_write=True)
    with listen(settings) as listening:
        app = create_app(Gallery.open(folder, encoder=encoder_of(source)), settings, "target-only")
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        server_of(app, settings).run(sockets=[listening])


# those who write, ask and check


@dataclass
class Shared:
    """What the threads tell each other."""

    url: str
    wanted: int  # answers to compare
    until: float  # by the monotonic clock
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    snapshots: dict[int, Gallery] = field(default_factory=dict)
    answers: queue.Queue[tuple[dict[str, Any], dict[str, Any]]] = field(
        default_factory=lambda: queue.Queue(maxsize=WAITING)
    )
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    times: dict[str, list[float]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)  # snapshots that answers came from
    read: list[float] = field(default_factory=list)  # shares of pictures read in full
    wrong: list[str] = field(default_factory=list)
    compared = unequal = missed = staged = 0

    def fault(self, sentence: str) -> None:
        with self.lock:
            self.wrong.append(sentence)
        print(f"WRONG: {sentence[:600]}", flush=True)

    def connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    def send(
        self, connection: http.client.HTTPConnection, kind: str, *request: Any, right: tuple[int, ...] = (200,)
    ) -> dict[str, Any] | None:
        begin = time.perf_counter()
        connection.request(*request)
        reply = connection.getresponse()
        content = reply.read()
        with self.lock:
            self.statuses[kind, reply.status] += 1
            self.times.setdefault(kind, []).append(time.perf_counter() - begin)
        if reply.status not in right:
            self.fault(f"{kind} was answered {reply.status}: {content[:300]!r}")
            return None
        told: dict[str, Any] = json.loads(content)
        return told


class Writer:
    """One write after the other, at fixed times. Each opens the snapshot that it made, or one that followed at once."""

    def __init__(
        self, shared: Shared, name: str, folder: Path, encoder: CachingEncoder, stored: list[str], pause: float
    ) -> None:
        self._shared, self._folder, self._encoder, self._stored = shared, folder, encoder, stored
        self._name, self._pause, self._dice, self._number = name, pause, random.Random(name), 0
        self._dice.shuffle(stored)
        self._put: list[str] = []
        self.begun = self.ended = 0.0

    def run(self) -> None:
        shared, connection = self._shared, self._shared.connection()
        self.begun = time.monotonic()
        for number in range(1, 1 << 30):
            kind, request = self._write()
            told = shared.send(connection, kind, *request, right=(200, 201))
            if told is not None:
                self._open(told["snapshot"])
            self.ended = time.monotonic()
            if shared.over.wait(max(0.0, self.begun + number * self._pause - self.ended)):
                return

    def _write(self) -> tuple[str, tuple[Any, ...]]:
        draw = self._dice.random()
        if draw < 0.25:
            return "delete", ("DELETE", f"/api/images/{quote(self._stored.pop(), safe='')}")
        if draw < 0.45 and self._put:
            id_ = self._put.pop(self._dice.randrange(len(self._put)))
            return "delete", ("DELETE", f"/api/images/{id_}")
        self._number += 1
        if draw < 0.6 and self._put:
            return "replace", self._request(self._dice.choice(self._put))
        self._put.append(f"put-{self._name}-{self._number}")
        return "put", self._request(self._put[-1])

    def _request(self, id_: str) -> tuple[Any, ...]:
        price = json.dumps({"price": self._dice.randrange(100)})
        parts = [
            b'--b\r\nContent-Disposition: form-data; name="picture"; filename="x.png"\r\n\r\n',
            picture(self._dice.randrange(1 << 24)),
            b'\r\n--b\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n',
            price.encode(),
            b"\r\n--b--\r\n",
        ]
        return "PUT", f"/api/images/{id_}", b"".join(parts), {"Content-Type": "multipart/form-data; boundary=b"}

    def _open(self, snapshot: int) -> None:
        gallery = Gallery.open(self._folder, encoder=self._encoder)
        opened = gallery.manifest.snapshot or 0
        if opened < snapshot:
            self._shared.fault(f"a write made snapshot {snapshot}, and the gallery is at {opened}")
        with self._shared.lock:
            self._shared.snapshots[opened] = gallery
            for old in [one for one in self._shared.snapshots if one <= opened - KEPT]:
                del self._shared.snapshots[old]


def question(dice: random.Random, unasked: bool) -> dict[str, Any]:
    """What is asked over HTTP; a reference is a picture in base64."""
    asked: dict[str, Any] = {"k": dice.choice((1, 10, 24, 50)), "explain": dice.random() < 0.3}
    if not unasked or dice.random() < 0.8:
        asked["prefilter"] = "exact"
    if dice.random() < 0.15:
        asked["where"] = dice.choice(FILTERS)
    draw = dice.random()
    if draw < 0.4:
        return asked | {"text": dice.choice(WORDS)}
    sent = base64.b64encode(picture(dice.randrange(1 << 24))).decode()
    if draw < 0.5:
        return asked | {"reference": sent, "like": True}
    weights = {name: round(dice.uniform(0.1, 1.5), 2) for name in ("target", "add", "preserve", "remove")}
    return asked | {"reference": sent, "spec": dice.choice(SPECS), "weights": weights}


def client(shared: Shared, seed: int, unasked: bool) -> None:
    """`unasked`: the gallery is so large that a search which says nothing of a first stage uses it too."""
    dice, connection = random.Random(seed), shared.connection()
    while not shared.over.is_set():
        asked = question(dice, unasked)
        told = shared.send(connection, "search", "POST", "/api/search", json.dumps(asked).encode(), JSON)
        while told is not None and not shared.over.is_set():
            try:
                shared.answers.put((asked, told), timeout=0.5)
                break
            except queue.Full:
                continue


@dataclass(frozen=True)
class FullSweep:
    """Matches without the first stage."""

    kernel: Kernel

    def top_k(self, query: CompiledQuery, bank: Bank, k: int, *_: Any) -> TopK:
        return top_k_many([query], bank, k, self.kernel)[0]


class Checker:
    """Scores all pictures of the snapshot that an answer names."""

    def __init__(self, shared: Shared) -> None:
        self._shared, self._kernel = shared, choose_kernel()

    def run(self) -> None:
        shared = self._shared
        while shared.compared < shared.wanted and time.monotonic() < shared.until:
            try:
                asked, told = shared.answers.get(timeout=1)
            except queue.Empty:
                continue
            try:
                self._check(asked, told)
            except Exception as error:
                shared.fault(f"the check of {shown(asked)} failed: {error!r}")
        shared.over.set()

    def _check(self, asked: dict[str, Any], told: dict[str, Any]) -> None:
        shared, snapshot = self._shared, told["snapshot"]
        gallery = self._gallery(snapshot)
        if gallery is None:
            shared.missed += 1
            return
        given = {name: value for name, value in asked.items() if name not in ("prefilter", "reference", "like")}
        if "reference" in asked:
            given["like" if "like" in asked else "reference"] = base64.b64decode(asked["reference"])
        right = Searcher(gallery, matcher=FullSweep(self._kernel)).search(SearchOptions.of(**given))
        wanted = [(hit["id"], hit["score"]) for hit in json.loads(json.dumps(right.to_dict()))["hits"]]
        found = [(hit["id"], hit["score"]) for hit in told["hits"]]
        proof = told["prefilter"]
        if "prefilter" in asked and told["hits"] and (proof is None or not proof["proven"]):
            shared.fault(f"snapshot {snapshot}: {shown(asked)} was not answered by a proven search: {proof}")
        shared.compared += 1
        shared.seen.add(snapshot)
        if proof is not None:
            shared.staged += 1
            shared.read.append(proof["read"] / max(1, proof["pictures"]))
        if found != wanted:
            shared.unequal += 1
            place = next((n for n, both in enumerate(zip(found, wanted, strict=False)) if both[0] != both[1]), -1)
            shared.fault(
                f"snapshot {snapshot}: {shown(asked)}: {len(found)} hits and {len(wanted)} right ones; at place "
                f"{place + 1} {found[place : place + 1]} for {wanted[place : place + 1]}"
            )
        if shared.compared % 250 == 0:
            print(f"  {shared.compared:,} compared, {shared.unequal} unequal", file=sys.stderr, flush=True)

    def _gallery(self, snapshot: int) -> Gallery | None:
        """An answer may come from a snapshot whose write is being answered now."""
        for _ in range(600):
            with self._shared.lock:
                gallery = self._shared.snapshots.get(snapshot)
                newest = max(self._shared.snapshots)
            if gallery is not None or snapshot < newest:
                return gallery
            time.sleep(0.05)
        raise TimeoutError(f"snapshot {snapshot} never came")


def shown(asked: dict[str, Any]) -> str:
    return json.dumps({name: "..." if name == "reference" else value for name, value in asked.items()})


def run(root: Path, arguments: argparse.Namespace) -> bool:
    folder = root / "gallery"
    begin = time.monotonic()
    build(arguments.gallery, folder, arguments.pictures)
    print(f"{arguments.pictures:,} pictures with a first stage, made in {time.monotonic() - begin:.0f} s", flush=True)
    encoder = encoder_of(arguments.gallery)
    command = [sys.executable, "-m", "benchmarks.first_stage_writes", "--serve", str(folder)]
    with (root / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--gallery", str(arguments.gallery)], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        if not url:
            raise RuntimeError((root / "server.log").read_text()[-2000:])
        shared = Shared(url, arguments.compared, time.monotonic() + 60 * arguments.minutes)
        first = Gallery.open(folder, encoder=encoder)
        shared.snapshots[first.manifest.snapshot or 0] = first
        stored = first.ids()
        writers = [
            Writer(shared, str(n), folder, encoder, stored[n::WRITERS], WRITERS / arguments.writes)
            for n in range(WRITERS)
        ]
        acts: list[Callable[[], None]] = [*(writer.run for writer in writers), Checker(shared).run]
        unasked = arguments.pictures > 1.2 * WORTH
        acts += [partial(client, shared, seed, unasked) for seed in range(arguments.clients)]
        threads = [threading.Thread(target=guarded, args=(act, shared)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if server.poll() is not None:
            shared.fault(f"the server ended with {server.returncode}")
    finally:
        server.terminate()
        server.wait(60)
    for line in (root / "server.log").read_text().splitlines():
        if "ERROR" in line or "Traceback" in line:
            shared.fault(f"the server's log: {line}")
    if damage := verify(folder).damage:
        shared.fault(f"damage: {damage}")
    return report(shared, writers[0], arguments)


def guarded(act: Callable[[], None], shared: Shared) -> None:
    """A thread that ends by an error ends the others."""
    try:
        act()
    except Exception as error:
        shared.fault(f"a thread ended: {error!r}")
        shared.over.set()


def report(shared: Shared, writer: Writer, arguments: argparse.Namespace) -> bool:
    seconds = writer.ended - writer.begun
    writes = sum(count for (kind, status), count in shared.statuses.items() if kind != "search" and status < 300)
    broken = sum(count for (_, status), count in shared.statuses.items() if status >= 500)
    print(f"{seconds:.0f} s, {arguments.clients} clients; {writes:,} writes, {writes / seconds:.1f} per second")
    print("\n| request | answers by status | p50 ms | p95 ms |\n|---|---|---|---|")
    for kind in sorted(shared.times):
        statuses = ", ".join(f"{n:,} x {status}" for (one, status), n in sorted(shared.statuses.items()) if one == kind)
        p50, p95 = np.percentile(np.array(shared.times[kind]) * 1000, (50, 95))
        print(f"| {kind} | {statuses} | {p50:.0f} | {p95:.0f} |")
    print(f"\nanswers compared {shared.compared:,}, of {len(shared.seen):,} snapshots; unequal {shared.unequal}")
    print(f"by the first stage {shared.staged:,} of them, with a median of {np.median(shared.read):.1%} read in full")
    print(f"snapshots gone before the check {shared.missed}; 5xx {broken}; faults {len(shared.wrong)}")
    return not shared.wrong and not broken and shared.compared >= arguments.compared


def main() -> None:
    parser = argparse.ArgumentParser(description="Searches by a first stage beside writes; every answer compared.")
    parser.add_argument("--gallery", type=Path, required=True, help="whose vectors are used; made by clip-b16")
    parser.add_argument("--pictures", type=int, default=12_000)
    parser.add_argument("--compared", type=int, default=2000)
    parser.add_argument("--writes", type=float, default=5, help="per second")
    parser.add_argument("--minutes", type=float, default=30, help="after which it ends, however many are compared")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.serve, arguments.gallery)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))  # each kept snapshot has its files open
    root = Path(tempfile.mkdtemp(prefix="first-stage-writes"))
    try:
        fine = run(root, arguments)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
