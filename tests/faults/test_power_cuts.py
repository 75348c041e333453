"""Power cuts: a few of them; benchmarks/power_cuts.py has the many."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pytest
from benchmarks.power_cuts import SURVIVES, Recording, check, record, recorder

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None, reason="the recording layer needs Linux and a C compiler"
    ),
]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    with recorder() as library:
        return record(tmp_path_factory.mktemp("power"), library, 1)


@pytest.mark.parametrize("survives", SURVIVES)
def test_what_was_acknowledged_outlives_a_power_cut(recording: Recording, tmp_path: Path, survives: str) -> None:
    dice = random.Random(survives)
    for number in range(4):
        place = tmp_path / str(number)
        states = recording.cut(dice.randrange(1, len(recording.log) + 1), survives, place, dice)
        check(place, states, recording.pictures)


def test_a_write_that_is_not_flushed_is_seen(recording: Recording, tmp_path: Path) -> None:
    """Without its fsyncs the same record does not pass."""
    forgetful = Recording(
        recording.root,
        recording.base,
        recording.inodes,
        [one for one in recording.log if one.kind != "F"],
        recording.pictures,
    )
    states = forgetful.cut(len(forgetful.log), "names", tmp_path / "cut", random.Random(0))
    with pytest.raises(Exception):  # noqa: B017, PT011 (whichever file is read first)
        check(tmp_path / "cut", states, recording.pictures)
