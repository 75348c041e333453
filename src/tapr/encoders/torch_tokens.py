"""Global and local vectors from one pass of an open_clip image tower. Needs torch and open_clip (the extra `openclip`).

extractors.py says what each extractor reads and local_tokens.py defines it; this is the same for batches of tensors.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import torch
from torch.nn.functional import normalize

from tapr.encoders.extractors import extractor_of
from tapr.encoders.local_tokens import Grid, neighbourhood, pooled_grid, pooling
from tapr.encoders.open_clip_import import import_open_clip
from tapr.encoders.torch_block import TorchBlock
from tapr.errors import UnfitEncoder

_transformer = import_open_clip().transformer

WORKING_TOWERS = (
    "local vectors need a plain ViT with a CLS token, such as ViT-B-32, ViT-L-14 or ViT-bigG-14, or a tower of timm, "
    "such as ViT-B-16-SigLIP"
)


def check_tower(visual: Any) -> None:
    """Refuse a tower whose last block cannot be read: ResNet, attentional or average pooling, custom blocks."""
    if not isinstance(visual, _transformer.VisionTransformer):
        raise UnfitEncoder(f"the image tower is a {type(visual).__name__}: {WORKING_TOWERS}")
    if visual.attn_pool is not None or visual.pool_type != "tok":
        raise UnfitEncoder(f"the image tower does not pool by its CLS token: {WORKING_TOWERS}")
    if not isinstance(visual.transformer.resblocks[-1], _transformer.ResidualAttentionBlock):
        raise UnfitEncoder(f"the image tower's attention is not the standard one: {WORKING_TOWERS}")


class TorchTokens:
    """Runs the tower unchanged and reads the local vectors from what entered its last block."""

    def __init__(self, visual: Any, extractor: str) -> None:
        check_tower(visual)
        self._extractor = extractor_of(extractor)
        self._visual = visual
        self._last = visual.transformer.resblocks[-1]
        self._block = _block_of(self._last)
        self._native: Grid = tuple(visual.grid_size)
        self._lock = Lock()  # a hook sees every pass of the tower, so that one thread at a time may have one
        self.grid = pooled_grid(self._native)
        device = visual.proj.device
        self._pooling = torch.from_numpy(pooling(self._native, self.grid)).to(device)  # (M, P)
        self._near: Any = None  # (P, P), or (P, 1 + P)
        if self._extractor.neighbourhood:
            near = neighbourhood(self._native, self._extractor.neighbourhood, self._extractor.reads_cls)
            self._near = torch.from_numpy(near).to(device, visual.proj.dtype)

    def __call__(self, pixels: Any) -> tuple[Any, Any]:
        """Encode normalised pixels (B, 3, S, S): the tower's own output (B, d) and local unit vectors (B, M, d)."""
        with torch.inference_mode():
            output, hidden, after = self._run(pixels)
            return output, self._local(hidden, after)

    def _run(self, pixels: Any) -> tuple[Any, Any, Any]:
        """Return the tower's output, and its last block's input and output, (B, 1 + P, D)."""
        passed: list[Any] = []
        with self._lock:
            hook = self._last.register_forward_hook(lambda _, given, after: passed.extend((given[0], after)))
            try:
                output = self._visual(pixels)
            finally:
                hook.remove()
        if not getattr(self._visual.transformer, "batch_first", False):  # older open_clip: (1 + P, B, D)
            passed = [tokens.transpose(0, 1) for tokens in passed]
        return output, passed[0], passed[1]

    def _local(self, hidden: Any, after: Any) -> Any:
        """Return the last block's input and output, (B, 1 + P, D) -> (B, M, d)."""
        patches = (
            after[:, 1:] if self._extractor.as_trained else self._block.reread(hidden, self._extractor, self._near)
        )
        # half precision ends here: what follows is little work and decides the directions
        pooled = self._pooling @ self._visual.ln_post(patches).float()
        return normalize(pooled @ self._visual.proj.float(), dim=-1)


def _block_of(block: Any) -> TorchBlock:
    attention = block.attn
    return TorchBlock(
        block.ln_1,
        (attention.in_proj_weight, attention.in_proj_bias),
        attention.num_heads,
        attention.out_proj,
        block.ls_1,
        block.ln_2,
        block.mlp,
        block.ls_2,
        prefix=1,
    )
