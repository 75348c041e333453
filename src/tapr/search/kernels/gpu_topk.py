"""Top-k on a device, with a defined order of ties."""

from __future__ import annotations

from typing import Any

import torch

_SEGMENT = 2048  # pictures per segment


def largest(scores: Any, k: int) -> tuple[Any, Any]:
    """The k largest of each row; equal scores by lower position: (Q, N) -> positions and scores, both (Q, k).

    torch.topk leaves the order of ties open. So it gets unique keys: the score's bits, made sortable, above the
    position counted from the end.
    """
    count = scores.shape[1]
    bits = (scores + 0.0).view(torch.int32).to(torch.int64)  # + 0.0 turns minus zero into zero
    ordered = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    keys = (ordered << 32) + torch.arange(count - 1, -1, -1, device=scores.device)  # positions from the end
    k = min(k, count)
    if k <= _SEGMENT // 8 and count >= 8 * _SEGMENT:  # top-k per segment first: many small searches are faster
        padded = torch.nn.functional.pad(keys, (0, -count % _SEGMENT), value=torch.iinfo(torch.int64).min)
        keys = torch.topk(padded.unflatten(1, (-1, _SEGMENT)), k, dim=2).values.flatten(1)
    keys = torch.topk(keys, k, dim=1).values
    positions = count - 1 - (keys & 0xFFFFFFFF)
    return positions, scores.gather(1, positions)
