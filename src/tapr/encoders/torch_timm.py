"""Global and local vectors from an image tower of timm, such as SigLIP's. Needs torch, open_clip and timm.

Such towers pool in ways of their own: by attention (SigLIP), by a mean, by a CLS token. The global vector is what the
tower itself gives. A local vector is what the same pooling and projection give for one patch alone, so that it lies in
the joint space too. Neighbouring patches are averaged to the grid, as for other towers.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import torch
from torch.nn.functional import normalize

from tapr.encoders.extractors import EXTRACTORS, Extractor, extractor_of
from tapr.encoders.local_tokens import Grid, neighbourhood, pooled_grid, pooling
from tapr.encoders.torch_block import TorchBlock
from tapr.errors import UnfitEncoder

_LAST_LAYER = next(name for name, row in EXTRACTORS.items() if row.as_trained)
_ABSOLUTE_TOLERANCE = 1e-3  # the steps taken here must give the tower's own vector to so much


def is_timm(visual: Any) -> bool:
    return hasattr(visual, "trunk") and hasattr(visual.trunk, "forward_features")


class TimmTokens:
    """Runs the tower and reads the local vectors from its last layer, or from what entered its last block."""

    def __init__(self, visual: Any, extractor: str) -> None:
        self._visual, self._trunk = visual, visual.trunk
        self._extractor = extractor_of(extractor)
        if hasattr(visual.head, "pool"):
            raise UnfitEncoder(
                "the image tower's pooling knows the places of its patches: local vectors cannot be read"
            )
        self._prefix = int(getattr(self._trunk, "num_prefix_tokens", 0))
        self._lock = Lock()  # a hook sees every pass of the tower, so that one thread at a time may have one
        self._block = None if self._extractor.as_trained else self._last_block(self._extractor)
        self._native, self._channels_last = self._shape()
        self.grid = pooled_grid(self._native)
        weight = next(visual.parameters())
        self._pooling = torch.from_numpy(pooling(self._native, self.grid)).to(weight.device)  # (M, P)
        self._near: Any = None
        if self._extractor.neighbourhood:
            near = neighbourhood(self._native, self._extractor.neighbourhood, self._extractor.reads_cls)
            self._near = torch.from_numpy(near).to(weight.device, weight.dtype)

    def __call__(self, pixels: Any) -> tuple[Any, Any]:
        """Encode normalised pixels (B, 3, S, S): the tower's own output (B, d) and local unit vectors (B, M, d)."""
        with torch.inference_mode():
            hidden: list[Any] = []
            with self._lock:
                last = self._trunk if self._block is None else self._trunk.blocks[-1]
                hook = last.register_forward_pre_hook(lambda _, given: hidden.append(given[0]))
                try:
                    features = self._trunk.forward_features(pixels)
                finally:
                    hook.remove()
            if self._block is None:
                patches = self._patches(features)
            else:
                patches = self._trunk.norm(self._block.reread(hidden[0], self._extractor, self._near))
            before = features[:, : self._prefix] if features.ndim == 3 else None
            pooled = self._pooling @ self._alone(patches, before).float()  # half precision ends here
            return self._head(features), normalize(pooled, dim=-1)

    def _head(self, features: Any) -> Any:
        return self._visual.head(self._trunk.forward_head(features))

    def _alone(self, patches: Any, before: Any) -> Any:
        """Map (B, P, D) to (B, P, d): the tower's pooling and projection of each patch by itself."""
        count, cells, width = patches.shape
        if before is None:  # a map of features: a picture of one cell
            shape = (count * cells, 1, 1, width) if self._channels_last else (count * cells, width, 1, 1)
            return self._head(patches.reshape(shape)).reshape(count, cells, -1)
        tokens = patches.reshape(count * cells, 1, width)
        if self._prefix and self._pooling_skips_prefix():
            tokens = torch.cat([before.repeat_interleave(cells, dim=0), tokens], dim=1)
        return self._head(tokens).reshape(count, cells, -1)

    def _pooling_skips_prefix(self) -> bool:
        """Return whether the pooling leaves out the tokens before the patches, so that some must be there."""
        if getattr(self._trunk, "attn_pool", None) is not None:
            return not getattr(self._trunk, "pool_include_prefix", True)
        return getattr(self._trunk, "global_pool", "") != "token"

    def _patches(self, features: Any) -> Any:
        """Return the last layer's patches, (B, P, D)."""
        if features.ndim == 3:
            return features[:, self._prefix :]
        return features.flatten(1, 2) if self._channels_last else features.flatten(2).transpose(1, 2)

    def _shape(self) -> tuple[Grid, bool]:
        """Return rows and columns of the patches, and whether a map of features has its channels last."""
        weight = next(self._visual.parameters())
        size = tuple(self._visual.image_size)
        with torch.inference_mode():
            blank = torch.zeros((1, 3, *size), device=weight.device, dtype=weight.dtype)
            features = self._trunk.forward_features(blank)
            if not torch.allclose(self._head(features).float(), self._visual(blank).float(), atol=_ABSOLUTE_TOLERANCE):
                raise UnfitEncoder("the image tower has steps of its own: its local vectors cannot be read")
        if features.ndim == 3:
            patches = features.shape[1] - self._prefix
            grid = tuple(getattr(self._trunk.patch_embed, "grid_size", None) or (0, 0))
            side = round(patches**0.5)
            grid = grid if grid[0] * grid[1] == patches else (side, side)
            if grid[0] * grid[1] != patches:
                raise UnfitEncoder(f"the image tower's {patches} patches are no grid: its local vectors cannot be read")
            return (int(grid[0]), int(grid[1])), False
        last = features.shape[-1] == self._trunk.num_features != features.shape[1]
        rows, columns = features.shape[1:3] if last else features.shape[2:4]
        return (int(rows), int(columns)), bool(last)

    def _last_block(self, extractor: Extractor) -> TorchBlock:
        """Return the last block where it is a plain one; else only the last layer's own tokens can be read."""
        from timm.models import vision_transformer

        block: Any = self._trunk.blocks[-1] if hasattr(self._trunk, "blocks") else None
        attention: Any = getattr(block, "attn", None)
        plain = type(block) is vision_transformer.Block and type(attention).__name__ == "Attention"
        if not plain or getattr(attention, "gate", None) is not None or _normed(attention):
            raise UnfitEncoder(
                f"the extractor {extractor.name} reads the attention of a plain ViT's last block, and this image tower "
                f"has another kind: choose the extractor {_LAST_LAYER}"
            )
        return TorchBlock(
            block.norm1,
            (attention.qkv.weight, attention.qkv.bias),
            attention.num_heads,
            lambda read: attention.proj(getattr(attention, "norm", torch.nn.Identity())(read)),
            block.ls1,
            block.norm2,
            block.mlp,
            block.ls2,
            self._prefix,
        )


def _normed(attention: Any) -> bool:
    """Return whether queries and keys are normed before they meet."""
    return not isinstance(getattr(attention, "q_norm", None), torch.nn.Identity)
