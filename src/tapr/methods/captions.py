"""Captions of references, and captions with an edit applied, for methods that ask a language model for them.

Both come from the captioner and the caption editor of the grounded factorizer, so all methods start from the same
words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tapr.encoders.registry import DEFAULT_ENCODER
from tapr.factorize.grounded import NAME, apply
from tapr.factorize.records import Maker
from tapr.factorize.seeing import Seen, Seer
from tapr.types import Float32

TEMPERATURE = 0.7
SEED = 0
_TOGETHER = 256  # references captioned per progress report

Report = Callable[[int], None]  # how many more are done


def is_offline(maker: Maker) -> bool:
    """Return whether a record holds words of the captioner: `grounded` with an encoder that has one made it."""
    factorizer, _, encoder = maker.model.partition("@")
    return factorizer == NAME and encoder.partition(":")[0] == DEFAULT_ENCODER


class Captions:
    """Captions of some pictures. The same vector always gets the same caption."""

    def __init__(self, seer: Seer, names: Sequence[str], vectors: Float32, report: Report = lambda done: None) -> None:
        """`vectors`: (R, d), the named pictures' global vectors."""
        self._captioner = seer.captioner
        self._vectors = dict(zip(names, vectors, strict=True))
        self._drawn: dict[str, list[str]] = {}
        self._seen: dict[str, Seen] = {}
        for start in range(0, len(names), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            self._seen |= zip(names[part], seer.see(vectors[part]), strict=True)
            report(len(names[part]))

    def seen(self, name: str) -> Seen:
        """The picture's caption."""
        return self._seen[name]

    def drawn(self, name: str, count: int) -> list[str]:
        """`count` sampled captions (fixed seed; repeats are possible). A smaller count gives the first of them."""
        if len(self._drawn.get(name, ())) < count:
            texts = self._captioner.sample_texts(self._vectors[name], count, temperature=TEMPERATURE, seed=SEED)
            # a sampled caption can be empty
            self._drawn[name] = [text or self._seen[name].text for text in texts]
        return self._drawn[name][:count]


def edited(captions: Sequence[str], edit: str) -> list[str]:
    """Each caption with the edit applied, in the same order. A caption is taken at its word, however sure it is."""
    targets = {caption: apply(Seen(caption), edit) for caption in dict.fromkeys(captions)}
    return [targets[caption] for caption in captions]
