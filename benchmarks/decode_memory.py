"""Memory of decoding files made to take much of it: of the process that asks, of the workers, and without workers.

python benchmarks/decode_memory.py [--megapixels 12] [--only apart] [--cost clip-b16]

The files (tests/images/crafted.py) are small, and laid out so that their decoder takes as much memory as their format
allows. Each is decoded as a server opens a reference: the square of the encoder, and a picture of 1024 pixels. Columns:
the peak of this process when it decodes the file itself (the obvious way), its peak when a worker decodes the file, and
the peak of that worker. Below: eight threads with one file each, all files in turn. All peaks are above what there was
before. The limits are those of an upload. It ends with 1 if this process exceeds its budget. Linux only.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import PIL
from PIL import Image

from tapr.errors import TaprError
from tapr.images import workers
from tapr.images.decode import Limits, View, decode_views
from tapr.images.frame import Frame
from tapr.images.workers import ORDINARY_MEMORY, Workers

MB = 1e6
BUDGET = 32 * MB  # of the process that asks, per picture: its pixels, which are at most 1024 x 1024, and copies
AT_ONCE = 8
LIMITS = Limits(bytes=128 * 2**20, memory=512 * 2**20)
VIEWS = [View(224, frame=Frame(224)), View(512, longest=1024)]


def load_crafted() -> dict[str, bytes]:
    """Return the makers of tests/images/crafted.py."""
    path = Path(__file__).parents[1] / "tests" / "images" / "crafted.py"
    spec = importlib.util.spec_from_file_location("crafted", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MAKERS  # type: ignore[no-any-return]


def status(name: str, pid: int | str = "self") -> int:
    """Return a line of /proc/PID/status, in bytes; 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)


def start_of_peak() -> int:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    return status("VmRSS")


class Watch:
    """The most memory that the workers of a pool have held together, and each of them."""

    def __init__(self, pool: Workers) -> None:
        self.together = self.single = 0
        self._pool, self._end = pool, Event()
        self._thread = Thread(target=self._look)

    def _look(self) -> None:
        while not self._end.wait(0.005):
            pids = self._pool.pids()
            self.together = max(self.together, sum(status("VmRSS", pid) for pid in pids))
            self.single = max(self.single, *(status("VmHWM", pid) for pid in pids), 0)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def peak_here(data: bytes) -> int:
    """Return the peak of a copy of this process that decodes the file itself."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))  # a mistake must not take the machine along
        before = start_of_peak()
        try:
            decode_views(data, VIEWS, LIMITS)
        except TaprError:
            pass
        finally:
            os.write(writing, str(max(0, status("VmHWM") - before)).encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return int(pipe.read() or -1)


def outcome(pool: Workers, data: bytes) -> str:
    try:
        pool.decode(data, VIEWS, LIMITS)
    except TaprError as error:
        return error.code
    return "decoded"


def make_in_child(make: object, pixels: int) -> bytes:
    """Make a file without leaving what that takes in this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(make(pixels))  # type: ignore[operator]
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return data


def processor_seconds(pids: list[int]) -> float:
    """Return the processor time of this process and of its workers."""
    times = os.times()
    total = times.user + times.system
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def cost(encoder_name: str, count: int, rounds: int) -> None:
    """Index the same JPEGs with workers and without, in turns, and print the processor time of a picture."""
    from tapr import Gallery
    from tapr.encoders.registry import load_encoder

    encoder = load_encoder(encoder_name)
    pool = Workers(2)
    pool.decode(b"P6 1 1 255\n\0\0\0", VIEWS)
    pools = {"workers": pool, "this process": SimpleNamespace(decode=decode_views)}
    seconds: dict[str, list[float]] = {name: [] for name in pools}
    with tempfile.TemporaryDirectory() as folder:
        pictures = Path(folder) / "pictures"
        pictures.mkdir()
        for number in range(count):
            small = Image.effect_noise((160, 120), 80).convert("RGB")
            small.resize((1024, 768), Image.Resampling.BICUBIC).save(pictures / f"{number}.jpg", quality=90)
        for number in range(2 * rounds + 2):
            name = list(pools)[(number + number // 2) % 2]  # which of the two is first changes from pair to pair
            workers.shared = lambda name=name: pools[name]  # type: ignore[assignment]
            begin = processor_seconds(pool.pids())
            Gallery.build(Path(folder) / f"gallery{number}", pictures, encoder)
            if number >= 2:  # the first pair warms up
                seconds[name].append((processor_seconds(pool.pids()) - begin) / count)
    pool.close()
    here, apart = (statistics.median(seconds[name]) * 1000 for name in ("this process", "workers"))
    what = f"{encoder_name}, {count} JPEGs of 1024 x 768, {rounds} rounds in turns"
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {what}")
    print(f"processor time per picture of an index run: {here:.2f} ms in this process, {apart:.2f} ms with workers")
    print(f"difference: {apart - here:.2f} ms, {(apart - here) / here:.1%} of indexing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megapixels", type=float, default=12)
    parser.add_argument("--only", choices=("apart",), help="leave out the column of this process")
    parser.add_argument("--cost", metavar="ENCODER", help="measure the cost per picture of an index run instead")
    given = parser.parse_args()
    if given.cost:
        cost(given.cost, 24, 4)
        return
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.machine()}, Pillow {PIL.__version__}")
    print(f"{given.megapixels:g} megapixels; peaks in megabytes; budget of the process that asks: {BUDGET / MB:g}")
    print(f"\n{'file':<52} {'file':>7} {'itself':>8} {'asks':>7} {'worker':>8} {'seconds':>8}  outcome")
    exceeded, files = [], {}
    for name, make in load_crafted().items():
        data = files[name] = make_in_child(make, int(given.megapixels * MB))
        here = f"{peak_here(data) / MB:8.0f}" if given.only is None else f"{'':8}"
        pool = Workers(1)
        outcome(pool, b"P6 1 1 255\n\0\0\0")  # starts the worker
        with Watch(pool) as watch:
            before, begin = start_of_peak(), time.perf_counter()
            end = outcome(pool, data)
            seconds, peak = time.perf_counter() - begin, max(0, status("VmHWM") - before)
        pool.close()
        row = f"{name:<52} {len(data) / MB:7.2f} {here} {peak / MB:7.1f} {watch.single / MB:8.0f} {seconds:8.1f}"
        print(f"{row}  {end}", flush=True)
        if peak > BUDGET:
            exceeded.append(name)

    pool = Workers(AT_ONCE)
    with Watch(pool) as watch, ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(lambda _: outcome(pool, b"P6 1 1 255\n\0\0\0"), range(AT_ONCE)))
        before, worst, worst_name = start_of_peak(), 0, ""
        for name, data in files.items():
            Path("/proc/self/clear_refs").write_text("5")
            list(threads.map(lambda _, data=data: outcome(pool, data), range(AT_ONCE)))
            if (peak := status("VmHWM") - before) > worst:
                worst, worst_name = peak, name
    pool.close()
    most = AT_ONCE * ORDINARY_MEMORY + LIMITS.memory
    print(f"\n{AT_ONCE} of each file at once: this process took at most {worst / MB:.1f} MB ({worst_name}),")
    limit = f"limit {most / MB:.0f} MB, and {AT_ONCE} x 40 at rest"
    print(f"{AT_ONCE} workers together {watch.together / MB:.0f} MB ({limit})")
    if worst > AT_ONCE * BUDGET:
        exceeded.append("at once")
    print(f"{len(files)} files; budgets exceeded: {len(exceeded)} {exceeded or ''}")
    sys.exit(bool(exceeded))


if __name__ == "__main__":
    main()
