"""Stands in for the compiled module _kernel: each call is done by driver.cpp, built for aarch64, under QEMU.

TAPR_AARCH64 is the command that runs the driver. tools/test_kernels.py builds it and puts this file in place.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Part = tuple[Array, Array, Array | None, Array | None]
COMMAND: list[str] = json.loads(os.environ["TAPR_AARCH64"])


def isas() -> list[str]:
    return _run(["isas"], b"").decode().split()


def score(  # as _kernel.pyi has it
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
) -> None:
    call = [_numbers(len(isa)), isa.encode()]
    call += [_numbers(threads, len(parts), count, targets.shape[1], len(targets), len(weights), fine)]
    for array in (targets, target_weights, probes, weights, sharpness, owner):
        call += _array(array)
    call += [_numbers(len(sketches), len(sketch_numbers)), *_array(sketches), *_array(sketch_numbers)]
    for globals_, locals_, scales, rows in parts:
        call += [_numbers(len(globals_)), *_array(globals_), *_array(locals_), *_array(scales)]
        call += [_numbers(len(globals_) if rows is None else len(rows)), *_array(rows)]
    scores[...] = np.frombuffer(_run([], b"".join(call)), np.float32).reshape(scores.shape)


def _numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _array(array: Array | None) -> list[bytes]:
    return [_numbers(-1)] if array is None else [_numbers(array.nbytes), array.tobytes()]


def _run(arguments: list[str], call: bytes) -> bytes:
    done = subprocess.run([*COMMAND, *arguments], input=call, capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"the driver ended with {done.returncode}: {done.stderr.decode()}")
    return done.stdout
