"""CIRR without its pictures: a factorizer reads a caption and an edit, and its sentences rank the other captions.

The captions are a model's, from whats2000/WeiMoCIR: the user fetches them. Queries, right answers and the gallery are
CIRR's own. It measures how well a factorizer reads edits as people write them, and nothing of a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tapr.encoders.base import Encoder, unit
from tapr.errors import BadInput
from tapr.evaluate.bank import read_captions
from tapr.evaluate.datasets.base import Query
from tapr.evaluate.datasets.cirr import load
from tapr.evaluate.metrics import AnswerRanks, Metric, Outcome, metrics
from tapr.evaluate.significance import difference, interval
from tapr.evaluate.table import Row, Table
from tapr.factorize.grounded import NAME, read
from tapr.factorize.records import RecordFile
from tapr.factorize.seeing import Seen
from tapr.factorize.tags import Tags
from tapr.query.spec import EditSpec
from tapr.types import Float32

METRICS = metrics("R@1", "R@5", "R@10", "R@50")
_MAIN = Metric("R", 10)
_HALF = 0.5  # weight of the caption beside the edit
Reader = Callable[[Query, str], Mapping[str, float]]  # a query and its caption -> sentences with weights


def readers(records: Sequence[Path] = ()) -> dict[str, Reader]:
    """Return what is compared: simple baselines, `grounded`, and the specs of record files."""
    named: dict[str, Reader] = {
        "edit": lambda query, caption: {query.edit: 1.0},
        f"edit + {_HALF} caption": lambda query, caption: {query.edit: 1.0, caption: _HALF},
        NAME: _grounded,
        f"{NAME} + edit": lambda query, caption: {query.edit: 1.0, **_grounded(query, caption)},
    }
    for path in records:
        named[path.stem] = _of_records(path)
    return named


def _grounded(query: Query, caption: str) -> Mapping[str, float]:
    return dict(read(Seen(caption), Tags(), query.edit).spec.sentences)


def _of_records(path: Path) -> Reader:
    found, torn = RecordFile(path).read()
    specs = {record.id: EditSpec.from_dict(dict(record.payload)) for record in found if record.kind == "spec"}
    if torn or not specs:
        raise BadInput(torn or f"{path} holds no spec: make it with tapr factorize --batch")
    return lambda query, caption: dict(specs[query.id].sentences) if query.id in specs else {query.edit: 1.0}


def compare_readers(
    data: Path, captions: Path, encoder: Encoder, named: Mapping[str, Reader], limit: int | None = None
) -> tuple[Table, dict[str, Outcome]]:
    """Rank CIRR val's captions by every reader's sentences; differences are to the edit alone."""
    dataset = load(data, "val")
    texts = read_captions(captions)
    gallery = [name for name in dataset.parts[0].gallery if name in texts]
    place = {name: number for number, name in enumerate(gallery)}
    asked = (dataset if limit is None else dataset.limited(limit)).queries
    queries = [query for query in asked if query.reference in place and query.right[0] in place]
    if not queries:
        raise BadInput(f"{captions} has no captions of CIRR val's pictures: give WeiMoCIR's file for CIRR")
    shown = _means([dict.fromkeys(texts[name], 1.0) for name in gallery], encoder)
    outcomes = {}
    for name, reader in named.items():
        sentences = [reader(query, texts[query.reference][0]) for query in queries]
        scores = _means(sentences, encoder) @ shown.T
        ranks = []
        for query, row in zip(queries, scores, strict=True):
            target = row[place[query.right[0]]]
            row[place[query.reference]] = -np.inf
            before = (row > target).sum() + (row[: place[query.right[0]]] == target).sum()
            ranks.append((AnswerRanks((1.0 + float(before),)),))
        outcomes[name] = Outcome(tuple(query.id for query in queries), tuple(ranks), ((),) * len(queries))
    return _table(outcomes, len(asked), len(gallery), encoder, captions), outcomes


def _means(sentences: Sequence[Mapping[str, float]], encoder: Encoder) -> Float32:
    """Return (Q, d): the weighted mean of the vectors of each row's sentences."""
    texts = list(dict.fromkeys(text for weights in sentences for text in weights))
    row = dict(zip(texts, encoder.encode_texts(texts), strict=True))
    return unit(np.stack([sum(weight * row[text] for text, weight in weights.items()) for weights in sentences]))


def _table(outcomes: Mapping[str, Outcome], asked: int, gallery: int, encoder: Encoder, captions: Path) -> Table:
    plain = outcomes.get("edit")
    rows: list[Row] = []
    for name, outcome in outcomes.items():
        around = interval(outcome, _MAIN)
        row: dict[str, str | float | None] = {"Reader": name}
        row |= {str(metric): 100 * outcome.mean(metric) for metric in METRICS}
        row[f"{_MAIN} 95 %"] = f"{around.low:.1f} – {around.high:.1f}"
        row["minus edit"] = "" if plain is None or plain is outcome else str(difference(outcome, plain, _MAIN))
        rows.append(row)
    rows.sort(key=lambda row: -float(row[str(_MAIN)] or 0))
    answered = len(next(iter(outcomes.values())).ids)
    note = (
        f"CIRR val without pictures: {answered:,} of {asked:,} queries whose reference and target have captions in "
        f"{captions.name}. The first one of the reference is read. {gallery:,} pictures are ranked by the mean of "
        f"their captions in the text tower of {encoder.card.name}; the reference is left out."
    )
    return Table("cirr_words", "CIRR val by captions alone", tuple(rows), (note,), tuple(map(str, METRICS)))
