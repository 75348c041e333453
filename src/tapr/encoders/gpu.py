"""Whether clip-b16 runs on a GPU. Where there is none, torch is not even loaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tapr.encoders.arithmetic import FLOAT16, asked_for
from tapr.errors import BadInput
from tapr.utils.extras import install_hint

_DRIVER = Path("/dev/nvidiactl")


def gpu_for(device: str | None) -> Any:
    """Return the GPU that is asked for, or where nothing is asked the first one; None: the CPU."""
    arithmetic = asked_for()
    if device == "cpu" or (device is None and (arithmetic not in (None, FLOAT16) or not _DRIVER.exists())):
        return None
    if find_spec("torch") is None:
        if device is None:
            return None
        raise BadInput(f"the device {device!r} needs torch: {install_hint('gpu')}", code="missing_extra")
    from tapr.encoders.torch_bulk import choose_device

    chosen = choose_device(device)
    return chosen if chosen.type == "cuda" else None
