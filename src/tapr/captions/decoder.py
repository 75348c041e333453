"""From global vectors of `clip-b16` to sentences: the most likely word each time, a beam, or words drawn by chance."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapr.captions.network import BEGIN, END, FIRST_WORD, MAX_CAPTION_WORDS, Network
from tapr.encoders.clip_weights import DIM
from tapr.encoders.model_files import CAPTIONER_VOCABULARY, CLIP_B16_TOKENIZER
from tapr.encoders.text_tower import load_tokenizer
from tapr.errors import BadInput, BadOption
from tapr.types import Float32

BEAM_WIDTH = 3
TEMPERATURE = 0.7

_LENGTH_POWER = 0.7  # of the beam: a plain sum of log-probabilities likes short sentences
CAPTIONS_PER_RUN = 64  # captions that share a run: more of them gain little

Choose = Callable[[Float32, int], int]  # log-probabilities (V,) and which caption it is -> the next word


@dataclass(frozen=True)
class Caption:
    """A sentence, and how likely the network found it."""

    text: str
    log_probability: float  # the mean over its words and its end


@dataclass(frozen=True)
class _CaptionProgress:
    """The words of a caption so far; the mark of its end counts as a word."""

    words: tuple[int, ...] = ()
    total: float = 0.0  # the sum of their log-probabilities

    def then(self, word: int, log_probabilities: Float32) -> _CaptionProgress:
        return _CaptionProgress((*self.words, word), self.total + float(log_probabilities[word]))

    @property
    def last(self) -> int:
        return self.words[-1] if self.words else BEGIN

    @property
    def is_done(self) -> bool:
        return self.last == END or len(self.words) == MAX_CAPTION_WORDS

    @property
    def merit(self) -> float:
        return float(self.total / len(self.words) ** _LENGTH_POWER)


class Decoder:
    """A caption depends on its vector alone, never on what else is asked for at the same time. Thread-safe."""

    def __init__(self) -> None:
        self._network = Network()
        self._tokenizer = load_tokenizer(CLIP_B16_TOKENIZER.path)
        self._tokens: list[int] = json.loads(CAPTIONER_VOCABULARY.path.read_text())  # word i is token i - FIRST_WORD

    def greedy(self, vectors: Float32) -> list[Caption]:
        """Write a caption for each vector of (B, d): the most likely word each time."""
        return self._say(vectors, lambda log_probabilities, _: int(log_probabilities.argmax()))

    def sample(self, vector: Float32, count: int, *, temperature: float = TEMPERATURE, seed: int = 0) -> list[Caption]:
        """Sample `count` captions of one vector (d,) at random; some may be equal; seed and index decide each."""
        if not temperature > 0:
            raise BadOption(f"the temperature must be above 0, not {temperature:g}", "temperature")
        chances = [np.random.default_rng([seed, place]) for place in range(count)]

        def draw(log_probabilities: Float32, place: int) -> int:
            heap = np.cumsum(np.exp(log_probabilities.astype(np.float64) / temperature))
            return int(np.searchsorted(heap, chances[place].random() * heap[-1], side="right"))

        return self._say(np.repeat(vector[None], count, axis=0), draw)

    def beam(self, vector: Float32, width: int = BEAM_WIDTH) -> list[Caption]:
        """Find `width` different captions of one vector (d,), the likeliest for its length first."""
        memory = self._network.read(_checked(vector[None]))
        going, done = [_CaptionProgress()], list[_CaptionProgress]()
        for at in range(MAX_CAPTION_WORDS):
            log_probabilities, memory = self._network.step(_last_words(going), at, memory)
            nexts = [
                (line.then(word, row), parent)
                for parent, (line, row) in enumerate(zip(going, log_probabilities, strict=True))
                for word in _likeliest(row, width)
            ]
            nexts = sorted(nexts, key=lambda pair: -pair[0].total)[:width]
            done += [line for line, _ in nexts if line.is_done]
            kept = [(line, parent) for line, parent in nexts if not line.is_done]
            if not kept or len(done) >= width:
                break
            going = [line for line, _ in kept]
            memory = memory[:, [parent for _, parent in kept]]
        return [self._caption(line) for line in sorted(done, key=lambda line: -line.merit)[:width]]

    def _say(self, vectors: Float32, choose: Choose) -> list[Caption]:
        vectors = _checked(vectors)
        lines = [_CaptionProgress() for _ in vectors]
        for start in range(0, len(vectors), CAPTIONS_PER_RUN):
            going = np.arange(start, min(start + CAPTIONS_PER_RUN, len(vectors)))
            memory = self._network.read(vectors[going])
            for at in range(MAX_CAPTION_WORDS):
                log_probabilities, memory = self._network.step(_last_words([lines[i] for i in going]), at, memory)
                for i, row in zip(going, log_probabilities, strict=True):
                    lines[i] = lines[i].then(choose(row, int(i)), row)
                open_ = np.array([not lines[i].is_done for i in going])
                if not open_.any():
                    break
                if not open_.all():  # those that have ended cost no more time
                    going, memory = going[open_], memory[:, open_]
        return [self._caption(line) for line in lines]

    def _caption(self, line: _CaptionProgress) -> Caption:
        tokens = [self._tokens[word - FIRST_WORD] for word in line.words if word != END]
        text = self._tokenizer.decode(tokens).replace(" ' s", "'s").replace(" - ", "-")
        return Caption(text, line.total / len(line.words))


def _checked(vectors: Float32) -> Float32:
    # rounded as galleries keep them: a picture's caption is the same from its file and from its stored vector
    vectors = np.asarray(vectors, np.float16).astype(np.float32)
    if vectors.ndim != 2 or vectors.shape[1] != DIM or not np.isfinite(vectors).all():
        raise BadInput(f"the captioner reads global vectors of clip-b16, {DIM} finite numbers each", code="bad_vectors")
    return vectors


def _last_words(lines: list[_CaptionProgress]) -> NDArray[np.int64]:
    return np.array([line.last for line in lines], np.int64)


def _likeliest(log_probabilities: Float32, count: int) -> list[int]:
    """Return the `count` likeliest words, equals in the order of their numbers."""
    words = np.argpartition(-log_probabilities, count)[:count]
    order = np.lexsort((words, -log_probabilities[words]))
    return [int(word) for word in words[order]]
