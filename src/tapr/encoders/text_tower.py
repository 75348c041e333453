"""clip-b16's text tower: words into the space of its pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from tapr.encoders.base import unit
from tapr.encoders.onnx_session import session
from tapr.types import Float32

MAX_TOKENS = 48


class TextTower:
    """One sentence at a time, at most MAX_TOKENS tokens of it."""

    def __init__(self, tower: Path, tokenizer: Path) -> None:
        self._session = session(tower.read_bytes())
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()  # the file asks for padding, which this graph has no mask for
        self._tokenizer.no_truncation()  # done here, to know what is left out

    def encode(self, sentence: str) -> Float32:
        ids = self._tokenizer.encode(sentence).ids
        if len(ids) > MAX_TOKENS:
            ids = [*ids[: MAX_TOKENS - 1], ids[-1]]  # the last is the end mark
        (vectors,) = self._session.run(["text_embeds"], {"input_ids": np.array([ids], np.int64)})
        return unit(vectors[0])

    def read_characters(self, sentence: str) -> int:
        """How many of the sentence's characters the tower reads."""
        offsets = self._tokenizer.encode(sentence).offsets
        return len(sentence) if len(offsets) <= MAX_TOKENS else int(offsets[MAX_TOKENS - 1][0])
