"""A disk, a permission or a limit of the system gives one sentence and exit 1, never a traceback."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tapr.cli.main
from tapr.utils.files import write_atomically


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "make room on that disk"),
        (errno.EROFS, "choose a place that can be written"),
        (errno.EACCES, "choose another place"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "the disk itself failed"),
        (errno.ENOTDIR, "solve that"),
    ],
)
def test_one_sentence(monkeypatch: Any, capsys: Any, number: int, advice: str) -> None:
    def fails(**_: Any) -> None:
        raise OSError(number, os.strerror(number), "/somewhere/a\x1b[31m file")

    monkeypatch.setattr(tapr.cli.main, "app", fails)
    monkeypatch.setattr(tapr.cli.main, "_close_stdout", lambda: None)  # pytest reads from there
    with pytest.raises(SystemExit) as stopped:
        tapr.cli.main.main()
    said = capsys.readouterr().err
    assert stopped.value.code == 1
    assert said.startswith("tapr: cannot use '/somewhere/a\\x1b[31m file': ")
    assert advice in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("error", [ConnectionResetError(), OSError("no number"), TimeoutError("too late")])
def test_also_without_a_file(monkeypatch: Any, capsys: Any, error: OSError) -> None:
    def fails(**_: Any) -> None:
        raise error

    monkeypatch.setattr(tapr.cli.main, "app", fails)
    monkeypatch.setattr(tapr.cli.main, "_close_stdout", lambda: None)
    with pytest.raises(SystemExit):
        tapr.cli.main.main()
    assert capsys.readouterr().err.startswith("tapr: the system refused something: ")


def run(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("verb", ["--help", "models list", "doctor --json"])
def test_a_full_disk_behind_stdout(verb: str) -> None:
    code = f"import sys; sys.argv = ['tapr', *{verb.split()!r}]; from tapr.cli.main import main; main()"
    with open("/dev/full", "w") as full:
        done = run(code, stdout=full)
    assert done.returncode == 1
    assert done.stderr == (
        "tapr: the system refused something: no space left on device; make room on that disk, then run this again\n"
    )


FULL = """
import errno, os, sys
real = os.fsync
def full(handle):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
os.fsync = full
sys.argv = ["tapr", *sys.argv[1:]]
from tapr.cli.main import main
main()
"""


def test_a_full_disk_under_a_file_that_is_written_whole(tmp_path: Path) -> None:
    """What is on the disk stays as it was, and the sentence names the file that was meant."""
    (tmp_path / "kept.json").write_text("old")
    code = FULL.replace("from tapr.cli.main import main\nmain()", "") + (
        "import tapr.cli.main\nfrom pathlib import Path\nfrom tapr.utils.files import write_atomically\n"
        f"tapr.cli.main.app = lambda **_: write_atomically(Path({str(tmp_path / 'kept.json')!r}), b'new')\n"
        "tapr.cli.main.main()\n"
    )
    done = run(code)
    assert done.returncode == 1
    assert done.stderr == (
        f"tapr: cannot use '{tmp_path / 'kept.json'}': no space left on device; "
        "make room on that disk, then run this again\n"
    )
    assert (tmp_path / "kept.json").read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "kept.json"]


def test_the_error_names_the_file_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 (its text is the system's)
        write_atomically(tmp_path / "no such folder" / "x", b"")
    assert caught.value.filename == str(tmp_path / "no such folder" / "x")
