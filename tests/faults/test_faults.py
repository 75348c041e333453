"""Index runs, syncs and repairs that are disturbed: quick ones; benchmarks/faults.py has the many."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator

import pytest
from benchmarks.faults import KINDS, ColumnStatistics, Scenario, Workshop, Wrong, workshop

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        sys.platform != "linux" or shutil.which("cc") is None, reason="the layer of faults needs Linux and a C compiler"
    ),
]
SCENARIOS = ("index", "sync", "compact", "repair")


@pytest.fixture(scope="module")
def shop() -> Iterator[Workshop]:
    with workshop() as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_disturbed_run_continues_to_the_result_of_an_undisturbed_one(shop: Workshop, name: str, kind: str) -> None:
    scenario = shop.scenarios[name]
    tally = ColumnStatistics()
    shop.trial(scenario, kind, random.Random(f"{name} {kind}").randint(1, scenario.operations), tally)
    assert tally.trials == 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_that_is_killed_while_it_publishes_or_tidies_up(shop: Workshop, name: str) -> None:
    scenario = shop.scenarios[name]
    for at in range(scenario.operations - 4, scenario.operations + 1):
        shop.trial(scenario, "kill", at, ColumnStatistics())


def test_a_run_that_is_killed_while_it_makes_the_gallery(shop: Workshop) -> None:
    for at in range(1, 40, 9):
        shop.trial(shop.scenarios["index"], "torn", at, ColumnStatistics())


def test_a_server_goes_on(shop: Workshop) -> None:
    told = shop.serve(4, random.Random(0))
    assert told["answers"] > 0
    assert told["kills"] > 0


def test_the_comparisons_can_fail(shop: Workshop) -> None:
    """A row of another picture, an entry that is doubled, a file that is left: each is seen."""
    scenario: Scenario = shop.scenarios["sync"]
    shop.trial(scenario, "short", 1, ColumnStatistics())
    shop.check(scenario)
    shard = shop.gallery / "local-0-00001.npy"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-576] + whole[-1152:-576])
    with pytest.raises(Wrong, match="shards differ"):
        shop.check(scenario)
    shard.write_bytes(whole)
    (shop.gallery / "catalog-0.sqlite").write_bytes(b"left")
    with pytest.raises(Wrong, match="left behind"):
        shop.check(scenario)
