"""A server under mixed load while its gallery is indexed again and again: every answer is checked.

    python benchmarks/soak.py [--minutes 20] [--clients 4] [--pictures 150]

A folder of the demo's pictures is served. Clients search, rank, ask by words, upload, fetch pictures and heat maps and
send bad requests. Meanwhile files are added, changed, renamed and deleted, and `tapr index`, a process of its own,
brings the gallery up to date. Two writers (soak_writers.py), each through a server of its own, put and delete pictures,
go away in the middle of uploads, send broken ones and damage stored files.

A ranking names the snapshot of the gallery that it searched. This process opens each snapshot that it can catch and
ranks it again by itself, with NumPy's kernel: ids, scores and order must agree. Memory, threads and file handles of
both servers are sampled. At the end everything that was acknowledged must be there, and `tapr doctor --verify` must
find nothing. A wrong answer, a 5xx other than 503, a broken connection, or handles and threads that grow end it with
status 1, as does checking less than 9 of 10 rankings.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import numpy as np

from tapr import demo
from tapr.encoders.base import Evidence
from tapr.encoders.caching import CachingEncoder
from tapr.gallery import Gallery
from tapr.options import SearchOptions
from tapr.query.open_reference import stored_evidence
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec
from tapr.search.kernels.choose import choose_kernel
from tapr.search.searcher import Searcher

SPECS: tuple[dict[str, Any], ...] = (
    {"target": "a woman astronaut", "add": ["astronaut", "helmet"], "preserve": ["woman"], "remove": ["teacher"]},
    {"target": "a face with a cowboy hat", "add": ["cowboy hat"], "preserve": ["yellow face"], "remove": []},
    {"target": "a blue car", "add": ["blue"], "preserve": ["car"], "remove": ["red"]},
    {"target": "a crying face", "add": ["tears"], "preserve": ["face"], "remove": ["smile", "teeth"]},
)
EDITS = ("the same, but red", "as a cook", "with dark skin", "a cat instead", "at night", "without a hat")
WORDS = ("a red apple", "a firefighter", "a smiling face", "a green plant", "something to eat")
JSON = {"Content-Type": "application/json"}
BAD: tuple[tuple[str, str, bytes, dict[str, str]], ...] = (
    ("POST", "/api/rank", b'{"spec":', JSON),
    ("POST", "/api/rank", b'{"spec": {"target": "x"}, "reference_id": "\\udfff"}', JSON),
    ("POST", "/api/rank", b"[" * 50_000, JSON),
    ("POST", "/api/rank", b'{"spec": {"target": "x"}, "reference_id": "gone.png", "k": 1e400}', JSON),
    ("POST", "/api/search", b"text=x&tau=1e-39", {"Content-Type": "application/x-www-form-urlencoded"}),
    ("POST", "/api/search", b"text=x&where=" + b"(" * 3000, {"Content-Type": "application/x-www-form-urlencoded"}),
    ("GET", "/api/images/nothing.png", b"", {}),
    ("GET", "/api/images/..%2f..%2fetc%2fpasswd", b"", {}),
    ("GET", "/api/gallery?limit=99999", b"", {}),
    ("DELETE", "/api/rank", b"", {}),
)
BETWEEN = 10  # seconds between two index runs, in which the writers have the gallery
KEPT = 60  # snapshots that an answer may still come from
CLOSE = 2e-3  # of scores with a reference: its vectors are the bank's, in fp16, or fresh ones
CLOSER = 1e-4  # by words alone


@dataclass
class Shared:
    """What the threads tell each other."""

    until: float
    ids: list[str] = field(default_factory=list)  # of files that are there now; may be out of date by one change
    versions: dict[str, bytes] = field(default_factory=dict)  # sha256 -> every picture file there ever was
    uploads: list[bytes] = field(default_factory=list)
    snapshots: dict[int, Gallery] = field(default_factory=dict)
    newest: int = 0
    answers: queue.Queue[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=queue.Queue)  # asked, answered
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    times: dict[str, list[float]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)
    missed: int = 0  # rankings of snapshots that were gone before they could be opened
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, sentence: str) -> None:
        with self.lock:
            self.wrong.append(sentence)
        print(f"WRONG: {sentence[:600]}", flush=True)


# the server


class Server:
    def __init__(self, gallery: Path, log: Path, *options: str) -> None:
        command = [
            sys.executable,
            "-m",
            "tapr.cli.main",
            "serve",
            "-g",
            str(gallery),
            "--port",
            "0",
            "--json",
            *options,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log.open("w"), text=True)
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    def sample(self) -> dict[str, float]:
        """Memory in MB: all that is resident, and what is the process's own; threads and open files."""
        place = Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        return {
            "rss": int(status["VmRSS"].split()[0]) / 1024,
            "own": int(status["RssAnon"].split()[0]) / 1024,
            "threads": int(status["Threads"]),
            "handles": len(os.listdir(place / "fd")),
            "references": self.metric("tapr_references"),
        }

    def metric(self, name: str) -> float:
        connection = self.connection()
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        except (OSError, http.client.HTTPException):  # as busy as that: the next sample tells
            return float("nan")
        finally:
            connection.close()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))


# those who ask


def form(fields: dict[str, str], file: bytes | None = None) -> tuple[bytes, dict[str, str]]:
    parts = [f'--b\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode() for k, v in fields.items()]
    if file is not None:
        head = b'--b\r\nContent-Disposition: form-data; name="reference"; filename="x"\r\n\r\n'
        parts.append(head + file + b"\r\n")
    return b"".join(parts) + b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"}


def request(  # noqa: PLR0911 (one line of a table per kind)
    dice: random.Random, shared: Shared
) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """-> its kind, what to send, and what the checker needs to know of it."""
    draw, id_ = dice.random(), dice.choice(shared.ids)
    k = dice.choice((1, 10, 24, 1000))
    if draw < 0.3:
        weights = {name: round(dice.uniform(0.1, 1.5), 2) for name in ("target", "add", "preserve", "remove")}
        more = {
            "offset": dice.choice((0, 0, 20)),
            "explain": dice.random() < 0.7,
            "score": dice.choice(("fixed", "paper", "adaptive")),
        }
        body = {"spec": dice.choice(SPECS), "reference_id": id_, "weights": weights, "k": k, **more}
        return "rank", ("POST", "/api/rank", json.dumps(body).encode(), JSON), {"k": k, **more}
    if draw < 0.42:
        fields = {"reference_id": id_, "edit": dice.choice(EDITS), "k": str(k)}
        return "search", ("POST", "/api/search", *form(fields)), {"k": k}
    if draw < 0.52:
        return "words", ("POST", "/api/search", *form({"text": dice.choice(WORDS), "k": str(k)})), {"k": k}
    if draw < 0.58:
        fields = {"edit": dice.choice(EDITS), "k": str(k)}
        return "upload", ("POST", "/api/search", *form(fields, dice.choice(shared.uploads))), {"k": k}
    if draw < 0.62:
        question = json.dumps({"spec": dice.choice(SPECS), "reference_id": id_})
        query = {"question": question, "id": dice.choice(shared.ids), "size": 128}
        return "heat map", ("GET", f"/api/heatmap?{urlencode(query)}", b"", {}), {}
    if draw < 0.68:
        return "gallery", ("GET", f"/api/gallery?limit=50&offset={dice.randrange(100)}", b"", {}), {}
    if draw < 0.76:
        return "bad", dice.choice(BAD), {}
    size = dice.choice(("", "?size=64", "?size=256"))
    return "picture", ("GET", f"/api/images/{quote(id_, safe='')}{size}", b"", {}), {}


RIGHT = {"bad": (400, 404, 405, 422), "picture": (200, 404, 429), "heat map": (200, 404, 429)}


def client(server: Server, seed: int, shared: Shared) -> None:
    dice, connection = random.Random(seed), server.connection()
    while time.monotonic() < shared.until:
        kind, (method, path, body, headers), asked = request(dice, shared)
        begin = time.perf_counter()
        try:
            connection.request(method, path, body or None, headers)
            reply = connection.getresponse()
            content = reply.read()
        except (OSError, http.client.HTTPException) as error:
            shared.fault(f"{kind}: the connection broke: {error!r}")
            connection = server.connection()
            continue
        with shared.lock:
            shared.counts[kind, reply.status] += 1
            shared.times.setdefault(kind, []).append(time.perf_counter() - begin)
        # a picture that was just deleted is not there as a reference either
        too_slow = reply.status == 503 and b"no answer within" in content  # the time limit that was asked for
        if reply.status not in RIGHT.get(kind, (200, 404, 429)) and not too_slow:
            shared.fault(f"{kind}: {method} {path[:200]} was answered {reply.status}: {content[:300]!r}")
        elif reply.status == 200 and kind in ("rank", "search", "words", "upload"):
            shared.answers.put(({"kind": kind, **asked}, json.loads(content)))
        if reply.status == 429:
            time.sleep(float(reply.headers["Retry-After"]))
        time.sleep(dice.uniform(0, 0.1))


# the one who checks


class Checker:
    def __init__(self, shared: Shared, encoder: CachingEncoder) -> None:
        self._shared, self._encoder, self._kernel = shared, encoder, choose_kernel("numpy")
        self._evidence: dict[str, Evidence] = {}

    def work(self) -> None:
        while True:
            try:
                asked, answer = self._shared.answers.get(timeout=1)
            except queue.Empty:
                if time.monotonic() > self._shared.until + 30:
                    return
                continue
            try:
                self._check(asked, answer)
            except Exception as error:
                self._shared.fault(f"{asked}: the check failed: {error!r}")

    def _check(self, asked: dict[str, Any], answer: dict[str, Any]) -> None:
        number = answer["snapshot"]
        until = time.monotonic() + 120
        while number not in self._shared.snapshots and number >= self._shared.newest:
            if time.monotonic() > until:
                raise TimeoutError(f"snapshot {number} never came")
            time.sleep(0.05)  # the index run that made it has not ended yet
        assert number > 0, f"no gallery has a snapshot {number}"
        gallery = self._shared.snapshots.get(number)
        if gallery is None:
            self._shared.missed += 1
            return
        expected, excluded = self._expected(answer, gallery)
        close = CLOSER if answer["reference"] is None else CLOSE
        hits = answer["hits"]
        offset = asked.get("offset", 0)
        assert len(hits) == max(0, min(asked["k"], len(expected) - offset)), f"{len(hits)} hits of {len(expected)}"
        assert answer["searched"] == len(expected), f"searched {answer['searched']} of {len(expected)}"
        assert [hit["rank"] for hit in hits] == list(range(offset + 1, offset + 1 + len(hits)))
        for hit in hits:
            assert hit["id"] not in excluded, f"the reference {hit['id']} is in the answer"
            right = expected.get(hit["id"])
            assert right is not None, f"snapshot {number} has no {hit['id']}"
            assert abs(hit["score"] - right) <= close, f"{hit['id']} has {hit['score']:.5f}, not {right:.5f}"
        scores = [hit["score"] for hit in hits]
        assert all(a >= b - 1e-5 for a, b in pairwise(scores)), "not in order"
        if hits:
            found = {hit["id"] for hit in hits}
            better = sum(score > scores[-1] + 2 * close for id_, score in expected.items() if id_ not in found)
            assert better <= offset, f"{better} better pictures were left out"
        self._shared.checked[asked["kind"]] += 1

    def _expected(self, answer: dict[str, Any], gallery: Gallery) -> tuple[dict[str, float], set[str]]:
        """Every picture's score in this snapshot, and the ids that are left out."""
        spec = EditSpec.from_dict({name: value for name, value in answer["spec"].items() if value is not None})
        reference = self._reference(answer, gallery)
        scoring = {"score": answer["score"]}
        if answer["score"] != "paper":
            scoring["reference_weight"] = answer["reference_weight"]
        options = SearchOptions.of(
            reference=reference,
            spec=spec,
            k=max(1, len(gallery)),
            weights=answer["weights"],
            tau=answer["tau"],
            explain=False,
            **({} if reference is None else scoring),
        )
        ranking = Searcher(gallery, kernel=self._kernel).search(options)
        excluded = set(gallery.ids()) - {hit.id for hit in ranking.hits}
        return {hit.id: hit.score for hit in ranking.hits}, excluded

    def _reference(self, answer: dict[str, Any], gallery: Gallery) -> Reference | None:
        if answer["reference"] is None:
            return None
        from tapr.images.decode import decode

        key = answer["reference"]["key"]
        data = self._shared.versions[key]
        image = decode(data)
        evidence = stored_evidence(gallery, self._encoder, key)
        if evidence is None:
            if key not in self._evidence:
                self._evidence[key] = self._encoder.encode_images([self._encoder.prepare(image)])
            evidence = self._evidence[key]
        return Reference(image, evidence, key)


# the one who changes things


class Changer:
    """Files come, change, move and go; `tapr index` follows."""

    def __init__(self, folder: Path, bank: Path, pool: list[bytes], shared: Shared, seed: int = 0) -> None:
        self._folder, self._bank, self._shared, self._dice = folder, bank, shared, random.Random(seed)
        self._pool, self._made = pool, 0
        self.syncs, self.done = 0, Counter[str]()

    def add(self, count: int) -> None:
        for _ in range(count):
            self._made += 1
            self._write(f"picture{self._made:05}.png", self._dice.choice(self._pool))
        self.done["added"] += count

    def change(self) -> None:
        names = self.names()
        for name in self._dice.sample(names, self._few()):
            (self._folder / name).unlink()
            self.done["deleted"] += 1
        names = self.names()
        for name in self._dice.sample(names, self._few()):
            self._write(name, self._dice.choice(self._pool))
            self.done["changed"] += 1
        for name in self._dice.sample(names, 1):
            self._made += 1
            (self._folder / name).rename(self._folder / f"renamed{self._made:05}.png")
            self.done["renamed"] += 1
        self.add(self._few())
        self._shared.ids = self.names()

    def _few(self) -> int:
        return self._dice.randint(1, 4)

    def index(self, encoder: CachingEncoder) -> None:
        command = [sys.executable, "-m", "tapr.cli.main", "index", str(self._folder), "-g", str(self._bank)]
        done = subprocess.run([*command, "--no-captions"], capture_output=True, text=True, check=False)
        if done.returncode:
            self._shared.fault(f"tapr index ended with {done.returncode}: {done.stderr[-500:]}")
            return
        self.syncs += 1
        keep_snapshot(self._bank, encoder, self._shared)
        self._shared.ids = self.names()

    def names(self) -> list[str]:
        return sorted(path.name for path in self._folder.glob("*.png"))

    def _write(self, name: str, data: bytes) -> None:
        """Every version is a picture of its own: a few bytes after its end tell it from all others."""
        data += self._dice.randbytes(8)
        self._shared.versions[hashlib.sha256(data).hexdigest()] = data
        new = self._folder / f".{name}"
        new.write_bytes(data)
        new.rename(self._folder / name)


def keep_snapshot(bank: Path, encoder: CachingEncoder, shared: Shared) -> None:
    gallery = Gallery.open(bank, encoder=encoder)
    number = gallery.manifest.snapshot or 0
    with shared.lock:
        shared.snapshots[number] = gallery
        shared.newest = max(shared.newest, number)
        for old in [one for one in shared.snapshots if one <= shared.newest - KEPT]:
            del shared.snapshots[old]


def collect_snapshots(bank: Path, encoder: CachingEncoder, shared: Shared) -> None:
    """Opens what the writers publish, before the next one takes its place."""
    seen = None
    while time.monotonic() < shared.until:
        status = (bank / "manifest.json").stat()
        if (status.st_ino, status.st_mtime_ns) != seen:
            seen = status.st_ino, status.st_mtime_ns
            keep_snapshot(bank, encoder, shared)
        time.sleep(0.01)


def watch(server: Server, shared: Shared, samples: list[tuple[float, dict[str, float]]], begin: float) -> None:
    while time.monotonic() < shared.until:
        samples.append((time.monotonic() - begin, server.sample()))
        time.sleep(5)


def table(samples: list[tuple[float, dict[str, float]]], minutes: float) -> bool:
    """Prints what was sampled, by tenths of the time; -> whether handles and threads stayed what they were."""
    print("\n| minutes | resident MB | own MB | threads | file handles | references kept |\n|---|---|---|---|---|---|")
    tenth = minutes * 60 / 10
    rows = []
    for part in range(10):
        inside = [sample for at, sample in samples if part * tenth <= at < (part + 1) * tenth]
        if inside:
            rows.append({name: float(np.nanmedian([one[name] for one in inside])) for name in inside[0]})
            row = rows[-1]
            print(
                f"| {part * tenth / 60:.0f} to {(part + 1) * tenth / 60:.0f} | {row['rss']:.0f} | {row['own']:.0f} "
                f"| {row['threads']:.0f} | {row['handles']:.0f} | {row['references']:.0f} |"
            )
    if len(rows) < 4:
        return True
    second, last = rows[len(rows) // 2], rows[-1]
    print(f"\nown memory in the second half: {last['own'] - second['own']:+.0f} MB")
    return last["handles"] <= second["handles"] + 10 and last["threads"] <= second["threads"] + 4


def main() -> None:
    parser = argparse.ArgumentParser(description="A server under load while its gallery changes; every answer checked.")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pictures", type=int, default=150)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="soak"))
    try:
        fine = soak(root, arguments.minutes, arguments.clients, arguments.pictures)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    sys.exit(0 if fine else 1)


def soak(root: Path, minutes: float, clients: int, pictures: int) -> bool:
    folder, bank = root / "pictures", root / "bank"
    folder.mkdir()
    pool = [Path(row["path"]).read_bytes() for row in demo.pictures()]
    shared = Shared(until=float("inf"))
    changer = Changer(folder, bank, pool, shared)
    changer.add(pictures)
    shared.uploads = pool[:5]
    shared.versions |= {hashlib.sha256(data).hexdigest(): data for data in shared.uploads}
    from soak_writers import Writer  # type: ignore[import-not-found]  # beside this file; tests import this module without it
    from tapr.encoders.registry import load_encoder

    encoder = CachingEncoder(load_encoder("clip-b16"), together=1)
    changer.index(encoder)
    servers = [Server(bank, root / f"server{number}.log", "--allow-write", "--write-wait", "50") for number in (1, 2)]
    server = servers[0]
    begin = time.monotonic()
    shared.until = begin + 60 * minutes
    samples: list[tuple[float, dict[str, float]]] = []
    others: list[tuple[float, dict[str, float]]] = []
    writers = [Writer(f"w{n}", one, bank, pool, shared, n) for n, one in enumerate(servers, 1)]
    threads = [threading.Thread(target=client, args=(server, seed, shared)) for seed in range(clients)]
    threads.append(threading.Thread(target=watch, args=(server, shared, samples, begin)))
    threads.append(threading.Thread(target=watch, args=(servers[1], shared, others, begin)))
    threads.append(threading.Thread(target=collect_snapshots, args=(bank, encoder, shared)))
    threads += [threading.Thread(target=writer.work) for writer in writers]
    checker = threading.Thread(target=Checker(shared, encoder).work)
    try:
        for thread in (*threads, checker):
            thread.start()
        while time.monotonic() < shared.until:
            changer.change()
            changer.index(encoder)
            time.sleep(BETWEEN)
        for thread in (*threads, checker):
            thread.join()
        for one in servers:
            if one.process.poll() is not None:
                shared.fault(f"a server ended with {one.process.returncode}")
    finally:
        shared.until = 0.0
        for one in servers:
            one.process.terminate()
        for one in servers:
            one.process.wait(60)
    check_the_end(root, bank, encoder, writers, shared)
    fine = report(shared, changer, samples, minutes, clients)
    print(f"\nwriters: {', '.join(f'{dict(writer.done)}' for writer in writers)}; the second server:")
    return table(others, minutes) and fine


def _is_fault(line: str) -> bool:
    """Of a server's log; that another process writes, and the time limit, are what was asked for."""
    asked_for = "is writing to" in line or "no answer within" in line
    return ("ERROR" in line and not asked_for) or "Traceback" in line


def check_the_end(root: Path, bank: Path, encoder: CachingEncoder, writers: list[Any], shared: Shared) -> None:
    for log in root.glob("server*.log"):
        lines = log.read_text().splitlines()
        for line in filter(_is_fault, lines):
            shared.fault(f"a server's log: {line}")
    gallery = Gallery.open(bank, encoder=encoder)
    for writer in writers:
        for fault in writer.faults_at_the_end(gallery):
            shared.fault(fault)
    command = [sys.executable, "-m", "tapr.cli.main", "doctor", "--verify", "--json", "-g", str(bank)]
    verified = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)["verified"]
    for damage in verified["damage"] + verified["uploads"]:
        shared.fault(f"doctor --verify: {damage}")
    orphans = len([path for path in (bank / "uploads").rglob("*") if path.is_file()])
    print(f"{orphans} files of uploads for {sum(len(writer.there) for writer in writers)} pictures")


def report(
    shared: Shared, changer: Changer, samples: list[tuple[float, dict[str, float]]], minutes: float, clients: int
) -> bool:
    total = sum(shared.counts.values())
    print(f"{clients} clients for {minutes:g} minutes: {total:,} answers, {total / minutes / 60:.1f} per second")
    print(f"{changer.syncs} index runs published: {dict(changer.done)}\n")
    return told(shared, samples, minutes)


def told(shared: Shared, samples: list[tuple[float, dict[str, float]]], minutes: float) -> bool:
    """Tables of the answers and of the server's memory; -> whether all was right."""
    print("| request | answers by status | rankings checked | p50 ms | p99 ms |\n|---|---|---|---|---|")
    for kind in sorted(shared.times):
        statuses = ", ".join(
            f"{count:,} x {status}" for (one, status), count in sorted(shared.counts.items()) if one == kind
        )
        p50, p99 = np.percentile(np.array(shared.times[kind]) * 1000, (50, 99))
        print(f"| {kind} | {statuses} | {shared.checked.get(kind, 0) or ''} | {p50:.0f} | {p99:.0f} |")
    flat = table(samples, minutes)
    rankings = sum(shared.counts[kind, 200] for kind in ("rank", "search", "words", "upload"))
    checked = sum(shared.checked.values())
    all_checked = checked + shared.missed == rankings and checked >= 0.9 * rankings
    print(f"\n{checked:,} of {rankings:,} rankings checked, {len(shared.wrong)} faults")
    if not flat:
        print("FAILED: threads or file handles grew")
    return not shared.wrong and flat and all_checked


if __name__ == "__main__":
    main()
