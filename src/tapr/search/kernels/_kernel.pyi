from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
Part = tuple[Array, Array, Array | None, Array | None]  # globals, locals, scales, rows
SummaryPart = tuple[
    Array | None, Array, Array, Array | None, Array | None
]  # globals, pooled, outlines, summaries, rows

def score(
    isa: str,
    threads: int,
    parts: list[Part],
    count: int,
    targets: Array,
    target_weights: Array,
    fine: int,
    probes: Array,
    weights: Array,
    sharpness: Array,
    owner: Array,
    scores: Array,
    sketches: Array,
    sketch_numbers: Array,
    /,
) -> None: ...
def means(
    isa: str,
    threads: int,
    parts: list[Part],
    count: int,
    dim: int,
    probes: Array,
    sharpnesses: Array,
    means: Array,
    /,
) -> None: ...
def bounds(
    isa: str,
    threads: int,
    parts: list[SummaryPart],
    count: int,
    blocks: int,
    outlined: int,
    summarised: int,
    targets: Array,
    target_weights: Array,
    target_lengths: Array,
    fine: int,
    probes: Array,
    weights: Array,
    owner: Array,
    lanes: Array,
    floors: Array | None,
    bounds: Array,
    /,
) -> None: ...
def pooled(
    isa: str, threads: int, parts: list[tuple[Array, Array | None]], dim: int, wanted: Array, products: Array, /
) -> None: ...
def isas() -> list[str]: ...
