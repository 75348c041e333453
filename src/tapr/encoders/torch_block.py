"""The last transformer block of an image tower in torch, read again with an extractor's attention.

Towers name the parts of a block differently. `TorchBlock` is what all have; local_tokens.py defines the reading.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from torch.nn.functional import linear, scaled_dot_product_attention

from tapr.encoders.extractors import Extractor

Layer = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class TorchBlock:
    """norm, attention, scale; norm, FFN, scale."""

    norm_1: Layer
    packed: tuple[Any, Any]  # weight (3 D, D) and bias (3 D,) of queries, keys and values
    heads: int
    out: Layer  # the attention's output projection
    scale_1: Layer
    norm_2: Layer
    mlp: Layer
    scale_2: Layer
    prefix: int  # tokens before the patches: 1 with a CLS token, 0 without

    def reread(self, hidden: Any, extractor: Extractor, near: Any = None) -> Any:
        """Map the block's input (B, prefix + P, D) to (B, P, D). `near` is added to the logits, (P, P) or wider."""
        patches = self.scale_1(self.out(self._attention(self.norm_1(hidden), extractor, near)))
        if extractor.whole_block:
            patches = hidden[:, self.prefix :] + patches
            patches = patches + self.scale_2(self.mlp(self.norm_2(patches)))
        return patches

    def _attention(self, normed: Any, extractor: Extractor, near: Any) -> Any:
        """Map (B, prefix + P, D) to (B, P, D): what each patch reads from the values, before the output projection."""
        first = self.prefix if extractor.reads_cls else 0  # of the patches among what is read
        normed = normed[:, self.prefix - first :]
        q, k, v = linear(normed, *self.packed).chunk(3, dim=-1)
        if not extractor.attends:
            return v[:, first:]
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (q, k, v))
        sides = {"query": q, "key": k}
        reads = [
            scaled_dot_product_attention(sides[asking][:, :, first:], sides[other], v, attn_mask=near)
            for asking, other in extractor.attends
        ]
        return reduce(add, reads).transpose(1, 2).flatten(2)
