"""A server under load: throughput, waiting times, memory, a kill, and re-ranking as a browser sees it.

    python benchmarks/serve.py [--gallery FOLDER] [--clients 64] [--seconds 120] [--browser]
    python benchmarks/serve.py --sizes 458 20000 --clients 1 8 64 --seconds 300     a table: see capacity.py

Without a gallery the demo's pictures are indexed first. Clients and server share this machine's cores, so the
figures are those of both together. Everything but 200 and 429 counts as an error, and ends the run with status 1.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from tapr import demo
from tapr.gallery import Gallery
from tapr.store.block import PRECISIONS

SPECS: tuple[dict[str, Any], ...] = (
    {"target": "a woman astronaut", "add": ["astronaut", "helmet"], "preserve": ["woman"], "remove": ["teacher"]},
    {"target": "a face with a cowboy hat", "add": ["cowboy hat"], "preserve": ["yellow face"], "remove": []},
    {"target": "a blue car", "add": ["blue"], "preserve": ["car"], "remove": ["red"]},
    {"target": "a crying face", "add": ["tears"], "preserve": ["face"], "remove": ["smile", "teeth"]},
)
FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run"
)


class Server:
    """`tapr serve` in a process of its own."""

    def __init__(self, gallery: Path, *options: str) -> None:
        command = "from tapr.cli.serve import serve; serve()"
        arguments = ["-g", str(gallery), "--port", "0", "--json", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]

    def connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    def memory(self) -> float:
        """Resident, in MB."""
        connection = self.connection()
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("process_resident_memory")) / 1e6


def rank_body(dice: random.Random, ids: list[str]) -> bytes:
    weights = {name: round(dice.uniform(0.1, 1.5), 2) for name in ("target", "add", "preserve", "remove")}
    body = {"spec": dice.choice(SPECS), "reference_id": dice.choice(ids), "weights": weights, "k": 24}
    return json.dumps(body).encode()


def form(fields: dict[str, str], file: bytes | None = None) -> tuple[bytes, dict[str, str]]:
    parts = [f'--b\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode() for k, v in fields.items()]
    if file is not None:
        head = b'--b\r\nContent-Disposition: form-data; name="reference"; filename="x"\r\n\r\n'
        parts.append(head + file + b"\r\n")
    return b"".join(parts) + b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"}


def ask(connection: http.client.HTTPConnection, dice: random.Random, ids: list[str], files: list[bytes]) -> str:
    """Send one request of the usual mix; -> its kind."""
    draw = dice.random()
    if draw < 0.6:
        connection.request("POST", "/api/rank", rank_body(dice, ids), {"Content-Type": "application/json"})
        return "rank"
    if draw < 0.75:
        body, headers = form({"reference_id": dice.choice(ids), "edit": "the same, but red", "k": "24"})
        connection.request("POST", "/api/search", body, headers)
        return "search"
    if draw < 0.8:
        # a few bytes after the end make it a picture that the gallery does not have: it is decoded and encoded anew
        body, headers = form({"edit": "the same, but blue", "k": "24"}, dice.choice(files) + dice.randbytes(4))
        connection.request("POST", "/api/search", body, headers)
        return "upload"
    connection.request("GET", f"/api/images/{quote(dice.choice(ids), safe='')}?size=256")
    return "thumbnail"


def client(server: Server, seed: int, until: float, ids: list[str], files: list[bytes], out: list[Any]) -> None:
    dice, connection = random.Random(seed), server.connection()
    while time.perf_counter() < until:
        begin = time.perf_counter()
        try:
            kind = ask(connection, dice, ids, files)
            reply = connection.getresponse()
            reply.read()
            out.append((kind, reply.status, time.perf_counter() - begin))
            if reply.status == 429:
                time.sleep(float(reply.headers["Retry-After"]))
        except OSError as error:
            out.append(("connection", repr(error), time.perf_counter() - begin))
            connection = server.connection()


def load(server: Server, clients: int, seconds: float, ids: list[str], files: list[bytes]) -> bool:
    until = time.perf_counter() + seconds
    out: list[Any] = []
    threads = [threading.Thread(target=client, args=(server, i, until, ids, files, out)) for i in range(clients)]
    memory = [server.memory()]
    for thread in threads:
        thread.start()
    while time.perf_counter() < until:
        time.sleep(min(5.0, max(0.1, until - time.perf_counter())))
        memory.append(server.memory())
    for thread in threads:
        thread.join()
    print(f"{clients} clients for {seconds:.0f} s: {len(out)} answers, {len(out) / seconds:.1f} per second")
    for kind in sorted({kind for kind, _, _ in out}):
        times = np.array([taken for what, status, taken in out if what == kind and status == 200]) * 1000
        statuses = dict(Counter(status for what, status, _ in out if what == kind))
        if len(times):
            p50, p95, p99 = np.percentile(times, (50, 95, 99))
            print(f"  {kind:10} {statuses}  p50 {p50:.0f} ms  p95 {p95:.0f} ms  p99 {p99:.0f} ms")
        else:
            print(f"  {kind:10} {statuses}")
    half = len(memory) // 2
    print(f"  memory: start {memory[0]:.0f} MB, half way {memory[half]:.0f} MB, end {memory[-1]:.0f} MB")
    return all(status in (200, 429) for _, status, _ in out)


def kept_connection(server: Server, requests: int = 200) -> None:
    """What an answer costs on a connection that stays open, with nothing to compute: delays of transport show here."""
    connection, times = server.connection(), []
    for _ in range(requests):
        begin = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        times.append(1000 * (time.perf_counter() - begin))
    p50, p99 = np.percentile(times, (50, 99))
    print(f"/healthz on one kept connection, {requests} times: p50 {p50:.1f} ms  p99 {p99:.1f} ms")


def answers(server: Server, ids: list[str]) -> list[Any]:
    connection, dice = server.connection(), random.Random(1)
    out = []
    for _ in range(20):
        connection.request("POST", "/api/rank", rank_body(dice, ids), {"Content-Type": "application/json"})
        reply = json.loads(connection.getresponse().read())
        out.append({name: value for name, value in reply.items() if name != "seconds"})
    return out


def rerank_in_browser(server: Server, reference: str, edits: int = 100) -> None:
    """From the change of a chip or slider to the drawn grid, as the page itself measures it."""
    from playwright.sync_api import Page, sync_playwright

    def factors(page: Page, number: int) -> None:
        if number % 4 == 3:  # a new phrase, which the text tower has not read yet
            page.get_by_role("button", name="Add a phrase to Keep").click()
            page.get_by_label("New phrase of Keep").fill(f"thing number {number}")
            page.keyboard.press("Enter")
        elif number % 4 == 2:
            page.locator("[data-factor=preserve] .chip[data-atom]").last.press("Delete")
        else:
            page.locator("#weight-add").fill(str(0.2 + 0.05 * (number % 30)))

    def words_or_picture(page: Page, number: int) -> None:
        page.locator("#reference-weight-slider").fill(
            f"{0.05 * (7 * number % 21):.2f}"
        )  # never twice the same in a row

    atoms = "&".join(f"add={word}" for word in ("astronaut", "helmet"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS.split())
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{server.url}/#r={quote(reference)}&target=a+woman+astronaut&{atoms}&preserve=woman&remove=teacher")
        page.wait_for_selector(".hit .bar")
        page.locator("#fine-tune > summary").click()
        durations = "performance.getEntriesByName('rerank').map(e => e.duration)"
        page.wait_for_function(f"() => {durations}.length")
        for name, change in (("factors", factors), ("words or picture", words_or_picture)):
            first = len(page.evaluate(durations))
            for number in range(edits):
                change(page, number)
                page.wait_for_function(f"n => {durations}.length > n", arg=first + number)
                page.wait_for_timeout(250)  # a person looks before the next change
            p50, p95, worst = np.percentile(page.evaluate(durations)[first:], (50, 95, 100))
            print(f"re-ranking in the browser, {edits} changes of {name}: ", end="")
            print(f"p50 {p50:.0f} ms  p95 {p95:.0f} ms  worst {worst:.0f} ms")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="A server under load.")
    parser.add_argument("--gallery", type=Path)
    parser.add_argument("--clients", type=int, nargs="+", default=[64])
    parser.add_argument("--sizes", type=int, nargs="+", help="a table of what galleries of these sizes take")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp16", help="of the galleries of --sizes")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--writes", action="store_true", help="with --sizes: pictures are put and deleted meanwhile")
    parser.add_argument("--browser", action="store_true", help="also measure re-ranking in Chromium")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.gallery
        if path is None:
            demo.write_table(Path(folder, "emoji.jsonl"))
            path = Gallery.build(Path(folder, "emoji"), Path(folder, "emoji.jsonl")).path
        gallery = Gallery.open(path)
        if arguments.sizes:
            measure = runpy.run_path(str(Path(__file__).with_name("capacity.py")))["capacity"]
            loads, seconds = arguments.clients, arguments.seconds
            good = measure(
                Server, gallery, arguments.sizes, loads, seconds, arguments.precision, SPECS, form, arguments.writes
            )
            sys.exit(0 if good else 1)
        ids = gallery.ids()
        files = [Path(entry.path).read_bytes() for entry in gallery.entries(range(0, len(gallery), 10))]
        print(f"{len(ids)} pictures, {gallery.card.name}, {gallery.precision}")
        server = Server(path)
        try:
            kept_connection(server)
            if arguments.browser:
                rerank_in_browser(server, ids[0])
            loads = [load(server, clients, arguments.seconds, ids, files) for clients in arguments.clients]
            fine = all(loads)
            before = answers(server, ids)
            server.process.kill()
            server.process.wait()
            server = Server(path)
            same = answers(server, ids) == before
            print(f"killed and started again: {'the same answers' if same else 'OTHER ANSWERS'}")
            server.process.send_signal(signal.SIGTERM)
            code = server.process.wait(30)
            print(f"told to stop: status {code}")
        finally:
            server.process.kill()
    sys.exit(0 if fine and same else 1)


if __name__ == "__main__":
    main()
