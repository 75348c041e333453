"""What is published: one version, and an sdist with the same bytes wherever and whenever it is made."""

from __future__ import annotations

import io
import re
import tarfile
import tomllib
from pathlib import Path

import tapr
from tests.cli.terminal import run
from tools.build_dist import sha256, write_plain

ROOT = Path(__file__).parents[1]


def test_the_version_stands_in_one_place() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["dynamic"] == ["version"]
    assert settings["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "tapr.__version__"}
    assert run("--version").out == f"tapr {tapr.__version__}\n"
    # read by the workflow `wheels` without Python, to compare it with the tag
    line = re.findall(r'^__version__ = "([^"]+)"', (ROOT / "src/tapr/__init__.py").read_text(encoding="utf-8"), re.M)
    assert line == [tapr.__version__]


def test_an_sdist_does_not_show_when_where_and_by_whom_it_was_made(tmp_path: Path) -> None:
    first = archive(tmp_path / "1.tar.gz", ["tapr-1/b", "tapr-1/a"], date=1_700_000_000, owner="ann", mode=0o600)
    other = archive(tmp_path / "2.tar.gz", ["tapr-1/a", "tapr-1/b"], date=1_800_000_000, owner="bob", mode=0o664)
    assert sha256(first) != sha256(other)
    plain = [write_plain(file, tmp_path / file.stem / "tapr-1.tar.gz", 1_750_000_000) for file in (first, other)]
    assert sha256(plain[0]) == sha256(plain[1])
    with tarfile.open(plain[0]) as found:
        assert found.getnames() == ["tapr-1", "tapr-1/a", "tapr-1/b"]
        assert {(member.mtime, member.uname, member.uid) for member in found} == {(1_750_000_000, "", 0)}
        assert [found.extractfile(name).read() for name in found.getnames()[1:]] == [b"tapr-1/a", b"tapr-1/b"]  # type: ignore[union-attr]


def archive(file: Path, names: list[str], date: int, owner: str, mode: int) -> Path:
    """With its own name as each file's content."""
    with tarfile.open(file, "w:gz") as packed:
        for name in ["tapr-1", *names]:
            info = tarfile.TarInfo(name)
            info.mtime, info.uname, info.mode, info.size = date, owner, mode, len(name)
            if name == "tapr-1":
                info.type, info.size = tarfile.DIRTYPE, 0
            packed.addfile(info, io.BytesIO(name.encode()))
    return file
