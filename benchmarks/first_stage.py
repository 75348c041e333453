"""The first stage of very large galleries: engines that find candidates, and bounds that prove an answer.

    python -m benchmarks.first_stage queries GALLERY CL-LaSCO_train.json WORK     # real edits, factorized offline
    python -m benchmarks.first_stage bounds GALLERY WORK                          # real pictures: bounds by directions
    python -m benchmarks.first_stage model GALLERY WORK --pictures 118287         # modelled pictures: agreement
    python -m benchmarks.first_stage engines WORK [--only usearch-i8]             # after `model`; needs the engines

WORK is a folder for what the steps hand on. A modelled picture is a mixture of two real ones: every vector is
unit((1 - x) a + x b), x from 0 to 0.35, drawn from its number alone, so no local vector has to be stored.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.first_stage_engines import ENGINES
from numpy.typing import NDArray

import tapr
from tapr.query.scoring import DEFAULT_SCORING
from tapr.score.compile import TAU, CompiledQuery, EncodedSpec
from tapr.search.memory_bank import MemoryBank
from tapr.search.prefilter.engine import picture_vectors, query_vector
from tapr.search.prefilter.summary import RANK, Subspaces, Summary
from tapr.search.reference_weight import decide
from tapr.search.sweep import score_many
from tapr.types import Float32

CHUNK = 128
K = 10


def make_queries(gallery: tapr.Gallery, pairs_file: Path, work: Path, count: int) -> None:
    """Edits of LaSCo whose reference and target are both in the gallery."""
    from tapr.factorize.registry import load_factorizer
    from tapr.query.open_reference import open_reference

    known = {int(Path(name).stem): name for name in gallery.ids()}
    groups = json.loads(pairs_file.read_text())
    rows = [row for group in groups.values() for row in group.values()]
    rows = [row for row in rows if row["query-image"][0] in known and row["target-image"][0] in known]
    np.random.default_rng(7).shuffle(rows)
    factorizer, queries = load_factorizer("grounded", encoder=gallery.encoder), []
    for row in rows[:count]:
        entry = gallery.find(known[row["query-image"][0]])
        assert entry is not None
        reference = open_reference(entry.path, gallery.encoder, gallery)
        spec = factorizer.factorize(reference, row["query-text"]).spec
        encoded = EncodedSpec.of(spec, reference.evidence, gallery.encoder)
        (decided,) = decide(DEFAULT_SCORING, [spec], encoded.target[None], gallery)
        words = EncodedSpec.of(spec, None, gallery.encoder).compile(None, TAU, None)
        queries.append({"default": encoded.compile(None, TAU, decided.continuity), "words": words})
    (work / "queries.pkl").write_bytes(pickle.dumps(queries))
    print(f"{len(queries)} queries of {len(rows):,} possible ones")


def read_queries(work: Path, count: int) -> dict[str, list[CompiledQuery]]:
    queries = pickle.loads((work / "queries.pkl").read_bytes())[:count]  # our own file
    return {kind: [query[kind] for query in queries] for kind in ("default", "words")}


class Model:
    """Modelled pictures, by number."""

    def __init__(self, gallery: tapr.Gallery) -> None:
        block = gallery.gather(gallery.rows)
        self._wholes, self._locals = block.global_vectors.astype(np.float32), block.decoded().astype(np.float32)

    def chunk(self, number: int, count: int) -> MemoryBank:
        rng = np.random.default_rng((17, number))
        first, second = rng.integers(0, len(self._wholes), (2, count))
        x = rng.uniform(0, 0.35, count).astype(np.float32)[:, None]
        return MemoryBank.of(_mixed(self._wholes, first, second, x), _mixed(self._locals, first, second, x[..., None]))


def _mixed(vectors: Float32, first: NDArray[Any], second: NDArray[Any], x: Float32) -> Float32:
    mixed = vectors[second]
    mixed *= x
    mixed += (1 - x) * vectors[first]
    mixed /= np.sqrt(np.einsum("...d,...d->...", mixed, mixed))[..., None]
    return np.asarray(mixed, np.float32)


def highest_of(summary: Summary, bank: MemoryBank, query: CompiledQuery) -> Float32:
    target = query.target * np.float32(query.target_weight)
    global_probes = bank.block.global_vectors.astype(np.float32) @ target
    return np.asarray(global_probes + summary.highest(query, np.arange(len(bank))), np.float32)


def bounds(gallery: tapr.Gallery, work: Path, count: int, several: Sequence[int]) -> None:
    """Of real pictures: what the bounds leave open, and what a full scan and a scan of summaries take."""
    block = gallery.gather(gallery.rows)
    bank = MemoryBank.of(block.global_vectors, block.decoded())
    queries = read_queries(work, count)
    scores = {kind: score_many(asked, bank) for kind, asked in queries.items()}
    start = time.perf_counter()
    score_many(queries["default"][:1], bank)
    print(f"{len(bank):,} pictures, full scan {1e6 * (time.perf_counter() - start) / len(bank):.0f} us per picture")
    print("| directions | bytes per picture | us per picture | left open | left open, words alone | bound - score |")
    print("|---|---|---|---|---|---|")
    for directions in several:
        sample = bank.block.decoded()[:: max(1, len(bank) // 512)]
        summary = Summary.of(bank.block.decoded(), Subspaces.fitted(sample, directions), directions)
        left: dict[str, list[float]] = {}
        slack, seconds, bounded = list[float](), 0.0, list[Float32]()
        for kind, asked in queries.items():
            for query, found in zip(asked, scores[kind], strict=True):
                start = time.perf_counter()
                highest = highest_of(summary, bank, query)
                seconds += time.perf_counter() - start
                bounded.append(highest)
                floor = np.partition(found, -K)[-K]
                left.setdefault(kind, []).append(float((highest >= floor).mean()))
                slack.append(float((highest - found).mean()))
        each = 1e6 * seconds / len(bank) / len(slack)
        shares = " | ".join(f"{np.mean(left[kind]):.1%} (median {np.median(left[kind]):.1%})" for kind in queries)
        print(
            f"| {directions} | {summary.bytes_per_picture:,.0f} | {each:.0f} | {shares} | {np.mean(slack):.4f} |",
            flush=True,
        )
    asked = [query for of_kind in queries.values() for query in of_kind]
    vectors, every = picture_vectors(bank.block), np.stack([query_vector(query) for query in asked])
    found = np.concatenate(list(scores.values()))
    np.save(work / f"vectors-{len(bank)}.npy", vectors.astype(np.float16))
    np.savez(work / f"modelled-{len(bank)}.npz", scores=found, asked=every)  # real ones: for `engines`
    agreement(found, np.stack(bounded), vectors, every, count)


def model(gallery: tapr.Gallery, work: Path, pictures: int, count: int, every: int, directions: int) -> None:
    """Of modelled pictures: all exact scores, and the bounds of every so-many-th chunk."""
    asked = [query for queries in read_queries(work, count).values() for query in queries]
    made = Model(gallery)
    subspaces = Subspaces.fitted(gallery.gather(gallery.rows[:: max(1, len(gallery) // 512)]).decoded(), directions)
    vectors = np.lib.format.open_memmap(
        work / f"vectors-{pictures}.npy", "w+", np.float16, (pictures, 2 * gallery.card.dim)
    )
    scores = np.empty((len(asked), pictures), np.float32)
    highest = np.full((len(asked), pictures), np.nan, np.float32)
    took: dict[str, float] = {"make": 0, "score": 0, "summarise": 0, "bound": 0}
    bounded = 0
    for number, first in enumerate(range(0, pictures, CHUNK)):
        clock = [time.perf_counter()]
        bank = made.chunk(number, min(CHUNK, pictures - first))
        place = slice(first, first + len(bank))
        vectors[place] = picture_vectors(bank.block)
        clock.append(time.perf_counter())
        scores[:, place] = score_many(asked, bank)
        clock.append(time.perf_counter())
        took["make"] += clock[1] - clock[0]
        took["score"] += clock[2] - clock[1]
        if number % every:
            continue
        summary = Summary.of(bank.block.decoded(), subspaces, directions)
        clock.append(time.perf_counter())
        for q, query in enumerate(asked):
            highest[q, place] = highest_of(summary, bank, query)
        clock.append(time.perf_counter())
        took["summarise"] += clock[3] - clock[2]
        took["bound"] += clock[4] - clock[3]
        bounded += len(bank)
    np.savez(
        work / f"modelled-{pictures}.npz",
        scores=scores,
        highest=highest,
        asked=np.stack([query_vector(q) for q in asked]),
    )
    each = {"make": pictures, "score": pictures * len(asked), "summarise": bounded, "bound": bounded * len(asked)}
    print(f"{pictures:,} modelled pictures; us per picture: ", end="")
    print(", ".join(f"{name} {1e6 * seconds / each[name]:.0f}" for name, seconds in took.items()))
    agreement(scores, highest, vectors, np.stack([query_vector(query) for query in asked]), len(asked) // 2)


def agreement(scores: Float32, highest: Float32, vectors: NDArray[Any], asked: Float32, default: int) -> None:
    """How the answers of budgets agree with the exact ones; candidates by an exhaustive engine, the best there is."""
    found = {"default": range(default), "words alone": range(default, len(scores))}
    similar = np.concatenate([(part.astype(np.float32) @ asked.T).T for part in np.array_split(vectors, 200)], axis=1)
    seen = ~np.isnan(highest[0])
    scale = len(seen) / seen.sum()
    for kind, queries in found.items():
        left = []
        for q in queries:
            floor = np.partition(scores[q], -K)[-K]
            left.append(scale * float((highest[q, seen] >= floor).sum()))
        print(
            f"{kind}: exact answers read {np.mean(left):,.0f} pictures ({np.mean(left) / len(seen):.2%}), median "
            f"{np.median(left):,.0f}, least {min(left):,.0f}, most {max(left):,.0f}"
        )
        print("| pictures read | top 1 | top 10 | proven | left open |\n|---|---|---|---|---|")
        for budget in (budget for budget in (30, 100, 300, 1000, 3000, 10_000, 30_000) if 3 * budget < len(seen)):
            rows = [_answer(scores[q], highest[q], similar[q], budget, scale) for q in queries]
            first, best, proven, left_open = (float(np.mean(column)) for column in zip(*rows, strict=True))
            print(f"| {budget:,} | {first:.0%} | {best:.1%} | {proven:.0%} | {left_open:,.0f} |", flush=True)


def _answer(
    scores: Float32, highest: Float32, similar: Float32, budget: int, scale: float
) -> tuple[bool, float, bool, float]:
    right = np.argsort(-scores, kind="stable")[:K]
    read = np.zeros(len(scores), bool)
    read[np.argpartition(-similar, budget)[:budget]] = True
    rows = np.flatnonzero(read)
    answer = rows[np.argsort(-scores[rows], kind="stable")[:K]]
    floor = scores[answer[-1]]
    left = scale * float((~read & (highest >= floor)).sum())
    return bool(answer[0] == right[0]), len(np.intersect1d(answer, right)) / K, left == 0, left


def engines(work: Path, pictures: int, first: int, only: Sequence[str]) -> None:
    """On the first of the modelled pictures."""
    vectors = np.load(work / f"vectors-{pictures}.npy", mmap_mode="r")[:first]
    stored = np.load(work / f"modelled-{pictures}.npz")
    exact = np.argsort(-stored["scores"][:, :first], axis=1, kind="stable")[:, :K]
    print(f"{len(vectors):,} modelled pictures")
    print(
        "| engine | licence | install | build | memory | bytes per picture | ms per query | found in 100 | in 1,000 |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for engine in ENGINES:
        if only and engine.name not in only:
            continue
        print(engine.trial(vectors, stored["asked"], exact, work), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("queries", "bounds", "model", "engines"))
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--pictures", type=int, default=118_287)
    parser.add_argument("--every", type=int, default=1, help="bound every so-many-th chunk of the modelled pictures")
    parser.add_argument("--directions", default=str(RANK), help="kept per picture; several, as 1,8, for `bounds`")
    parser.add_argument("--first", type=int, default=0, help="try engines on so many of the modelled pictures")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    several = [int(number) for number in options.directions.split(",")]
    work = options.places[-1]
    work.mkdir(parents=True, exist_ok=True)
    if options.step == "engines":
        return engines(
            work,
            options.pictures,
            options.first or options.pictures,
            [name for name in options.only.split(",") if name],
        )
    gallery = tapr.Gallery.open(options.places[0])
    if options.step == "queries":
        return make_queries(gallery, options.places[1], work, options.queries)
    if options.step == "bounds":
        return bounds(gallery, work, options.queries, several)
    return model(gallery, work, options.pictures, options.queries, options.every, several[0])


if __name__ == "__main__":
    main()
