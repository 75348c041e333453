"""Estimates the calls and tokens that records will cost, before any is requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tapr.factorize.asking import RecordKind, Step
from tapr.factorize.queries import BatchQuery
from tapr.factorize.records import SPEC
from tapr.factorize.settings import LLMSettings
from tapr.factorize.usage import TokenUsage

HOW = "4 characters or 28 x 28 pixels per token, every answer right the first time"
_CHARACTERS, _PIXELS = 4, 28 * 28  # per token; pixels as in Qwen's vision tower
_SENTENCE, _LIST, _SPEC = 25, 50, 130  # tokens of an answer
_LOOKED_AT = 50  # pictures sampled for their average size


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of one kind of record."""

    kind: str
    queries: int  # without a record so far
    usage: TokenUsage

    def sentence(self) -> str:
        used = self.usage
        return (
            f"{self.kind}: {self.queries:,} queries, about {used.calls:,} calls, {short(used.tokens_in)} tokens read, "
            f"{short(used.tokens_out)} written"
        )


def estimate(kind: RecordKind, queries: Sequence[BatchQuery], settings: LLMSettings) -> Estimate:
    """Estimate for queries that have no record yet."""
    count = len(queries)
    picture = _picture_tokens(queries, settings) if kind.sees_picture else 0
    edit = sum(len(query.edit) for query in queries) / max(count, 1) / _CHARACTERS
    drawn = max(step.draw.count for step in kind.steps)
    read = written = before = 0.0
    for step in kind.steps:
        times = drawn if step.each else 1
        text = len(step.system) + len(step.text)
        read += times * (text / _CHARACTERS + edit + before + (picture if step.sees_picture else 0))
        before = _SPEC if kind.name == SPEC else _written(step, drawn)  # a later step reads it
        written += before
    calls = sum(drawn if step.each else 1 for step in kind.steps) * count
    return Estimate(kind.name, count, TokenUsage(calls, round(read * count), round(written * count)))


def short(number: int) -> str:
    return f"{number / 1e6:,.1f} million" if number >= 1e6 else f"{number:,}"


def _written(step: Step, drawn: int) -> float:
    """Return the tokens of a step's answers."""
    if step.list_name:
        return _SENTENCE * (drawn if step.each else step.draw.count)
    each = _SENTENCE * drawn if drawn > 1 else _LIST
    return sum(each if value["type"] == "array" else _SENTENCE for value in step.form.schema["properties"].values())


def _picture_tokens(queries: Sequence[BatchQuery], settings: LLMSettings) -> float:
    sizes = [size for query in queries[:: max(1, len(queries) // _LOOKED_AT)] if (size := _size(query.reference))]
    tokens = []
    for width, height in sizes:
        scale = min(1.0, settings.longest_side / max(width, height))
        tokens.append(width * scale * height * scale / _PIXELS)
    return sum(tokens) / max(len(tokens), 1)


def _size(path: Path) -> tuple[int, int] | None:
    """Unreadable files are skipped here; they are reported when their record is made."""
    try:
        with Image.open(path) as image:
            return image.size
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
