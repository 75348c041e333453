"""What must hold for any input, tried on a few hundred made-up ones in every test run (hypothesis)."""

from __future__ import annotations

import json
import math
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput, TaprError
from tapr.evaluate.metrics import Metric, average_precision, ranks_in_list, ranks_in_scores
from tapr.factorize.records import FAILURE, SPEC, Maker, Record
from tapr.gallery import Gallery
from tapr.query.spec import FACTORS, EditSpec, Weights
from tapr.store.filters import BUILT_IN, contains, to_sql
from tapr.store.layout import MANIFEST, Manifest
from tests.pictures import flag

quick = settings(max_examples=150, deadline=None, database=None, derandomize=True)

any_text = st.text(st.characters(), max_size=40)  # halves of surrogate pairs and control characters included
texts = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=20)
numbers = st.one_of(st.integers(), st.floats(), st.integers(10**300, 10**400))
any_json: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, any_text),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(any_text, inner, max_size=4)),
    max_leaves=12,
)


def said(error: TaprError) -> None:
    assert str(error), "a refusal without a reason"


# EditSpec


@quick
@given(
    value=st.dictionaries(
        st.sampled_from(["target", "add", "preserve", "remove", "weights", "atom_weights", "continuity", "other"]),
        st.one_of(any_json, st.lists(texts, max_size=4), texts),
    )
)
def test_a_spec_is_refused_with_a_sentence_or_comes_back_the_same(value: Any) -> None:
    try:
        spec = EditSpec.from_dict(value)
    except BadInput as error:
        said(error)
        return
    assert EditSpec.from_json(spec.to_json()) == spec
    assert EditSpec.from_json(spec.to_json()).digest() == spec.digest()


@quick
@given(target=texts, atoms=st.lists(texts, max_size=8, unique_by=lambda atom: " ".join(atom.split()).casefold()))
def test_good_specs_keep_their_words(target: str, atoms: list[str]) -> None:
    try:
        spec = EditSpec(target, atoms[:3], atoms[3:5], atoms[5:])
    except BadInput:  # unprintable, or blank
        return
    assert spec.target == " ".join(target.split())
    assert [*spec.add, *spec.preserve, *spec.remove] == [" ".join(atom.split()) for atom in atoms]


@quick
@given(value=st.one_of(any_json, any_text, st.dictionaries(st.sampled_from(FACTORS), numbers)))
def test_weights_are_finite_or_refused(value: Any) -> None:
    try:
        weights = Weights.parse(value)
    except BadInput as error:
        said(error)
        return
    assert all(0 <= weight < math.inf for weight in weights.as_dict().values())


@quick
@given(data=st.one_of(st.binary(max_size=60), any_text))
def test_no_bytes_break_the_reading_of_a_spec(data: bytes | str) -> None:
    with pytest.raises(BadInput):
        EditSpec.from_json(data)


# records


@quick
@given(
    kind=st.sampled_from([SPEC, FAILURE, "ldre"]),
    id_=texts,
    image=st.none() | st.text("0123456789abcdef", min_size=64, max_size=64),
    edit=st.none() | texts,
    payload=st.dictionaries(texts, any_json, max_size=3),
    notes=st.lists(texts, max_size=2),
)
def test_a_record_is_one_line_and_comes_back_the_same(
    kind: str, id_: str, image: str | None, edit: str | None, payload: Any, notes: list[str]
) -> None:
    record = Record(payload, kind, id_, image, edit, Maker("m", "p"), tuple(notes))
    line = record.to_line()
    assert line.endswith("\n")
    assert "\n" not in line[:-1]
    again = Record.from_line(line)
    assert again.to_line() == line
    assert again == record


@quick
@given(line=st.one_of(any_text, st.binary(max_size=60), any_json.map(json.dumps)))
def test_a_line_that_is_no_record_is_refused_with_a_sentence(line: str | bytes) -> None:
    with pytest.raises(BadInput):
        Record.from_line(line)


# the manifest


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("gallery")
    flag("red").save(folder / "red.png")
    Gallery.build(folder / "gallery", folder, encoder=FakeEncoder())
    return (folder / "gallery" / MANIFEST).read_text(encoding="utf-8")


@quick
@given(data=st.data())
def test_a_manifest_that_was_changed_is_refused_or_read(manifest: str, data: st.DataObject) -> None:
    value = json.loads(manifest)
    place: Any = value
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        if isinstance(place[key], dict) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        break
    if data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(any_json)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, MANIFEST).write_text(json.dumps(value), encoding="utf-8", errors="surrogatepass")
        try:
            Manifest.read(Path(folder))
        except TaprError as error:
            said(error)


@quick
@given(data=st.binary(max_size=80))
def test_a_manifest_of_any_bytes_is_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, MANIFEST).write_bytes(data)
        with pytest.raises(TaprError):
            Manifest.read(Path(folder))


def test_a_manifest_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("[" * 100_000)
    with pytest.raises(TaprError):
        Manifest.read(tmp_path)


# where

COLUMNS: Any = {"price": "number", "name": "text", "new": "boolean", "since": "date"}
_words = st.sampled_from(
    ["price", "name", "new", "since", "width", "id", "and", "or", "not", "in", "is", "null", "like", "contains",
     "between", "true", "false", "(", ")", ",", "=", "<", ">=", "<>", "1", "-2.5", "3e9", "9999999999999999999999",
     "'x'", "''", "'2024-05-01'", '"name"', "picture.width", ";", "--", "/*", "%", "'", '"']
)  # fmt: skip


@quick
@given(words=st.lists(st.one_of(_words, _words, any_text), max_size=14))
def test_a_filter_is_refused_or_runs_and_holds_no_value_itself(words: list[str]) -> None:
    try:
        condition, parameters = to_sql(" ".join(words), COLUMNS)
    except BadInput as error:
        said(error)
        return
    assert condition.count("?") == len(parameters)
    assert not set(condition) & set("'\";%-/*")
    database = sqlite3.connect(":memory:")
    database.create_function("contains", 2, contains, deterministic=True)
    columns = ", ".join(f"{name}" for name in BUILT_IN)
    database.execute(f"CREATE TABLE images (key INTEGER PRIMARY KEY, {columns})")
    database.execute("CREATE TABLE cells (key, name, value)")
    database.execute(f"SELECT key FROM images WHERE {condition}", parameters).fetchall()
    database.close()


_price = st.integers(-5, 5)


@quick
@given(low=_price, high=_price, rows=st.lists(_price, max_size=12), negated=st.booleans())
def test_a_filter_keeps_what_it_says(low: int, high: int, rows: list[int], negated: bool) -> None:
    text = f"{'not ' if negated else ''}(width >= {low} and width < {high})"
    condition, parameters = to_sql(text, {})
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE images (key INTEGER PRIMARY KEY, width)")
    database.executemany("INSERT INTO images (width) VALUES (?)", [(row,) for row in rows])
    found = [row for (row,) in database.execute(f"SELECT width FROM images WHERE {condition} ORDER BY key", parameters)]
    database.close()
    assert found == [row for row in rows if (low <= row < high) != negated]


# metrics


@quick
@given(name=st.one_of(any_text, st.from_regex(r"(mAP|R|Rsubset|Hit)@\w{1,3}", fullmatch=True), st.just("R@²")))
def test_a_metric_is_read_or_refused(name: str) -> None:
    try:
        metric = Metric.parse(name)
    except BadInput as error:
        said(error)
        return
    assert Metric.parse(str(metric)) == metric


@quick
@given(
    scores=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    right=st.lists(st.integers(0, 11), min_size=1, max_size=4, unique=True),
    k=st.integers(1, 12),
)
def test_metrics_lie_between_0_and_1_and_agree_between_lists_and_scores(
    scores: list[int], right: list[int], k: int
) -> None:
    right = sorted({place % len(scores) for place in right})
    order = np.argsort(-np.array(scores), kind="stable")  # equal scores in gallery order
    listed = ranks_in_list([str(place) for place in order], [str(place) for place in right])
    (counted,) = ranks_in_scores(np.array([scores], np.float64), np.array(right))
    assert listed.right == counted.right
    for kind in ("mAP", "R", "Hit"):
        value = Metric.parse(f"{kind}@{k}").value(counted)
        assert 0 <= value <= 1
        assert value <= Metric.parse(f"{kind}@{k + 1}").value(counted) or kind == "mAP"
    best = [float(rank) for rank in range(1, len(right) + 1)]
    assert average_precision(best, k) == pytest.approx(1)
