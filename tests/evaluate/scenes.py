"""A random bank with random phrases, small enough for the definition to check everything."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tapr.encoders.base import EncoderCard, unit
from tapr.encoders.fake import FakeEncoder
from tapr.evaluate.datasets.base import Dataset, Part, Query
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol
from tapr.evaluate.run import Experiment
from tapr.methods import Features, RecordSet
from tapr.query.scoring import PAPER, Scoring
from tapr.search.memory_bank import MemoryBank
from tapr.types import Float32

PICTURES, LOCALS, DIM = 30, 6, 16
SPECS = (
    {"target": "one", "add": ["b"], "preserve": ["c", "d"], "remove": ["e"]},
    {"target": "two", "add": ["b", "f"], "preserve": [], "remove": ["g"]},
    {"target": "three", "add": [], "preserve": ["h"], "remove": []},
    {"target": "four", "add": [], "preserve": [], "remove": []},
    {"target": "five", "add": ["i"], "preserve": ["j", "k"], "remove": ["l", "m"]},
)


class HashedEncoder(FakeEncoder):
    """Every phrase has a random direction of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.card = EncoderCard("hashed", "", DIM, (2, 3), "tokens", 32, "crop")

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") for text in texts]
        drawn = [np.random.default_rng(seed).standard_normal(DIM) for seed in seeds]
        return unit(np.array(drawn).reshape(-1, DIM))


def random_scene(*, tunable: bool = True, keep_reference: bool = False, scoring: Scoring = PAPER) -> Experiment:
    draw = np.random.default_rng(5)
    bank = MemoryBank.of(
        unit(draw.standard_normal((PICTURES, DIM))), unit(draw.standard_normal((PICTURES, LOCALS, DIM)))
    )
    names = tuple(f"p{number}" for number in range(PICTURES))
    queries = tuple(
        Query(f"q{number}", names[number // 2], f"edit {number}", (names[9 + number], names[3]), groups=("all",))
        for number in range(len(SPECS))
    )
    protocol = Protocol(
        "random", "val" if tunable else "test", "random", keep_reference, "none",
        metrics("mAP@10", "R@5"), Metric("mAP", 10), tunable=tunable,
    )  # fmt: skip
    dataset = Dataset(protocol, (Part("all", names, queries),), {name: Path(name) for name in names})
    features = Features.of(HashedEncoder(), bank, {name: row for row, name in enumerate(names)}, names)
    records = RecordSet({query.id: {"spec": spec} for query, spec in zip(queries, SPECS, strict=True)}, "made up")
    return Experiment(dataset, (features,), records, scoring)
