"""A server under mixed load while pictures are put and deleted over HTTP: every answer is checked.

    python -m benchmarks.live [--minutes 3] [--clients 4] [--pictures 150] [--pause 0.3]

The same clients and the same checker as soak.py's; instead of index runs, one writer puts, replaces and deletes
pictures and changes metadata, one by one and in batches. After every write a search must see it. This process opens
every snapshot and ranks it again by itself, with NumPy's kernel: ids, scores and order must agree. At the end an index
run must leave all of it in place, and every byte of the gallery is verified.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import json
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.soak import JSON, Changer, Checker, Server, Shared, client, form, told, watch

from tapr import demo
from tapr.encoders.caching import CachingEncoder
from tapr.encoders.registry import load_encoder
from tapr.gallery import Gallery
from tapr.store.verify import verify

KEPT = 300  # snapshots that an answer may still come from


class Writer:
    """One at a time, so that every snapshot is seen here before the next one takes its place."""

    def __init__(self, server: Server, bank: Path, pool: list[bytes], shared: Shared, pause: float) -> None:
        self._connection, self._bank, self._pool = server.connection(), bank, pool
        self._shared, self._pause = shared, pause
        self._dice, self._made = random.Random(7), 0
        self.done: Counter[str] = Counter()

    def run(self, encoder: CachingEncoder) -> None:
        while time.monotonic() < self._shared.until:
            try:
                snapshot = self._write()
            except (OSError, http.client.HTTPException) as error:
                self._shared.fault(f"a write: the connection broke: {error!r}")
                return
            if snapshot is not None:
                self._open(encoder, snapshot)
                self._is_seen(snapshot)
            time.sleep(self._pause)

    def _write(self) -> int | None:
        draw, ids = self._dice.random(), self._shared.ids
        if draw < 0.35 or len(ids) < 20:
            return self._put(self._new_id())
        if draw < 0.55:
            return self._put(self._dice.choice(ids))
        if draw < 0.7:
            body = json.dumps({"metadata": {"price": self._dice.randrange(100)}}).encode()
            return self._send("metadata", "PUT", f"/api/images/{quote(self._dice.choice(ids), safe='')}", body, JSON)
        if draw < 0.9:
            id_ = self._dice.choice(ids)
            snapshot = self._send("delete", "DELETE", f"/api/images/{quote(id_, safe='')}", b"", {})
            self._shared.ids = [one for one in self._shared.ids if one != id_]
            return snapshot
        return self._batch()

    def _batch(self) -> int | None:
        gone, new = self._dice.sample(self._shared.ids, 2), [self._new_id() for _ in range(4)]
        lines: list[dict[str, Any]] = [{"op": "delete", "id": id_} for id_ in gone]
        lines += [{"id": id_, "picture": base64.b64encode(self._picture()).decode()} for id_ in new]
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        snapshot = self._send("batch of 6", "POST", "/api/images:batch", body, {"Content-Type": "application/jsonl"})
        self._shared.ids = [one for one in self._shared.ids if one not in gone] + new
        return snapshot

    def _put(self, id_: str) -> int | None:
        body, headers = form({})
        head = b'--b\r\nContent-Disposition: form-data; name="picture"; filename="x"\r\n\r\n'
        snapshot = self._send(
            "put", "PUT", f"/api/images/{quote(id_, safe='')}", head + self._picture() + b"\r\n" + body, headers
        )
        if id_ not in self._shared.ids:
            self._shared.ids = [*self._shared.ids, id_]
        return snapshot

    def _send(self, kind: str, method: str, path: str, body: bytes, headers: dict[str, str]) -> int | None:
        begin = time.perf_counter()
        self._connection.request(method, path, body or None, headers)
        reply = self._connection.getresponse()
        content = reply.read()
        with self._shared.lock:
            self._shared.counts[kind, reply.status] += 1
            self._shared.times.setdefault(kind, []).append(time.perf_counter() - begin)
        results = [json.loads(line) for line in content.splitlines()]
        statuses = [one["status"] for one in results] if kind.startswith("batch") else [reply.status]
        if any(status not in (200, 201) for status in statuses):
            self._shared.fault(f"{kind}: {method} {path} was answered {reply.status}: {content[:300]!r}")
            return None
        self.done[kind] += 1
        return int(max(one["snapshot"] for one in results))

    def _open(self, encoder: CachingEncoder, snapshot: int) -> None:
        shared, gallery = self._shared, Gallery.open(self._bank, encoder=encoder)
        if gallery.manifest.snapshot != snapshot:
            shared.fault(f"the server said snapshot {snapshot}, and the gallery is at {gallery.manifest.snapshot}")
        if different := set(gallery.ids()) ^ set(shared.ids):
            shared.fault(f"snapshot {snapshot} has not the pictures that were put: {different}")
        shared.snapshots[snapshot] = gallery
        shared.newest = snapshot
        for old in [one for one in shared.snapshots if one <= snapshot - KEPT]:
            del shared.snapshots[old]

    def _is_seen(self, snapshot: int) -> None:
        self._connection.request("GET", "/api/gallery")
        seen = json.loads(self._connection.getresponse().read())["snapshot"]
        if seen != snapshot:
            self._shared.fault(f"snapshot {snapshot} was answered, and the next request saw {seen}")

    def _new_id(self) -> str:
        self._made += 1
        return f"put {self._made:05}"

    def _picture(self) -> bytes:
        data = self._dice.choice(self._pool) + self._dice.randbytes(8)
        self._shared.versions[hashlib.sha256(data).hexdigest()] = data
        return data


def live(root: Path, minutes: float, clients: int, pictures: int, pause: float) -> bool:
    folder, bank = root / "pictures", root / "bank"
    folder.mkdir()
    pool = [Path(row["path"]).read_bytes() for row in demo.pictures()]
    shared = Shared(until=float("inf"))
    changer = Changer(folder, bank, pool, shared)
    changer.add(pictures)
    shared.uploads = pool[:5]
    shared.versions |= {hashlib.sha256(data).hexdigest(): data for data in shared.uploads}
    encoder = CachingEncoder(load_encoder("clip-b16"), together=1)
    changer.index(encoder)
    server = Server(bank, root / "server.log", "--allow-write")
    begin = time.monotonic()
    shared.until = begin + 60 * minutes
    samples: list[tuple[float, dict[str, float]]] = []
    writer = Writer(server, bank, pool, shared, pause)
    threads = [threading.Thread(target=client, args=(server, seed, shared)) for seed in range(clients)]
    threads += [
        threading.Thread(target=watch, args=(server, shared, samples, begin)),
        threading.Thread(target=writer.run, args=(encoder,)),
        threading.Thread(target=Checker(shared, encoder).work),
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if server.process.poll() is not None:
            shared.fault(f"the server ended with {server.process.returncode}")
    finally:
        shared.until = 0.0
        server.process.terminate()
        server.process.wait(60)
    for line in (root / "server.log").read_text().splitlines():
        if "ERROR" in line or "Traceback" in line:
            shared.fault(f"the server's log: {line}")
    expected = set(shared.ids)
    changer.index(encoder)
    gallery = Gallery.open(bank, encoder=encoder)
    if set(gallery.ids()) != expected:
        shared.fault(f"an index run changed what was put: {set(gallery.ids()) ^ expected}")
    if verify(bank).damage:
        shared.fault(f"damage: {verify(bank).damage}")
    total = sum(shared.counts.values())
    print(f"{clients} clients for {minutes:g} minutes: {total:,} answers, {total / minutes / 60:.1f} per second")
    print(f"{sum(writer.done.values())} writes, {shared.newest} snapshots, {len(gallery)} pictures at the end\n")
    return told(shared, samples, minutes)


def main() -> None:
    parser = argparse.ArgumentParser(description="A server under load while it is written to; every answer checked.")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pictures", type=int, default=150)
    parser.add_argument("--pause", type=float, default=0.3, help="seconds between two writes")
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))  # each kept snapshot has its files open
    root = Path(tempfile.mkdtemp(prefix="live"))
    try:
        fine = live(root, arguments.minutes, arguments.clients, arguments.pictures, arguments.pause)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
