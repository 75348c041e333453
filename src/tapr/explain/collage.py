"""A collage of a search to share: the reference, the edit and the best results in one picture."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Literal

from PIL import Image, ImageDraw, ImageFont, ImageOps

from tapr.errors import BadInput
from tapr.images.decode import BadImage, load_image
from tapr.query.factors import BY_NAME, WordFactor
from tapr.query.spec import ATOM_FACTORS
from tapr.result import Hit, Ranking
from tapr.utils.files import write_atomically

Format = Literal["jpg", "png"]
MAX_PICTURES = 24
_WIDTH, _MARGIN, _GAP, _RADIUS = 1600, 56, 24, 14
_PAPER, _INK, _SOFT, _LINE = (250, 250, 247), (24, 28, 36), (104, 112, 124), (226, 226, 220)
_HEADS: dict[WordFactor, str] = {"add": "with", "preserve": "keep", "remove": "without"}
_FONTS = ("DejaVuSans", "NotoSans-Regular", "Arial")  # those with many scripts before Pillow's own
_BOLD = ("DejaVuSans-Bold", "NotoSans-Bold", "Arial Bold")
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Load = Callable[[Hit], Image.Image | None]


def write_collage(path: str | Path, ranking: Ranking, words: str | None) -> Path:
    path = Path(path)
    kind = {".jpg": "jpg", ".jpeg": "jpg", ".png": "png"}.get(path.suffix.lower())
    if kind is None:
        raise BadInput(f"a collage is a .jpg or a .png, not {path.name!r}")
    try:
        write_atomically(path, collage_bytes(ranking, words, "png" if kind == "png" else "jpg"))
    except OSError as error:
        raise BadInput(f"cannot write the collage {str(path)!r}: {(error.strerror or str(error)).lower()}") from None
    return path


def collage_bytes(ranking: Ranking, words: str | None, format_: Format, load: Load | None = None) -> bytes:
    buffer = io.BytesIO()
    image = collage(ranking, words, load or _from_file)
    image.save(buffer, "PNG" if format_ == "png" else "JPEG", **({} if format_ == "png" else {"quality": 90}))
    return buffer.getvalue()


def collage(ranking: Ranking, words: str | None, load: Load) -> Image.Image:
    """`load` brings the picture of a hit; a hit without one is shown by its name alone."""
    hits = ranking.hits[:MAX_PICTURES]
    columns = _columns(len(hits))
    side = (_WIDTH - 2 * _MARGIN - (columns - 1) * _GAP) // columns
    caption = 58
    head = _head(ranking, words)
    rows = -(-len(hits) // columns)
    foot = 64
    height = _MARGIN + head.height + 32 + rows * (side + caption) + foot
    page = Image.new("RGB", (_WIDTH, height), _PAPER)
    page.paste(head, (_MARGIN, _MARGIN))
    draw = ImageDraw.Draw(page)
    top = _MARGIN + head.height + 32
    for number, hit in enumerate(hits):
        x = _MARGIN + number % columns * (side + _GAP)
        y = top + number // columns * (side + caption)
        _paste(page, load(hit), (x, y), side)
        badge = f"{hit.rank}"
        font = _font(22, bold=True)
        wide = draw.textlength(badge, font) + 22
        draw.rounded_rectangle((x + 10, y + 10, x + 10 + wide, y + 44), 17, _INK)
        draw.text((x + 10 + wide / 2, y + 27), badge, (255, 255, 255), font, anchor="mm")
        name = hit.name if hit.name != hit.id else PurePath(hit.id).stem
        draw.text((x + 2, y + side + 10), _cut(draw, name, _font(22), side - 4), _INK, _font(22))
    if not hits:
        draw.text((_MARGIN, top), "Nothing was found.", _SOFT, _font(26))
    shown = f"Top {len(hits)} of {ranking.searched:,} pictures" if hits else f"{ranking.searched:,} pictures"
    draw.text((_MARGIN, height - 44), shown, _SOFT, _font(20))
    draw.text((_WIDTH - _MARGIN, height - 44), "found with tapr", _SOFT, _font(20), anchor="ra")
    return page


def _columns(count: int) -> int:
    """Few pictures are large; the last row is as full as can be."""
    if count <= 4:
        return max(2, count)
    return max((5, 4, 3) if count > 9 else (4, 3), key=lambda wide: (count % wide or wide) / wide)


def _head(ranking: Ranking, words: str | None) -> Image.Image:
    """References on the left, what was asked for on the right."""
    width, side = _WIDTH - 2 * _MARGIN, 300
    head = Image.new("RGB", (width, side), _PAPER)
    draw = ImageDraw.Draw(head)
    x = 0
    for reference in ranking.references:
        image = reference.image
        if reference.crop is not None:
            left, upper, right, lower = reference.crop
            w, h = image.size
            image = image.crop((int(left * w), int(upper * h), max(1, int(right * w)), max(1, int(lower * h))))
        _paste(head, image, (x, 0), side)
        x += side + _GAP
    x += 20 if x else 0
    asked = words or (ranking.spec.target if ranking.searched_by != "a picture alone" else "")
    lead = {"a picture and words": "Like this, but", "a picture alone": "Like this"}.get(ranking.searched_by, "Search")
    blocks: list[tuple[str, Font, tuple[int, int, int], int]] = [(lead, _font(26), _SOFT, 40)]
    big = _font(46 if len(asked) < 60 else 34, bold=True)
    step = 58 if len(asked) < 60 else 44
    blocks += [(line, big, _INK, step) for line in _lines(draw, asked, big, width - x, 3)]
    if words is None or ranking.searched_by == "a picture and words":
        for factor in ATOM_FACTORS:
            atoms = ", ".join(ranking.spec.atoms(factor))
            if atoms:
                text = _cut(draw, f"{_HEADS.get(factor, factor)}: {atoms}", _font(24), width - x)
                blocks.append((text, _font(24), BY_NAME[factor].colour, 36))
    y = max(0, (side - sum(step for *_, step in blocks)) // 2) if ranking.references else 0
    for text, font, colour, step in blocks:
        draw.text((x, y), text, colour, font)
        y += step
    return head if ranking.references else head.crop((0, 0, width, min(side, y + 8)))


def _paste(page: Image.Image, image: Image.Image | None, place: tuple[int, int], side: int) -> None:
    """A square tile with round corners: photographs fill it, long pictures stand in it whole."""
    tile = Image.new("RGB", (side, side), (255, 255, 255))
    if image is not None:
        long = max(image.size) > 1.8 * min(image.size)
        fitted = (
            ImageOps.contain(image, (side, side)) if long else ImageOps.fit(image, (side, side), centering=(0.5, 0.4))
        )
        tile.paste(fitted, ((side - fitted.width) // 2, (side - fitted.height) // 2))
    scale = 4  # smooth corners
    mask = Image.new("L", (side * scale, side * scale), 0)
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, side * scale - 1, side * scale - 1), _RADIUS * scale, 255)
    page.paste(tile, place, mask.resize((side, side), Image.Resampling.LANCZOS))
    x, y = place
    ImageDraw.Draw(page).rounded_rectangle((x, y, x + side - 1, y + side - 1), _RADIUS, outline=_LINE)


def _lines(draw: ImageDraw.ImageDraw, text: str, font: Font, width: int, most: int) -> list[str]:
    lines: list[str] = []
    words = text.split()
    while words and len(lines) < most:
        count = len(words) if len(lines) == most - 1 else 1
        while count < len(words) and draw.textlength(" ".join(words[: count + 1]), font) <= width:
            count += 1
        lines.append(_cut(draw, " ".join(words[:count]), font, width))
        words = words[count:]
    return lines


def _cut(draw: ImageDraw.ImageDraw, text: str, font: Font, width: int) -> str:
    text = "".join(one if one.isprintable() else " " for one in text.split("\n", maxsplit=1)[0][:300])
    if draw.textlength(text, font) <= width:
        return text
    while text and draw.textlength(text + "…", font) > width:
        text = text[:-1]
    return text.rstrip() + "…"


def _font(size: int, *, bold: bool = False) -> Font:
    for name in _BOLD if bold else _FONTS:
        try:
            return ImageFont.truetype(f"{name}.ttf", size)
        except OSError:
            continue
    return ImageFont.load_default(size)


def _from_file(hit: Hit) -> Image.Image | None:
    try:
        return load_image(hit.path, side=800)
    except BadImage:
        return None
