"""Pictures of others are decoded in processes with limits: what holds, and what happens when a limit is met."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tapr import Gallery
from tapr.encoders.fake import FakeEncoder
from tapr.images import workers
from tapr.images.decode import BadImage, Limits, NoRoomToDecode, PictureTooLarge, View, decode_views
from tapr.images.frame import Frame
from tapr.images.workers import Workers, decode_apart, resident_bytes, shared
from tapr.store.write_operations import Content
from tests.images.crafted import MAKERS
from tests.pictures import flag, png, write_flags
from tests.refusals import refused
from tests.test_gallery import report_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="worker processes are for POSIX systems")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS and /proc are Linux's")

ROOT = Path(__file__).parents[2]
VIEWS = [View(224, frame=Frame(224)), View(512, longest=1024), View(800), View(100, png=True)]
GOOD = png(flag("red", "blue", size=(60, 40)))


@pytest.fixture
def pool() -> Iterator[Workers]:
    pool = Workers(2)
    yield pool
    pool.close()


def noise(format_: str, size: tuple[int, int] = (1300, 900)) -> bytes:
    values = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, format_)
    return buffer.getvalue()


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF", "GIF"])
def test_a_worker_gives_the_pixels_that_this_process_would(pool: Workers, format_: str) -> None:
    data = noise(format_)
    here, apart = decode_views(data, VIEWS), pool.decode(data, VIEWS)
    assert apart.size == here.size == (1300, 900)
    for expected, pixels in zip(here.views, apart.views, strict=True):
        np.testing.assert_array_equal(pixels, expected)


def test_views_are_those_of_a_picture_that_is_decoded_for_each() -> None:
    for format_, size in (("JPEG", (1300, 900)), ("JPEG", (300, 200)), ("PNG", (1300, 900))):
        data = noise(format_, size)
        for view, pixels in zip(VIEWS, decode_views(data, VIEWS).views, strict=True):
            np.testing.assert_array_equal(pixels, decode_views(data, [view]).views[0])


def test_a_worker_is_used_again_also_after_a_bad_file(pool: Workers) -> None:
    pool.decode(GOOD, VIEWS)
    pids = pool.pids()
    for data in (b"no picture", GOOD[:60], b""):
        with refused("not_a_picture"):
            pool.decode(data, VIEWS)
    assert pool.pids() == pids
    assert len(pids) == 1


@linux_only
@pytest.mark.parametrize(
    "name",
    ["tiff, lengths as signed numbers, one strip", "tiff, tile wider than the picture, RGBA 16 bit",
     "png, RGBA 16 bit, one row", "jpeg progressive, 4 components"],
)  # fmt: skip
def test_a_picture_may_not_take_more_memory_than_its_limit(pool: Workers, name: str) -> None:
    data = MAKERS[name](16_000_000)
    with pytest.raises(BadImage) as caught:
        pool.decode(data, VIEWS, Limits(memory=40 * 2**20))
    assert isinstance(caught.value, PictureTooLarge) or "takes more than the 40 MB" in str(caught.value)
    assert pool.decode(GOOD, VIEWS).size == (60, 40)


@linux_only
def test_what_exceeds_the_ordinary_memory_is_tried_with_all_that_is_allowed(
    pool: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "ORDINARY_MEMORY", 20 * 2**20)
    data = noise("TIFF", (3500, 3000))
    assert pool.decode(data, [View(224, longest=64)]).size == (3500, 3000)


def test_processor_time_has_a_limit(pool: Workers) -> None:
    data = MAKERS["ppm, plain, 16 bit"](20_000_000)
    with refused("too_large", "seconds of processor time"):
        pool.decode(data, VIEWS, Limits(seconds=1))
    assert pool.decode(GOOD, VIEWS).size == (60, 40)


def test_a_worker_that_was_killed_is_replaced(pool: Workers) -> None:
    pool.decode(GOOD, VIEWS)
    (pid,) = pool.pids()
    os.kill(pid, signal.SIGKILL)
    assert pool.decode(GOOD, VIEWS).size == (60, 40)
    assert pid not in pool.pids()


class Doomed(Workers):
    """Workers that get a signal as soon as they are given a picture."""

    signal = signal.SIGKILL

    def _take(self) -> workers._Worker:
        worker = super()._take()
        os.kill(worker.pid, self.signal)
        return worker


def test_no_worker_that_lives_long_enough_is_no_fault_of_the_picture() -> None:
    with pytest.raises(NoRoomToDecode):
        Doomed(1).decode(GOOD, VIEWS)


def test_a_library_that_crashes_is_the_fault_of_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Doomed, "signal", signal.SIGSEGV)
    with refused("not_a_picture", "crashes"):
        Doomed(1).decode(GOOD, VIEWS)


def test_an_answer_that_makes_no_sense_is_not_believed(pool: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in ({}, {"size": [1, 1], "shapes": [[9, 9, 9]], "last": False}, {"size": [1, 1], "shapes": [[2**40]]}):
        monkeypatch.setattr(workers._Worker, "_answer", lambda *_, answer=answer: answer)
        with pytest.raises(NoRoomToDecode):
            pool.decode(b"\0", VIEWS)
        assert pool.pids() == []  # such a worker is not used again


@linux_only
def test_where_memory_is_not_limited_it_is_watched(pool: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resident_bytes(os.getpid()) > 2**20
    monkeypatch.setattr(workers, "MEMORY_LIMIT_HOLDS", False)
    monkeypatch.setattr(workers, "WATCH_SECONDS", 0.001)
    monkeypatch.setattr(workers, "BYTES_AT_REST", -(2**40))
    with refused("too_large", "of memory allowed"):
        pool.decode(MAKERS["png, RGBA 16 bit"](16_000_000), VIEWS)
    assert pool.pids() == []


def no_process(*_: object, **__: object) -> object:
    raise OSError(errno.EAGAIN, "Resource temporarily unavailable")


def test_pictures_for_which_there_was_no_room_come_in_with_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_flags(tmp_path / "p", [("red",), ("blue",)])
    (tmp_path / "p" / "broken.png").write_bytes(b"broken")
    with monkeypatch.context() as patch:
        patch.setattr(workers, "shared", lambda: Workers(1))
        patch.setattr(workers, "start_worker", no_process)
        gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
        assert len(gallery) == 0
        assert len(report_of(gallery).failures) == 3
    report = gallery.sync()
    assert report.encoded == 2
    assert [Path(path).name for path, _ in report.failures] == ["broken.png"]
    assert gallery.sync().unchanged == 3  # what is bad is not tried for ever


def test_no_room_has_a_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "start_worker", no_process)
    with pytest.raises(NoRoomToDecode) as caught:
        Workers(1).decode(GOOD, VIEWS)
    assert caught.value.code == "no_room"
    monkeypatch.setattr(workers, "WAIT_SECONDS", 0.01)
    busy = Workers(1)
    assert busy._places.acquire()
    with pytest.raises(NoRoomToDecode):
        busy.decode(GOOD, VIEWS)


def test_a_server_says_that_it_has_no_room_and_not_that_the_picture_is_bad(
    pool: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi", reason="the server is the extra `serve`")
    from tapr.server.problems import status_of

    monkeypatch.setattr(workers, "shared", lambda: pool)
    with pytest.raises(BadImage) as bad:
        Content.of(b"no picture", FakeEncoder())
    assert status_of(bad.value) == 415
    monkeypatch.setattr(workers, "start_worker", no_process)
    pool.close()
    with pytest.raises(NoRoomToDecode) as no_room:
        Content.of(GOOD, FakeEncoder())
    assert status_of(no_room.value) == 503


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    return False


PARENT = """
    import os, sys, threading, time
    from tapr.images.decode import View
    from tapr.images.workers import decode_apart, shared

    data = open(sys.argv[1], "rb").read()
    threads = [threading.Thread(target=decode_apart, args=(data, [View(100)])) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(*shared().pids(), flush=True)
    if sys.argv[2] == "hang":
        time.sleep(60)
    if sys.argv[2] == "fork":
        child = os.fork()
        if not child:
            before = shared().pids()
            decode_apart(data, [View(100)])
            os._exit(0 if before == [] and len(shared().pids()) == 1 else 1)
        sys.exit(os.waitpid(child, 0)[1])
"""


@linux_only
@pytest.mark.parametrize("then", ["end", "hang", "fork"])
def test_no_worker_outlives_its_parent_and_none_is_shared_after_a_fork(tmp_path: Path, then: str) -> None:
    (tmp_path / "a.png").write_bytes(GOOD)
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path / "a.png"), then]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TAPR_THREADS": "2"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert 1 <= len(pids) <= 2
        if then == "hang":
            assert all(map(is_alive, pids))
            parent.kill()
        assert parent.wait() == (-signal.SIGKILL if then == "hang" else 0)
    deadline = time.monotonic() + 30
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, pids))


def test_a_worker_loads_little() -> None:
    heavy = [
        "torch",
        "onnxruntime",
        "fastapi",
        "numpy.random",
        "tapr.gallery",
        "tapr.encoders",
        "sqlite3",
        "subprocess",
    ]
    code = f"import sys, tapr.images.worker; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_all_threads_share_the_workers_of_a_process() -> None:
    assert decode_apart(GOOD, VIEWS).size == (60, 40)
    assert shared() is shared()
    assert len(shared().pids()) >= 1


@linux_only
def test_the_process_that_asks_stays_within_its_budget_for_crafted_files() -> None:
    """TIFF with signed lengths, PNG with texts, forged AVIF and JPEG 2000: each took this process's memory before."""
    pytest.importorskip("pillow_heif", reason="HEIC is the extra `heic`")
    program = ROOT / "benchmarks" / "decode_memory.py"
    command = [sys.executable, str(program), "--megapixels", "3", "--only", "apart"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
