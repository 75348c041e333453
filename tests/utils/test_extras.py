"""The distribution's name: every text that tells how to install names ours, never the stranger called `tapr`."""

import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import get_args

import pytest

from tapr.utils.extras import DISTRIBUTION, Extra, install_hint

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# an install command up to the end of its line, or the stranger's name before the bracket of an extra
_INSTALL = re.compile(r"pip3? +(?:install|download|wheel)\b[^\n`;|&]*")
_STRANGER = re.compile(r"""(?<![\w./:@-])tapr(?=\[|[ \n'"=<>~!,]|$)""")
_STRANGERS_EXTRA = re.compile(r"""(?<![\w./-])tapr\[(?:[a-z]+)[\],]""")


def names_the_stranger(text: str) -> list[str]:
    """What a text says that would fetch the other project."""
    found = _STRANGERS_EXTRA.findall(text)
    return found + [command for command in _INSTALL.findall(text) if _STRANGER.search(command)]


def tracked_texts() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the files that git tracks")
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    own = Path(__file__)
    return [path for path in paths if path.is_file() and path != own and b"\0" not in path.read_bytes()]


@pytest.mark.parametrize(
    "text",
    [
        "pip install tapr",
        "pip install -U tapr",
        "pip install 'tapr[serve]'",
        'python -m pip install --quiet "tapr==0.1"',
        "install tapr[gpu], or choose",
        "(tapr[openclip])",
        "pip download tapr\n",
        "tapr[demo,heic]",
    ],
)
def test_the_name_of_the_other_project_is_detected(text: str) -> None:
    assert names_the_stranger(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install .",
        "pip install '.[serve]'",
        "pip install --editable '.[check]'",
        "pip install 'tapr-cir[serve]'",
        "pip install tapr-cir",
        "pip install ./tapr",
        "/opt/tapr/bin/pip install --no-cache-dir '.[serve,llm,heic]'",
        "pip install . && tapr index",
        "pip install .\ntapr index pictures",
        "by_method = methods['tapr']['R@1']",
    ],
)
def test_our_own_install_commands_are_accepted(text: str) -> None:
    assert not names_the_stranger(text)


def test_no_text_names_the_other_project() -> None:
    texts = tracked_texts()
    assert len(texts) > 100
    found = {
        str(path.relative_to(ROOT)): said
        for path in texts
        if (said := names_the_stranger(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert found == {}


def test_the_project_is_called_what_the_hints_say() -> None:
    assert PROJECT["name"] == DISTRIBUTION != "tapr"
    assert PROJECT["scripts"] == {"tapr": "tapr.cli.main:main"}, "the command keeps its name"


def test_every_hint_names_an_extra_that_there_is() -> None:
    for extra in get_args(Extra):
        assert extra in PROJECT["optional-dependencies"]
        assert install_hint(extra) == f"pip install 'tapr-cir[{extra}]'"


def test_the_installed_distribution_has_the_name() -> None:
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        pytest.skip("tapr runs from its sources here, not installed")
    assert installed.metadata["Name"] == DISTRIBUTION
