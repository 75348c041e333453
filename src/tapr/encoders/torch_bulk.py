"""Large batches on a GPU by torch, for encoders that have a tower in it: what travels back is what a bank stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Evidence
from tapr.errors import NoDevice, TaprError

BULK_PICTURES = 256  # pictures per pass of an index run on a GPU; halved where its memory is too small
NOT_NUMBERS = "the model gave vectors that are not numbers: its weights are broken, or too large for float16"

Tower = Callable[[Any], tuple[Any, Any]]  # pictures (B, S, S, 3), bytes -> global (B, d) and local (B, M, d) vectors


class TorchBulk:
    """Runs a tower over any number of pictures."""

    def __init__(self, tower: Tower, dim: int, locals_count: int, device: Any) -> None:
        self._tower, self._dim, self._locals, self._device = tower, dim, locals_count, device
        self.size = BULK_PICTURES

    def __call__(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        """Encode pictures in float16, in the order they came."""
        import torch

        pinned = self._device.type == "cuda"
        globals_ = torch.empty((len(prepared), self._dim), dtype=torch.float16, pin_memory=pinned)
        locals_ = torch.empty((len(prepared), self._locals, self._dim), dtype=torch.float16, pin_memory=pinned)
        pictures = torch.empty((len(prepared), *prepared[0].shape), dtype=torch.uint8, pin_memory=pinned)
        np.stack(prepared, out=pictures.numpy())
        start, finite = 0, []
        while start < len(prepared):
            batch = slice(start, start + self.size)
            try:
                outputs = self._tower(pictures[batch])
            except torch.cuda.OutOfMemoryError:
                if self.size == 1:
                    raise
                torch.cuda.empty_cache()
                self.size //= 2
                continue
            for room, vectors in zip((globals_, locals_), outputs, strict=True):
                units = torch.nn.functional.normalize(vectors.float(), dim=-1)
                finite.append(units.isfinite().all())
                room[batch].copy_(units, non_blocking=True)
            start = batch.stop
        if pinned:  # wait without keeping a processor busy: others decode
            done = torch.cuda.Event(blocking=True)
            done.record()
            done.synchronize()
        if not bool(torch.stack(finite).all()):
            raise TaprError(NOT_NUMBERS, code="bad_vectors")
        return Evidence(globals_.numpy(), locals_.numpy())


def choose_device(device: str | None) -> Any:
    """Return the device of this name; None is a GPU where there is one."""
    import torch

    gpus = torch.cuda.device_count()
    try:
        chosen = torch.device(device or ("cuda" if gpus else "cpu"))
    except RuntimeError as error:
        raise NoDevice(f"unknown device {device!r}: choose cpu or cuda") from error
    if chosen.type not in ("cpu", "cuda"):
        raise NoDevice(f"encoders do not run on {device!r}: choose cpu or cuda")
    if chosen.type == "cuda" and (chosen.index or 0) >= gpus:
        raise NoDevice(f"torch sees no device {device!r} here: choose cpu")
    return chosen
