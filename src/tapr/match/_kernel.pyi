from typing import Any

from numpy.typing import NDArray

def score(
    isa: str,
    threads: int,
    globals_: NDArray[Any],
    locals_: NDArray[Any],
    scales: NDArray[Any] | None,
    count: int,
    rows: NDArray[Any] | None,
    targets: NDArray[Any],
    target_weights: NDArray[Any],
    fine: int,
    probes: NDArray[Any],
    weights: NDArray[Any],
    sharpness: NDArray[Any],
    owner: NDArray[Any],
    scores: NDArray[Any],
    /,
) -> None: ...
def isas() -> list[str]: ...
