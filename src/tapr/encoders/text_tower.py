"""clip-b16's text tower: words into the space of its pictures.

The shipped graph takes one sentence at a time. The same graph takes several of equal length once its two mentions of
that are taken back, which is done while it is loaded: the file stays what its hash says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from tapr.encoders.base import unit
from tapr.encoders.clip_weights import DIM
from tapr.encoders.onnx_session import session
from tapr.types import Float32

MAX_TOKENS = 48
# the shapes (1, tokens) and (1, d) in ONNX's encoding -> the same with an unnamed first dimension
_ANY_NUMBER = {
    b"\x0a\x02\x08\x01\x0a\x08\x12\x06tokens": b"\x0a\x02\x12\x00\x0a\x08\x12\x06tokens",
    b"\x0a\x02\x08\x01\x0a\x03\x08\x80\x04": b"\x0a\x02\x12\x00\x0a\x03\x08\x80\x04",
}


@cache
def load_tokenizer(file: Path) -> Tokenizer:
    """Load the tokenizer once: the captioner has the same one."""
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()  # the file asks for padding, which the tower has no mask for
    tokenizer.no_truncation()  # done here, to know what is left out
    return tokenizer


class TextTower:
    """Reads at most MAX_TOKENS tokens of a sentence."""

    def __init__(self, tower: Path, tokenizer: Path) -> None:
        graph = tower.read_bytes()
        for fixed, any_number in _ANY_NUMBER.items():
            graph = graph.replace(fixed, any_number)
        self._session = session(graph)
        self._tokenizer = load_tokenizer(tokenizer)

    def encode(self, sentence: str) -> Float32:
        return unit(self._run([self._tokens(sentence)])[0])

    def encode_together(self, sentences: Sequence[str]) -> Float32:
        """Encode sentences, (B, d), in half the time; the last bits differ from those of `encode`.

        They do not depend on the other sentences: only those of equal length share a run, and a run never has one
        sentence alone, for which onnxruntime has another way to multiply.
        """
        tokens = [self._tokens(sentence) for sentence in sentences]
        out = np.empty((len(tokens), DIM), np.float32)
        for length in sorted(set(map(len, tokens))):
            places = [i for i, ids in enumerate(tokens) if len(ids) == length]
            lines = [tokens[i] for i in places]
            out[places] = unit(self._run(lines if len(lines) > 1 else lines * 2)[: len(lines)])
        return out

    def _tokens(self, sentence: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(sentence).ids
        return ids if len(ids) <= MAX_TOKENS else [*ids[: MAX_TOKENS - 1], ids[-1]]  # the last is the end mark

    def _run(self, lines: list[list[int]]) -> Float32:
        (vectors,) = self._session.run(["text_embeds"], {"input_ids": np.array(lines, np.int64)})
        return np.asarray(vectors, np.float32)

    def read_characters(self, sentence: str) -> int:
        """Return how many of the sentence's characters the tower reads."""
        offsets = self._tokenizer.encode(sentence).offsets
        return len(sentence) if len(offsets) <= MAX_TOKENS else int(offsets[MAX_TOKENS - 1][0])
