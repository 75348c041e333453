"""The first stage of large galleries: what the bounds rule out, what they cost, and what a search takes with them.

    python -m benchmarks.first_stage queries GALLERY CL-LaSCO_train.json WORK     # real edits, factorized offline
    python -m benchmarks.first_stage real GALLERY WORK                            # real pictures
    python -m benchmarks.first_stage model GALLERY WORK --pictures 40000          # modelled pictures, kept in WORK
    python -m benchmarks.first_stage measure WORK --pictures 40000 --sizes 5000,40000

WORK is a folder for what the steps hand on. A modelled picture is a mixture of two real ones: every vector is
unit((1 - x) a + x b), x from 0 to 0.35, drawn from its number alone. Times are of the processor, in one run, each thing
timed beside what it is compared with; wall times are those of a machine that may have other work. Other engines
are in peers.py.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tapr
from tapr.encoders.base import EncoderCard
from tapr.options import Budget
from tapr.query.scoring import DEFAULT_SCORING
from tapr.score.compile import TAU, CompiledQuery, EncodedSpec
from tapr.search.kernels.base import VECTORS
from tapr.search.kernels.choose import choose_kernel
from tapr.search.kernels.cpu import CpuKernel
from tapr.search.match import top_k_by_summaries
from tapr.search.memory_bank import MemoryBank
from tapr.search.prefilter.bound import highest
from tapr.search.prefilter.candidates import resemblance
from tapr.search.reference_weight import decide
from tapr.search.sweep import score_many
from tapr.search.topk import top_k_many
from tapr.store.block import Block
from tapr.store.summary import Subspaces, Summariser
from tapr.types import Float32

CHUNK = 128
K = 10
EVERY = np.full(1, -np.inf, np.float32)  # a floor that every picture reaches
ARRAYS = ("global_vectors", "local_vectors", "outlines", "summaries", "pooled")


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
    work.mkdir(parents=True, exist_ok=True)
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


def real_bank(gallery: tapr.Gallery) -> MemoryBank:
    block = gallery.gather(gallery.rows)
    return MemoryBank.of(block.global_vectors, block.decoded()).summarised()


def model(gallery: tapr.Gallery, work: Path, pictures: int) -> None:
    """Modelled pictures with their summaries, as files."""
    made, folder, start = Model(gallery), work / f"model-{pictures}", time.process_time()
    folder.mkdir(parents=True, exist_ok=True)
    sample = gallery.gather(gallery.rows[:: max(1, len(gallery) // 512)]).decoded()
    subspaces = Subspaces.fitted(sample)
    summariser, files = Summariser(subspaces), dict[str, Any]()
    np.save(folder / "basis.npy", subspaces.basis)
    took = 0.0
    for number, first in enumerate(range(0, pictures, CHUNK)):
        block = made.chunk(number, min(CHUNK, pictures - first)).block
        begun = time.process_time()
        rows = summariser.of(block.global_vectors, block.decoded())
        took += time.process_time() - begun
        arrays = (block.global_vectors, block.local_vectors, rows.outlines, rows.summaries, rows.pooled)
        for name, array in zip(ARRAYS, arrays, strict=True):
            assert array is not None
            if name not in files:
                shape = (pictures, *array.shape[1:])
                files[name] = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", array.dtype, shape)
            files[name][first : first + len(block)] = array
    each = 1e3 / pictures
    whole = each * (time.process_time() - start)
    print(f"{pictures:,} modelled pictures: {whole:.1f} ms each, {each * took:.1f} of them for summaries")


def modelled_bank(work: Path, pictures: int) -> MemoryBank:
    folder = work / f"model-{pictures}"
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS}
    block = Block(0, **{name: np.asarray(array) for name, array in arrays.items()})
    _, count, dim = arrays["local_vectors"].shape
    card = EncoderCard("modelled", "", dim, (1, count), "clearclip", 0, "crop")
    rows = np.arange(len(block), dtype=np.int64)
    return MemoryBank(card, "fp16", block, rows, subspaces=Subspaces(np.load(folder / "basis.npy")))


def first_of(bank: MemoryBank, size: int) -> MemoryBank:
    return MemoryBank(bank.card, "fp16", bank.block.take(slice(0, size)), bank.rows[:size], subspaces=bank.subspaces)


def timed(work: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[Any, float, float]:
    """Result (of the first query, where there is one for each), processor seconds, wall seconds."""
    start = time.process_time(), time.perf_counter()
    (found,) = work(*arguments, **named)
    return found, time.process_time() - start[0], time.perf_counter() - start[1]


def bounds(bank: MemoryBank, queries: dict[str, list[CompiledQuery]]) -> None:
    """One thread: microseconds per picture and query, beside the exact score; and what is left open."""
    kernel, block = CpuKernel(threads=1), bank.block
    assert block.outlines is not None
    assert block.summaries is not None
    assert block.pooled is not None
    sizes = (block.outlines.itemsize, block.summaries.itemsize, block.pooled[:1].nbytes, block.decoded()[:1].nbytes)
    print(f"{len(bank):,} pictures, {kernel.name}, one thread, microseconds per picture")
    print("bytes per picture: outline {:,}, summary {:,}, pooled {:,}, vectors {:,}".format(*sizes))
    heads = "queries | exact | outline | both records | pooled | open by outlines | open by both | bound above | found"
    print(f"| {heads} in 128 |\n|---|---|---|---|---|---|---|---|---|")
    for kind, asked in queries.items():
        took = dict.fromkeys(("exact", "outline", "both", "pooled"), 0.0)
        rows = []
        for query in asked:
            scores, took_, _ = timed(score_many, [query], bank, kernel)
            outlined, outline, _ = timed(highest, [query], bank, None, kernel, VECTORS)
            both, closer, _ = timed(highest, [query], bank, None, kernel, VECTORS, floors=EVERY)
            promise, pooled, _ = timed(lambda one=query: resemblance([one], bank, None, kernel).promise)
            for name, seconds in zip(took, (took_, outline, closer, pooled), strict=True):
                took[name] += seconds
            assert (both >= scores).all()
            best = np.argsort(-scores, kind="stable")[:K]
            floor = scores[best[-1]]
            found = np.isin(best, np.argpartition(-promise, 128)[:128]).mean()
            rows.append(((outlined >= floor).mean(), (both >= floor).mean(), (both - scores).mean(), found))
        each = [f"{1e6 * seconds / len(bank) / len(asked):.2f}" for seconds in took.values()]
        outlined, both, slack, found = np.array(rows).T
        shares = [f"{one.mean():.2%} (median {np.median(one):.2%})" for one in (outlined, both)]
        print("|", " | ".join([kind, *each, *shares, f"{slack.mean():.4f}", f"{found.mean():.1%}"]), "|", flush=True)


def searches(bank: MemoryBank, queries: dict[str, list[CompiledQuery]]) -> None:
    """The kernel of a search: a full one, an exact one by stages, and ones with limits."""
    kernel = choose_kernel()
    kinds: dict[str, tuple[Budget, float | None]] = {
        "exact by stages": ("exact", None),
        "prefilter 128": (128, None),
        "prefilter 1,000": (1000, None),
        "budget_ms 20": ("exact", 20.0),
    }
    print(f"{len(bank):,} pictures, {kernel.name}, all threads; of {len(queries['default'])} queries each, medians")
    print("| queries | search | processor ms | wall ms | read | left open | proven | top 10 right |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, asked in queries.items():
        rows: dict[str, list[tuple[float, ...]]] = {}
        for query in asked:
            right, used, waited = timed(top_k_many, [query], bank, K, kernel)
            rows.setdefault("full", []).append((1e3 * used, 1e3 * waited, len(bank), 0, 1, 1))
            for name, (budget, ms) in kinds.items():
                found, used, waited = timed(top_k_by_summaries, [query], bank, K, kernel, budget, ms)
                proof = found.proof
                assert proof is not None
                same = len(np.intersect1d(found.positions, right.positions)) / K
                if proof.proven:
                    assert found.positions.tolist() == right.positions.tolist()
                    assert found.scores.tolist() == right.scores.tolist()
                rows.setdefault(name, []).append((1e3 * used, 1e3 * waited, proof.read, proof.open, proof.proven, same))
        for name, several in rows.items():
            used, waited, read, left, proven, same = np.array(several, float).T
            print(
                f"| {kind} | {name} | {np.median(used):.1f} | {np.median(waited):.1f} | {np.median(read):,.0f} "
                f"| {np.median(left):,.0f} | {proven.mean():.0%} | {same.mean():.1%} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("queries", "real", "model", "measure"))
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--pictures", type=int, default=40_000)
    parser.add_argument("--sizes", default="", help="how many of the modelled pictures, several as 5000,40000")
    options = parser.parse_args()
    work = options.places[-1]
    work.mkdir(parents=True, exist_ok=True)
    if options.step in ("queries", "model", "real"):
        gallery = tapr.Gallery.open(options.places[0])
    if options.step == "queries":
        return make_queries(gallery, options.places[1], work, options.queries)
    if options.step == "model":
        return model(gallery, work, options.pictures)
    queries = read_queries(work, options.queries)
    bank = real_bank(gallery) if options.step == "real" else modelled_bank(work, options.pictures)
    for size in [int(number) for number in options.sizes.split(",") if number] or [len(bank)]:
        bounds(first_of(bank, size), queries)
        searches(first_of(bank, size), queries)
    return None


if __name__ == "__main__":
    main()
