from collections.abc import Buffer

def score(
    isa: str,
    threads: int,
    globals_: Buffer,
    locals_: Buffer,
    scales: Buffer | None,
    count: int,
    targets: Buffer,
    target_weights: Buffer,
    probes: Buffer,
    weights: Buffer,
    sharpness: Buffer,
    owner: Buffer,
    scores: Buffer,
    /,
) -> None: ...
def isas() -> list[str]: ...
