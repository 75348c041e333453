"""The questions of a second pass: a vision language model looks at candidates and says how well they fit.

Two ways, after public descriptions of such systems; the wording is ours:

- `verify` (WISER, arXiv 2602.23029): a request per candidate, with a mark from 0 to 10; k requests per query.
- `order` (SQUARE): one request per query, with all candidates numbered on one sheet.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw, ImageFont, ImageOps

from tapr.errors import BadInput
from tapr.factorize.chat import Chat
from tapr.factorize.failures import NoSpec
from tapr.factorize.picture import data_url
from tapr.factorize.settings import LLMSettings
from tapr.factorize.usage import NOTHING_USED, Usage
from tapr.methods.ask_records import corrected, json_object
from tapr.methods.prompt_text import object_of

VERIFY, ORDER = WAYS = ("verify", "order")
VERSION = "second_look_v1"
BEST_MARK = 10
_CELL = 256  # pixels of a candidate's side on the sheet
_TASK = (
    "A person searches with the first picture and this change: {edit}\n"
    "Wanted is a picture in which the change is done, and in which everything that the change does not touch is as in "
    "the first picture.\n"
)
_QUESTIONS = {
    VERIFY: _TASK + "The second picture is a candidate. Check first whether each part of the change is visible in it, "
    f"then whether the rest was kept. Mark it with a whole number: {BEST_MARK} is exactly what is wanted, 5 has the "
    "change or the rest but not both, 0 has neither.\n"
    'Answer with JSON alone: {"reason": "one short sentence", "mark": number}',
    ORDER: _TASK + "The second picture is a sheet of {count} numbered candidates. Compare them with each other: check "
    "for each whether the change is visible, and whether the rest was kept. Sort all numbers, the best one first.\n"
    'Answer with JSON alone: {"reason": "one short sentence", "order": [numbers]}',
}  # fmt: skip
_SCHEMAS: dict[str, Mapping[str, Any]] = {
    VERIFY: object_of({"reason": {"type": "string"}, "mark": {"type": "integer"}}),
    ORDER: object_of({"reason": {"type": "string"}, "order": {"type": "array", "items": {"type": "integer"}}}),
}


@dataclass(frozen=True)
class Look:
    """What a second pass says of one query: the candidates in their new order, and what that took."""

    order: tuple[int, ...]  # positions in the first order
    usage: Usage = NOTHING_USED


async def look(
    way: str, chat: Chat, settings: LLMSettings, reference: Image.Image, edit: str, candidates: Sequence[Image.Image]
) -> Look:
    """The candidates in a new order; equal marks keep the first one. NoSpec where the model gives no valid answer."""
    first = await asyncio.to_thread(_url, reference, settings)
    if way == ORDER:
        sheet = await asyncio.to_thread(lambda: _url(numbered_sheet(candidates), settings))
        numbers = await _ask(way, chat, settings, edit, (first, sheet), len(candidates))
        return Look(tuple(number - 1 for number in numbers), chat.usage)
    marks = []
    for candidate in candidates:
        url = await asyncio.to_thread(_url, candidate, settings)
        marks += await _ask(way, chat, settings, edit, (first, url), len(candidates))
    return Look(tuple(sorted(range(len(marks)), key=lambda place: -marks[place])), chat.usage)


async def _ask(
    way: str, chat: Chat, settings: LLMSettings, edit: str, pictures: Sequence[str], count: int
) -> list[int]:
    said = _QUESTIONS[way].replace("{count}", str(count)).replace("{edit}", " ".join(edit.split()))
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in pictures]
    first = [{"role": "user", "content": [*parts, {"type": "text", "text": said}]}]
    messages, problem = first, ""
    for _ in range(settings.tries):
        reply = await chat.ask(messages, form=(f"second_look_{way}", _SCHEMAS[way]))
        try:
            return _read(way, json_object(reply.text), count)
        except BadInput as error:
            problem = str(error)
            messages = corrected(first, reply.text, problem)
    raise NoSpec(f"no valid answer in {settings.tries} tries: {problem}", chat.usage)


def _read(way: str, answer: Mapping[str, Any], count: int) -> list[int]:
    """The mark, or all numbers in their order. Numbers that the answer leaves out follow in the first order."""
    if way == VERIFY:
        mark = answer.get("mark")
        if type(mark) is not int or not 0 <= mark <= BEST_MARK:
            raise BadInput(f"'mark' must be a whole number from 0 to {BEST_MARK}")
        return [mark]
    order = answer.get("order")
    named = isinstance(order, list) and all(type(one) is int and 1 <= one <= count for one in order)
    if not named or not order or len(set(order)) != len(order):
        raise BadInput(f"'order' must name candidates by their numbers, 1 to {count}, each once")
    return [*order, *(number for number in range(1, count + 1) if number not in order)]


def numbered_sheet(pictures: Sequence[Image.Image]) -> Image.Image:
    """All candidates on one picture, row by row, each with its number in a corner."""
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    sheet = Image.new("RGB", (columns * _CELL, rows * _CELL), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(30)
    for place, picture in enumerate(pictures):
        small = ImageOps.contain(picture, (_CELL - 8, _CELL - 8))
        left, top = place % columns * _CELL, place // columns * _CELL
        sheet.paste(small, (left + (_CELL - small.width) // 2, top + (_CELL - small.height) // 2))
        draw.rectangle((left + 4, top + 4, left + 48, top + 42), fill="black")
        draw.text((left + 26, top + 23), str(place + 1), fill="white", font=font, anchor="mm")
    return sheet


def _url(image: Image.Image, settings: LLMSettings) -> str:
    return data_url(image, settings.longest_side, settings.image_bytes)
