"""A gallery is kept fresh by real events of real files. Nothing here waits for a time, only for what must come."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tapr import BadInput
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.index.report import Report
from tapr.store.lock import writer_lock
from tests.cli.terminal import run
from tests.pictures import flag, png, write_flags

pytest.importorskip("watchfiles", reason="the extra 'watch' is not installed")
import tapr.index.watch
from tapr.index.watch import Watcher, places_of


class Heard:
    """What a watcher told, and a way to wait for it."""

    def __init__(self) -> None:
        self.runs: list[Report] = []
        self.fresh: list[str] = []
        self.said: list[str] = []

    def tell(self, report: Report, fresh: list[tuple[str, str]]) -> None:
        self.fresh += [os.path.basename(path) for path, _ in fresh]
        self.runs.append(report)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def start(self, total: int, what: str) -> None: ...
    def advance(self, done: int) -> None: ...


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60  # only for a test that fails
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def watched(folder: Path, *sources: Path) -> Iterator[tuple[Heard, Watcher]]:
    gallery = Gallery.build(folder, sources, FakeEncoder())
    heard, stop = Heard(), threading.Event()
    watcher = Watcher(gallery, heard.tell, heard, settle=0.05)
    thread = threading.Thread(target=watcher.run, args=(stop,))
    thread.start()
    try:
        yield heard, watcher
    finally:
        stop.set()
        thread.join()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tapr.index.watch, "_RETRY_SECONDS", 0.1)


def ids(folder: Path) -> list[str]:
    return sorted(Gallery.open(folder, encoder=FakeEncoder()).ids())


def test_pictures_come_go_and_break_and_a_server_sees_it(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
    from tests.server.conftest import client_of

    folder, bank = tmp_path / "p", tmp_path / "p" / "bank"  # the gallery lies among its pictures
    write_flags(folder, [("red",)])
    with watched(bank, folder) as (heard, watcher), client_of(Gallery.open(bank, encoder=FakeEncoder())) as client:
        assert client.get("/api/gallery").json()["count"] == 1
        write_flags(folder / "new", [("blue",)])
        until(lambda: client.get("/api/gallery").json()["count"] == 2)
        (folder / "broken.png").write_bytes(b"no")
        until(lambda: heard.fresh == ["broken.png"])
        (folder / "broken.png").write_bytes(png(flag("green")))
        until(lambda: ids(bank) == ["broken.png", "new/blue.png", "red.png"])
        (folder / "red.png").unlink()
        until(lambda: client.get("/api/gallery?limit=9").json()["count"] == 2)
        (folder / "new" / "blue.png").rename(folder / "navy.png")
        until(lambda: ids(bank) == ["broken.png", "navy.png"])
        until(lambda: watcher.summary.renamed == 1)
    assert (watcher.summary.encoded, watcher.summary.removed) == (2, 1)
    assert heard.fresh == ["broken.png"]


def test_a_busy_lock_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.store.lock.WAIT_SECONDS", 0.1)
    write_flags(tmp_path / "p", [("red",)])
    with watched(tmp_path / "g", tmp_path / "p") as (heard, watcher):
        with writer_lock(tmp_path / "g"):
            write_flags(tmp_path / "p", [("blue",)])
            until(lambda: watcher.summary.troubles > 1)
            assert sum("is writing to" in sentence for sentence in heard.said) == 1
        until(lambda: ids(tmp_path / "g") == ["blue.png", "red.png"])


def test_tables_and_the_pictures_that_they_name(tmp_path: Path) -> None:
    here, there = write_flags(tmp_path / "a", [("red",)]) + write_flags(tmp_path / "b", [("blue",)])
    table = tmp_path / "t" / "t.csv"
    table.parent.mkdir()
    table.write_text(f"path,id\n{here},1\n")
    with watched(tmp_path / "g", table) as (_, watcher):
        for number in (2, 3):  # each time a new file in the old one's place, as editors do it
            other = table.with_name(".new")
            other.write_text(f"path,id\n{here},1\n{there},{number}\n")
            other.replace(table)
            until(lambda number=number: ids(tmp_path / "g") == ["1", str(number)])  # type: ignore[misc]
        assert places_of(watcher._gallery) == {str(table), str(here.parent), str(there.parent)}
        there.write_bytes(png(flag("green")))
        until(lambda: watcher.summary.encoded == 2)


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without telling it")
def test_the_command_ends_with_a_summary_and_0(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", [("red",)])
    command = [sys.executable, "-m", "tapr.cli.main", "watch", str(tmp_path / "p"), "-g", str(tmp_path / "g"), "--json"]
    command += ["--encoder", "fake", "--settle", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["encoded"] == 1
        write_flags(tmp_path / "p", [("blue",)])
        run_ = json.loads(process.stdout.readline())
        assert (run_["event"], run_["encoded"], run_["pictures"]) == ("run", 1, 2)
        process.send_signal(signal.SIGTERM)
        end = json.loads(process.stdout.readline())
        assert (end["event"], end["runs"], end["encoded"]) == ("end", 1, 1)
    assert process.returncode == 0


def test_mistakes_are_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("watch", tmp_path / "none", "-g", tmp_path / "g", "--encoder", "fake")
    assert done.code == 2
    assert "there is no file or folder" in done.err
    write_flags(tmp_path / "p", [("red",)])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    with pytest.raises(BadInput, match="above 0"):
        Watcher(gallery, Heard().tell, Heard(), settle=0)
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(BadInput, match=r"tapr-cir\[watch\]"):
        Watcher(gallery, Heard().tell, Heard()).run(threading.Event())


def test_a_folder_that_goes_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a disk that is unplugged; this ended the program with code 2."""
    monkeypatch.setattr(tapr.index.watch, "_RETRY_SECONDS", 0.1)
    write_flags(tmp_path / "p", [("red",)])
    with watched(tmp_path / "g", tmp_path / "p") as (heard, _):
        (tmp_path / "p").rename(tmp_path / "away")
        until(lambda: any("waiting for it to come back" in sentence for sentence in heard.said))
        assert ids(tmp_path / "g") == ["red.png"]
        write_flags(tmp_path / "away", [("blue",)])
        (tmp_path / "away").rename(tmp_path / "p")
        until(lambda: ids(tmp_path / "g") == ["blue.png", "red.png"])
