"""Estimates the calls and tokens that records will cost, before any is requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tapr.factorize.prompt import load_prompt
from tapr.factorize.queries import BatchQuery
from tapr.factorize.records import SPEC
from tapr.factorize.settings import LLMSettings
from tapr.factorize.usage import Usage
from tapr.methods.ask_records import Call, RecordPrompt

HOW = "4 characters or 28 x 28 pixels per token, every answer right the first time"
_CHARACTERS, _PIXELS = 4, 28 * 28  # per token; pixels as in Qwen's vision tower
_SENTENCE, _LIST, _SPEC = 25, 50, 130  # tokens of an answer
_LOOKED_AT = 50  # pictures sampled for their average size


@dataclass(frozen=True)
class Estimate:
    """The estimated cost of one kind of record."""

    kind: str
    queries: int  # without a record so far
    usage: Usage

    def sentence(self) -> str:
        used = self.usage
        return (
            f"{self.kind}: {self.queries:,} queries, about {used.calls:,} calls, {short(used.tokens_in)} tokens read, "
            f"{short(used.tokens_out)} written"
        )


def estimate(kind: str, queries: Sequence[BatchQuery], settings: LLMSettings) -> Estimate:
    """Estimate for queries that have no record yet."""
    count = len(queries)
    picture = _picture_tokens(queries, settings) if settings.send_image else 0
    edit = sum(len(query.edit) for query in queries) / max(count, 1) / _CHARACTERS
    if kind == SPEC:
        prompt = load_prompt()
        read = len(prompt.system + prompt.user) / _CHARACTERS + edit + picture
        return Estimate(kind, count, Usage(count, round(read * count), _SPEC * count))
    asked = RecordPrompt.load(kind)
    drawn = max(call.draw.count for call in asked.calls)
    read = written = before = 0.0
    for call in asked.calls:
        times = drawn if call.each else 1
        read += times * (len(call.text) / _CHARACTERS + edit + before + (picture if call.sees_picture else 0))
        before = _SENTENCE * times if call.each else _written(asked, call, drawn)  # a later call reads it
        written += before
    calls = sum(drawn if call.each else 1 for call in asked.calls) * count
    return Estimate(kind, count, Usage(calls, round(read * count), round(written * count)))


def short(number: int) -> str:
    return f"{number / 1e6:,.1f} million" if number >= 1e6 else f"{number:,}"


def _written(prompt: RecordPrompt, call: Call, drawn: int) -> float:
    """Tokens of one answer."""
    if call.name:
        return _SENTENCE * call.draw.count
    fields = prompt.schema.model_fields
    lists = [name for name in prompt.fields(call) if str(fields[name].annotation).startswith("list")]
    each = _SENTENCE * drawn if drawn > 1 else _LIST
    return len(lists) * each + (len(prompt.fields(call)) - len(lists)) * _SENTENCE


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
