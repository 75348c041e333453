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

COMMAND: list[str] = json.loads(os.environ["TAPR_AARCH64"])


def isas() -> list[str]:
    return _run(["isas"], b"").decode().split()


def score(*arguments: Any) -> None:
    _call("score", arguments, 11)


def means(*arguments: Any) -> None:
    _call("means", arguments, -1)


def bounds(*arguments: Any) -> None:
    _call("bounds", arguments, -1)


def pooled(*arguments: Any) -> None:
    _call("pooled", arguments, -1)


def _call(name: str, arguments: tuple[Any, ...], answer: int) -> None:
    """What _kernel.pyi has under this name; one of the arguments is where the answer goes."""
    to = arguments[answer]
    call = b"".join(map(_bytes, (name, *arguments)))
    to[...] = np.frombuffer(_run([], call), to.dtype).reshape(to.shape)


def _bytes(value: Any) -> bytes:
    if isinstance(value, int):
        return struct.pack("<q", value)
    if value is None:
        return _bytes(-1)
    if isinstance(value, (list, tuple)):
        return _bytes(len(value)) + b"".join(map(_bytes, value))
    data = value.encode() if isinstance(value, str) else value.tobytes()
    return _bytes(len(data)) + bytes(data)


def _run(arguments: list[str], call: bytes) -> bytes:
    done = subprocess.run([*COMMAND, *arguments], input=call, capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"the driver ended with {done.returncode}: {done.stderr.decode()}")
    return done.stdout
