"""What the reference shows, read with the frozen encoder itself: zero-shot tags from the shipped vocabulary.

Phrases contrast only with others of their kind. Text vectors share a large common part that would decide every
contest; so the mean over the whole vocabulary is taken out of them first. docs/factorizers.md gives the precision
that was measured at these thresholds: a wrong tag hurts more than none.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tapr.encoders.base import Encoder, EncoderCard, unit
from tapr.encoders.weights import home
from tapr.factorize.grammar.words import load
from tapr.types import Float32
from tapr.utils.files import write_atomically
from tapr.utils.progress import NoProgress, Progress
from tapr.utils.weak_cache import cached_for

_THING_TEMPERATURE, _THING_CENTRING = 0.015, 0.5
_ATTRIBUTE_TEMPERATURE, _ATTRIBUTE_CENTRING = 0.025, 1.0
_NAME = "vocabulary-{}.cache"  # with a hash of the encoder's card and of the phrases
_HEADER_BYTES = 4096  # of NumPy's file format, at most
_TOGETHER = 8  # phrases that are encoded at a time, so that others who ask meanwhile do not wait long
_FAMILY_SHARE = 0.25  # of all things: below it the picture has no subject we would name
_MEMBER_SHARE = 0.6  # of its family: below it the family's own name is used


@dataclass(frozen=True)
class Tags:
    """The tags that the encoder is sure of; `subject` is "" and kinds are absent otherwise."""

    subject: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)  # kind -> phrase: "colour" -> "red"
    shares: Mapping[str, float] = field(default_factory=dict)  # tag -> its share among the tags of its kind

    def share(self, tag: str) -> float:
        """Return how sure the tag is; one given by hand is certain."""
        return self.shares.get(tag, 1.0)

    def to_dict(self) -> dict[str, Any]:
        return {"subject": self.subject, **self.attributes, "shares": dict(self.shares)}


@dataclass(frozen=True)
class TagGroup:
    """The phrases of one kind. Only `tags` are ever reported: the others were measured, and are wrong too often."""

    tags: tuple[str, ...]
    contrast: tuple[str, ...]
    share: float  # what the winner must have

    @property
    def phrases(self) -> tuple[str, ...]:
        return self.tags + self.contrast


@dataclass(frozen=True)
class Vocabulary:
    families: tuple[tuple[str, ...], ...]  # of things: the general name first, then its members
    tag_groups: Mapping[str, TagGroup]  # of attributes, by kind
    living: frozenset[str]  # the people and animals among the things: only they have a pose

    @cached_property
    def things(self) -> tuple[str, ...]:
        return tuple(phrase for family in self.families for phrase in family)

    @property
    def phrases(self) -> tuple[str, ...]:
        return self.things + tuple(phrase for group in self.tag_groups.values() for phrase in group.phrases)

    def family(self, thing: str) -> tuple[str, ...]:
        return next((family for family in self.families if thing in family), (thing,))


@cache
def vocabulary() -> Vocabulary:
    data = load("vocabulary.json")
    families: dict[str, list[tuple[str, ...]]] = {
        group: [tuple(re.split(": |, ", entry)) for entry in entries] for group, entries in data["things"].items()
    }
    living = frozenset(name for group in ("people", "animals") for family in families[group] for name in family)
    tag_groups = {
        kind: TagGroup(tuple(entry["tags"]), tuple(entry["contrast"]), entry["share"])
        for kind, entry in data["tagged"].items()
    }
    return Vocabulary(tuple(family for group in families.values() for family in group), tag_groups, living)


class Tagger:
    """Tags pictures from their global vectors. The vocabulary is encoded once per encoder and kept on disk."""

    def __init__(self, encoder: Encoder, folder: Path | None = None) -> None:
        self._encoder = encoder
        self._folder = folder or home() / "tags"

    def tag(self, picture: Float32) -> Tags:
        """Return the tags of a picture (d,) that are above their thresholds."""
        words = vocabulary()
        shares: dict[str, float] = {}
        subject = self._subject(picture, words, shares)
        attributes = {}
        start = 0
        for kind, group in words.tag_groups.items():
            vectors = self._attributes[start : start + len(group.phrases)]
            start += len(group.phrases)
            parts = _softmax(vectors @ picture / _ATTRIBUTE_TEMPERATURE)
            best = int(parts.argmax())
            is_idle = kind == "pose" and subject not in words.living
            if best < len(group.tags) and parts[best] >= group.share and not is_idle:
                attributes[kind] = group.tags[best]
                shares[group.tags[best]] = round(float(parts[best]), 3)
        return Tags(subject, attributes, shares)

    def _subject(self, picture: Float32, words: Vocabulary, shares: dict[str, float]) -> str:
        chances = _softmax(self._things @ picture / _THING_TEMPERATURE)
        best: tuple[str, ...] = ()
        best_share, start, members = 0.0, 0, chances[:0]
        for family in words.families:
            part = chances[start : start + len(family)]
            start += len(family)
            if part.sum() > best_share:
                best, best_share, members = family, float(part.sum()), part
        if best_share < _FAMILY_SHARE:
            return ""
        top = int(members.argmax())
        name = best[top] if members[top] >= _MEMBER_SHARE * best_share else best[0]
        shares[name] = round(best_share, 3)
        return name

    @cached_property
    def _things(self) -> Float32:  # (things, d)
        vectors, mean = self._vectors
        return unit(vectors[: len(vocabulary().things)] - _THING_CENTRING * mean)

    @cached_property
    def _attributes(self) -> Float32:  # (attributes, d)
        vectors, mean = self._vectors
        return unit(vectors[len(vocabulary().things) :] - _ATTRIBUTE_CENTRING * mean)

    @cached_property
    def _vectors(self) -> tuple[Float32, Float32]:  # (phrases, d), (d,)
        return vocabulary_vectors(self._encoder, self._folder)


def vocabulary_vectors(
    encoder: Encoder, folder: Path | None = None, progress: Progress | None = None
) -> tuple[Float32, Float32]:
    """Return the vectors of the vocabulary's phrases in order, (phrases, d), and their mean, (d,); kept on disk."""
    phrases = vocabulary().phrases
    vectors = _known(encoder, folder)
    if vectors is None:
        progress = progress or NoProgress()
        progress.start(len(phrases), "encoding the vocabulary")
        parts = []
        for start in range(0, len(phrases), _TOGETHER):
            parts.append(encoder.encode_texts(phrases[start : start + _TOGETHER]))
            progress.advance(len(parts[-1]))
        vectors = np.asarray(np.concatenate(parts), np.float32)
        _write(_file(encoder, folder or home() / "tags"), vectors)
    return vectors, np.asarray(vectors.mean(axis=0), dtype=np.float32)


def keep_vocabulary(encoder: Encoder, gallery: Path, progress: Progress) -> None:
    """Keep the vectors beside a gallery, so that no search waits for them; encode them where nobody has."""
    file = _file(encoder, gallery)
    if _read(file, encoder) is None:
        vectors, _ = vocabulary_vectors(encoder, progress=progress)
        for old in gallery.glob(_NAME.format("*")):  # of another vocabulary
            old.unlink(missing_ok=True)
        _write(file, vectors)


def use_vocabulary(encoder: Encoder, gallery: Path) -> bool:
    """Let the encoder read the vectors beside a gallery; False where they are to be encoded first."""
    _beside(encoder).add(gallery)
    return _known(encoder, None) is not None


def _beside(encoder: Encoder) -> set[Path]:
    """Return the galleries beside which the vectors of an encoder may lie."""
    return cached_for(encoder, "galleries with its vocabulary", set)


def _known(encoder: Encoder, folder: Path | None) -> Float32 | None:
    folders = (folder,) if folder else (home() / "tags", *sorted(_beside(encoder)))
    stored = (_read(_file(encoder, place), encoder) for place in folders)
    return next((vectors for vectors in stored if vectors is not None), None)


def _file(encoder: Encoder, folder: Path) -> Path:
    return folder / _NAME.format(_fingerprint(encoder.card, vocabulary().phrases))


def _softmax(scores: Float32) -> Float32:
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum(), dtype=np.float32)


def _fingerprint(card: EncoderCard, phrases: tuple[str, ...]) -> str:
    key = json.dumps([card.to_dict(), phrases], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _read(file: Path, encoder: Encoder) -> Float32 | None:
    """Return the stored vectors, or None when there are none or the file is damaged: they are then made again."""
    shape = len(vocabulary().phrases), encoder.card.dim
    try:
        if file.stat().st_size > _HEADER_BYTES + 4 * shape[0] * shape[1]:
            return None
        vectors = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    is_right = vectors.shape == shape and vectors.dtype == np.float32 and bool(np.isfinite(vectors).all())
    return vectors if is_right else None


def _write(file: Path, vectors: Float32) -> None:
    """Write all or nothing; a folder that cannot be written only costs the time to encode again."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        data = io.BytesIO()
        np.save(data, vectors)
        write_atomically(file, data.getvalue())
    except OSError:
        return
