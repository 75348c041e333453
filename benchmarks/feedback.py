"""What marks on hits change: "not like" the first wrong hit, "more like" a hit that shows the edit. Simulated.

python benchmarks/feedback.py [--gallery FOLDER] [--split val] [--limit N]

Queries, specs and right answers are those of EmojiCIR; `val` is its development split, on which FEEDBACK of
score/compile.py was chosen. A simulated person looks at the first ten hits of a search. "not like": the first that is
right for no query with the same edit. "more like": the first one that is no right answer of this query, but is one of
another query with the same edit; queries without such a hit are left out of that row. Marked pictures leave the
ranking, with and without the feedback, so that "before" and "after" rank the same pictures. Intervals: 95 %,
bootstrap over queries.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tapr.encoders.base import Evidence
from tapr.encoders.caching import CachingEncoder
from tapr.evaluate.bank import open_bank
from tapr.evaluate.datasets.emoji import load
from tapr.query.scoring import DEFAULT_SCORING
from tapr.query.spec import DEFAULT_WEIGHTS, EditSpec
from tapr.score.compile import FEEDBACK, CompiledQuery, Continuity, EncodedSpec, shares
from tapr.search.kernels.choose import choose_kernel
from tapr.search.reference_weight import decide
from tapr.search.sweep import score_many

LOOKED_AT = 10
FACTORS = (0.0, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0)  # FEEDBACK; times theta of Preserve or Remove


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gallery", type=Path, default=Path("build/emoji-feedback"))
    parser.add_argument("--split", default="val")
    parser.add_argument("--limit", type=int, help="About so many queries, evenly spaced.")
    asked = parser.parse_args()
    dataset = load(asked.split)
    gallery = open_bank(dataset, asked.gallery)
    encoder, kernel = CachingEncoder(gallery.encoder), choose_kernel()
    ids = gallery.ids()
    place = {id_: number for number, id_ in enumerate(ids)}
    same_edit: dict[str, set[int]] = defaultdict(set)
    for query in dataset.queries:
        same_edit[query.edit] |= {place[name] for name in query.right}
    values: dict[str, list[list[float]]] = defaultdict(list)
    step = max(1, len(dataset.queries) // (asked.limit or len(dataset.queries)))
    for query in dataset.queries[::step]:
        spec = EditSpec.from_dict(dataset.records[query.id]["spec"])
        block = gallery.gather(gallery.rows[[place[query.reference]]])
        reference = Evidence(block.global_vectors.astype(np.float32), block.decoded().astype(np.float32))
        encoded = EncodedSpec.of(spec, reference, encoder)
        (decided,) = decide(DEFAULT_SCORING, [spec], encoded.target[None], gallery)
        assert decided.continuity is not None
        (before,) = _scores(gallery, kernel, [encoded.compile(continuity=decided.continuity)])
        before = before * _total(spec, decided.continuity)
        before[place[query.reference]] = -np.inf
        order = np.argsort(-before, kind="stable")[:LOOKED_AT].tolist()
        right = {place[name] for name in query.right}
        wrong = [one for one in order if one not in right]
        good = [one for one in wrong if one in same_edit[query.edit]][:1]
        bad = [one for one in wrong if one not in same_edit[query.edit]][:1]
        like = _likeness(gallery, kernel, [*good, *bad])
        plus = DEFAULT_WEIGHTS.preserve * like[0] if good else 0.0
        minus = DEFAULT_WEIGHTS.remove * like[-1] if bad else 0.0
        first = min((order.index(one) for one in right if one in order), default=LOOKED_AT)
        if bad:
            row = [_found(before - factor * minus, right, bad) for factor in FACTORS]
            values["not like"].append(row)
            if order.index(bad[0]) < first:
                values["not like, where no right answer stands above it"].append(row)
        if good:
            values["more like"].append([_found(before + factor * plus, right, good) for factor in FACTORS])
        if good and bad:
            change = FEEDBACK["preserve"] * plus - FEEDBACK["remove"] * minus
            values["both, times FEEDBACK"].append([_found(before + f * change, right, good + bad) for f in FACTORS])
    print(f"EmojiCIR {asked.split}, {len(ids):,} pictures, encoder {gallery.card.name}: mAP@10 in percent")
    print(f"FEEDBACK is {FEEDBACK}")
    _print(values)


def _print(values: dict[str, list[list[float]]]) -> None:
    rng = np.random.default_rng(0)
    for name, rows in values.items():
        table = 100 * np.array(rows)
        chosen = rng.integers(0, len(table), (2000, len(table)))
        print(f"{name}: {len(table)} queries; before {table[:, 0].mean():.1f}")
        for number, factor in list(enumerate(FACTORS))[1:]:
            gain = table[:, number] - table[:, 0]
            low, high = np.percentile(gain[chosen].mean(axis=1), [2.5, 97.5])
            print(
                f"  {factor:4}: {table[:, number].mean():5.1f}  gain {gain.mean():+.1f} [{low:+.1f}, {high:+.1f}]"
                f"  better {100 * np.mean(gain > 0):.0f} %, worse {100 * np.mean(gain < 0):.0f} % of the queries"
            )


def _total(spec: EditSpec, continuity: Continuity) -> float:
    """What `weigh` divides by: scores times this are the sum of the weighted operators."""
    theta = DEFAULT_WEIGHTS
    parts = shares(spec, True, continuity)
    return float(sum(abs(p.weight) * (1.0 if p.theta is None else getattr(theta, p.theta)) for p in parts))


def _scores(gallery: Any, kernel: Any, queries: list[CompiledQuery]) -> list[np.ndarray]:
    return [np.array(one, np.float64) for one in score_many(queries, gallery, kernel)]


def _likeness(gallery: Any, kernel: Any, places: list[int]) -> list[np.ndarray]:
    """1/2 I + 1/2 C of the whole gallery with each of these pictures."""
    queries = []
    for position in places:
        block = gallery.gather(gallery.rows[[position]])
        probes = block.decoded()[0].astype(np.float32)
        even = np.full(len(probes), 0.5 / len(probes), np.float32)
        whole = block.global_vectors.astype(np.float32)
        queries.append(CompiledQuery(whole, np.array([0.5], np.float32), probes, even, ()))
    return _scores(gallery, kernel, queries) if queries else []


def _found(scores: np.ndarray, right: set[int], marked: list[int]) -> float:
    """Average precision at 10, without the marked pictures."""
    scores = scores.copy()
    scores[marked] = -np.inf
    hits, precision = 0, 0.0
    for rank, one in enumerate(np.argsort(-scores, kind="stable")[:10].tolist(), 1):
        if one in right:
            hits += 1
            precision += hits / rank
    return precision / min(10, len(right))


if __name__ == "__main__":
    main()
