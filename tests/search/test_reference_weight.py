from __future__ import annotations

import math

import numpy as np
import pytest

from tapr import BadInput, EditSpec
from tapr.encoders.base import unit
from tapr.query.edit_kinds import EDIT_KINDS, UNSURE_WEIGHT
from tapr.query.scoring import PAPER, RULES, Scoring
from tapr.query.spec import checked_reference_weight
from tapr.search.kernels.base import Kernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.reference_weight import (
    TEMPERATURE,
    decide,
    fitting,
    histogram,
    pictures_that_fit,
    reference_weight_for,
)
from tests.search.banks import KERNELS

SPEC = EditSpec("a red car")


def bank_of(similarities: list[float], **options: object) -> MemoryBank:
    """Pictures with these similarities to the first axis."""
    s = np.array(similarities)
    vectors = np.stack([s, np.sqrt(1 - s**2), np.zeros_like(s), np.zeros_like(s)], axis=1)
    return MemoryBank.of(vectors, vectors[:, None], **options)  # type: ignore[arg-type]


AXIS = np.eye(1, 4, dtype=np.float32)


def test_one_picture_that_stands_out_is_one_and_equal_ones_are_all() -> None:
    assert pictures_that_fit(AXIS, bank_of([0.9] + [0.1] * 99))[0] == pytest.approx(1, abs=1e-3)
    assert pictures_that_fit(AXIS, bank_of([0.3] * 40))[0] == pytest.approx(40)
    assert pictures_that_fit(AXIS, bank_of([0.9] * 7 + [0.1] * 93))[0] == pytest.approx(7, abs=1e-3)


def test_the_count_is_the_entropy_of_the_softmax() -> None:
    s = np.random.default_rng(0).normal(0.25, 0.03, 500)
    p = np.exp((s - s.max()) / TEMPERATURE)
    p /= p.sum()
    exact = math.exp(-(p * np.log(p)).sum())
    assert pictures_that_fit(AXIS, bank_of(s.tolist()))[0] == pytest.approx(exact, rel=0.02)


def test_counts_of_parts_of_a_gallery_add_up_without_rounding() -> None:
    """So shards, blocks and batches give the same bits as one machine."""
    s = np.random.default_rng(1).normal(0.25, 0.05, 1000).astype(np.float32)
    whole = fitting(histogram(s))
    for cuts in ([500], [1, 2, 3], [17, 400, 999]):
        parts = [histogram(part) for part in np.split(np.random.default_rng(2).permutation(s), cuts)]
        assert fitting(np.sum(parts, axis=0)) == whole


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: str(kernel.name))
def test_blocks_and_batches_do_not_change_a_bit(kernel: Kernel) -> None:
    rng = np.random.default_rng(3)
    globals_, locals_ = unit(rng.standard_normal((150, 32))), unit(rng.standard_normal((150, 4, 32)))
    targets = unit(rng.standard_normal((5, 32)) + 2 * globals_[:5])
    together = pictures_that_fit(targets, MemoryBank.of(globals_, locals_), kernel)
    for block_rows in (1, 7, 64):
        bank = MemoryBank.of(globals_, locals_, block_rows=block_rows)
        assert pictures_that_fit(targets, bank, kernel).tolist() == together.tolist()
        alone = [float(pictures_that_fit(target[None], bank, kernel)[0]) for target in targets]
        assert alone == together.tolist()


def test_the_more_pictures_fit_the_more_of_the_reference_stays() -> None:
    stays = [reference_weight_for(count, 1000) for count in (1, 2, 10, 100, 500, 1000)]
    assert stays == sorted(stays)
    assert all(0 <= reference_weight <= 1 for reference_weight in stays)
    assert stays[0] < stays[-1]


def test_the_option_wins_over_the_spec_and_the_spec_over_the_rule() -> None:
    bank = bank_of([0.3] * 40)
    (by_rule,) = decide(Scoring("fixed"), [SPEC], AXIS, bank)
    assert by_rule.continuity is not None
    assert by_rule.continuity.reference_weight == UNSURE_WEIGHT
    nothing_stays = EditSpec("a boat", continuity=0)
    (by_spec,) = decide(Scoring("adaptive"), [nothing_stays], AXIS, bank)
    assert by_spec.continuity is not None
    assert by_spec.continuity.reference_weight == 0
    assert by_spec.notes == ("nothing of the reference stays: the words decide alone",)
    (by_person,) = decide(Scoring("adaptive", 0.8), [nothing_stays], AXIS, bank)
    assert by_person.continuity is not None
    assert by_person.continuity.reference_weight == 0.8
    (adaptive,) = decide(Scoring("adaptive"), [SPEC], AXIS, bank)
    assert adaptive.continuity is not None
    assert adaptive.continuity.reference_weight == reference_weight_for(40, 40)
    assert adaptive.notes[0].startswith("the words fit about 40 pictures of 40")


def test_the_kind_of_edit_decides_before_the_middle_and_is_told() -> None:
    bank = bank_of([0.3] * 40)
    weights = {}
    for name, kind in EDIT_KINDS.items():
        (by_kind,) = decide(Scoring("fixed"), [EditSpec("a boat", kind=name)], AXIS, bank)
        assert by_kind.continuity is not None
        assert by_kind.continuity.reference_weight == kind.reference_weight
        assert kind.says in by_kind.notes[0]
        weights[name] = kind.reference_weight
    assert weights["medium"] < UNSURE_WEIGHT <= weights["attribute"]
    (by_person,) = decide(Scoring("fixed", 0.7), [EditSpec("a boat", kind="medium")], AXIS, bank)
    assert by_person.continuity is not None
    assert by_person.continuity.reference_weight == 0.7
    (by_spec,) = decide(Scoring("fixed"), [EditSpec("a boat", kind="medium", continuity=0.9)], AXIS, bank)
    assert by_spec.continuity is not None
    assert by_spec.continuity.reference_weight == 0.9


def test_the_papers_score_ignores_the_reference_weight_and_notes_it() -> None:
    (plain,) = decide(PAPER, [SPEC], AXIS, bank_of([0.1]))
    assert (plain.continuity, plain.notes) == (None, ())
    (ignoring,) = decide(PAPER, [EditSpec("a", continuity=0)], AXIS, bank_of([0.1]))
    assert ignoring.continuity is None
    assert "takes no notice" in ignoring.notes[0]
    with pytest.raises(BadInput, match="leave out reference_weight"):
        Scoring("paper", 0.5)


@pytest.mark.parametrize("rule", RULES)
def test_an_empty_gallery_is_decided_too(rule: str) -> None:
    (decided,) = decide(Scoring(rule), [SPEC], AXIS, bank_of([]))  # type: ignore[arg-type]
    assert (decided.continuity is None) == (rule == "paper")


def test_mistakes_are_said() -> None:
    with pytest.raises(BadInput, match="unknown score 'best': choose paper, fixed, adaptive"):
        Scoring("best")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="unknown reference features"):
        Scoring("fixed", reference_features="up")  # type: ignore[arg-type]
    for value in (-1, 2, math.nan, "0.5", None, True):
        with pytest.raises(BadInput, match="from 0"):
            checked_reference_weight(value)
