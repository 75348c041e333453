"""What the adaptive rule costs beside the search that it decides for.

python benchmarks/reference_weight.py [--pictures 20000]

Random vectors, 57 probes; medians of runs in turn. Prints the rule's own time, a search with the fixed weight, and the
ratio; the obvious alternative, a NumPy product over all global vectors, stands beside.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from tapr.encoders.base import Evidence, unit
from tapr.query.scoring import Scoring
from tapr.query.spec import EditSpec
from tapr.score.compile import EncodedSpec
from tapr.search.kernels.choose import choose_kernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.reference_weight import decide
from tapr.search.topk import top_k

M, D, ROUNDS = 49, 512, 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=20_000)
    pictures = parser.parse_args().pictures
    rng = np.random.default_rng(0)
    globals_ = unit(rng.standard_normal((pictures, D), np.float32))
    locals_ = np.empty((pictures, M, D), np.float16)
    for start in range(0, pictures, 1000):  # a thousand at a time: float32 of all would take twice the memory
        locals_[start : start + 1000] = unit(
            rng.standard_normal((len(locals_[start : start + 1000]), M, D), np.float32)
        )
    bank = MemoryBank.of(globals_, locals_)
    spec = EditSpec("target", ["a", "b", "c"], ["d", "e"], ["f", "g", "h"])
    words = unit(rng.standard_normal((9, D), np.float32))
    atoms = dict(zip([*spec.add, *spec.preserve, *spec.remove], words[1:], strict=True))
    reference = Evidence(globals_[:1], locals_[:1].astype(np.float32))
    encoded = EncodedSpec(spec, (reference,), {spec.target: words[0]}, atoms)
    kernel = choose_kernel()
    (fixed,) = decide(Scoring("fixed"), [spec], encoded.target[None], bank, kernel)
    query = encoded.compile(continuity=fixed.continuity)
    wide = globals_.astype(np.float32)
    timed: dict[str, Callable[[], Any]] = {
        "search, fixed weight": lambda: top_k(query, bank, 10, kernel),
        "the rule": lambda: decide(Scoring("adaptive"), [spec], encoded.target[None], bank, kernel),
        "NumPy product, float32 in memory": lambda: wide @ words[0],
    }
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(ROUNDS):
        for name, run in timed.items():
            begin = time.perf_counter()
            run()
            taken[name].append(1000 * (time.perf_counter() - begin))
    middle = {name: median(values) for name, values in taken.items()}
    print(f"{pictures:,} pictures x {M} x {D}, {len(query.probes)} probes, kernel {kernel.name}")
    for name, value in middle.items():
        print(f"{name:34} {value:9.2f} ms   {100 * value / middle['search, fixed weight']:6.2f} % of a search")


if __name__ == "__main__":
    main()
