"""The captioner's network on onnxruntime: what has been said so far in, the next word's probabilities out.

`tools/build_captioner.py` makes the graph and docs/models.md has its card. One thread for each run, and every caption's
numbers come from that caption alone: onnxruntime multiplies the rows of a batch one like the other, so that a caption
is the same in any company.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.clip_weights import DIM
from tapr.encoders.model_files import CAPTIONER
from tapr.encoders.onnx_session import session
from tapr.types import Float32

BEGIN, END = 1, 2  # 0 is padding; neither 0 nor 1 is ever said
FIRST_WORD = 3
MAX_CAPTION_WORDS = 26  # positions that were trained

_LAYERS, _HEADS, _HEAD = 4, 4, 64


class Network:
    """Writes one caption for each of B global vectors, word by word."""

    def __init__(self) -> None:
        self._session = session(CAPTIONER.path)

    def read(self, vectors: Float32) -> Float32:
        """Turn unit vectors (B, d) into the memory that `step` continues."""
        count = len(vectors)
        memory = np.zeros((2 * _LAYERS, count, _HEADS, 0, _HEAD), np.float32)
        _, memory = self._run(np.asarray(vectors, np.float32)[:, None], np.zeros((count, 0), np.int64), 0, memory)
        return memory

    def step(self, words: NDArray[np.int64], at: int, memory: Float32) -> tuple[Float32, Float32]:
        """Map captions' last words (B,), at this place from 0, to log-probabilities (B, V) of the next, and memory."""
        logits, memory = self._run(np.zeros((len(words), 0, DIM), np.float32), words[:, None], at, memory)
        logits[:, :END] = -np.inf
        return _log_softmax(logits), memory

    def _run(self, vectors: Float32, words: NDArray[np.int64], at: int, memory: Float32) -> tuple[Float32, Float32]:
        feed = {"vectors": vectors, "words": words, "step": np.array([at]), "past": memory}
        logits, present = self._session.run(["logits", "present"], feed)
        return logits, present


def _log_softmax(logits: Float32) -> Float32:
    logits -= logits.max(axis=-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return logits
