"""Fixtures that several folders share; which tests are heavy, and how tests are dealt out to processes."""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.encoders.fake import FakeEncoder
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, fetch
from tapr.errors import TaprError
from tapr.gallery import Gallery
from tests.damaged import PAIRS
from tests.pictures import write_flags

# Why a test is heavy; pyproject.toml says more. `make check` leaves such tests out, `make test` runs those of them that
# are marked `smoke`, and `make test-all` runs all.
HEAVY = ("browser", "ray", "gpu", "faults", "toolchain", "weights", "slow")
# A failed test of these kinds is tried once more in CI, where the machine is loaded, and listed as RERUN. One that
# needs the second try twice is mended or deleted.
TRIED_TWICE = ("browser", "ray")
FIXTURES = {"browser": "browser", "small_cluster": "ray", "image_tower_file": "weights"}  # whoever asks for it is heavy
SECONDS = Path(__file__).with_name("seconds.json")  # of each file, as `make seconds` found them: the longest go first
_measured: dict[str, float] = defaultdict(float)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store-seconds", action="store_true", help="write the time that each file takes to seconds.json")


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(FIXTURES[fixture])
        if any(item.get_closest_marker(name) for name in HEAVY):
            item.add_marker("heavy")
        if os.environ.get("CI") == "true" and any(item.get_closest_marker(name) for name in TRIED_TWICE):
            item.add_marker(pytest.mark.flaky(reruns=1))
    seconds = json.loads(SECONDS.read_text(encoding="utf-8")) if SECONDS.exists() else {}
    items.sort(key=lambda item: -seconds.get(_file(item.nodeid), 0))
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            # A file's tests share what they set up, and all tests of Ray one cluster. Those of the GPU share little.
            if not item.get_closest_marker("gpu"):
                group = "ray" if item.get_closest_marker("ray") else _file(item.nodeid).removesuffix(".py")
                item.add_marker(pytest.mark.xdist_group(group))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _measured[_file(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--store-seconds") and not hasattr(session.config, "workerinput"):
        known = json.loads(SECONDS.read_text(encoding="utf-8")) if SECONDS.exists() else {}
        long = {file: round(time) for file, time in {**known, **_measured}.items() if round(time) >= 2}
        SECONDS.write_text(json.dumps(long, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@pytest.fixture(scope="session")
def image_tower_file() -> Path:
    """The real image tower, from the user's cache or fetched into it."""
    try:
        return fetch(CLIP_B16_IMAGE_TOWER)
    except TaprError as error:
        pytest.skip(f"needs the weights of clip-b16: {error}")


@pytest.fixture(scope="session")
def clip(image_tower_file: Path) -> ClipOnnxEncoder:
    return ClipOnnxEncoder()


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 rows per shard, 4 rows per checksum of local vectors, 32 of global ones."""
    monkeypatch.setattr("tapr.store.layout.SHARD_BYTES", 9 * 32 * 2 * 16)
    monkeypatch.setattr("tapr.store.checksums.CHUNK_BYTES", 9 * 32 * 2 * 4)


@pytest.fixture
def built(tmp_path: Path, small_shards: None) -> Path:
    """A gallery of many small shards, and a copy of it as it was, to be damaged."""
    write_flags(tmp_path / "p", PAIRS)
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder(), "both")
    shutil.copytree(tmp_path / "g", tmp_path / "whole")
    return tmp_path / "g"
