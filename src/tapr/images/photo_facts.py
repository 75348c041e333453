"""Facts that a photograph's file holds: when, where and with what it was taken, its rating, keywords and title.

They come from EXIF, XMP and IPTC, and from XMP sidecars, which win. Files are untrusted: they are read in a worker
process, and `checked_facts` believes nothing that does not have the form of a fact.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from PIL import Image, ImageFile, IptcImagePlugin

from tapr.images.decode import identified, load_readers
from tapr.images.xmp import read_xmp

TEXTS = ("taken", "camera", "lens", "keywords", "title")
NUMBERS = {"latitude": 90.0, "longitude": 180.0, "rating": 5.0, "year": 9999.0}  # and the largest of each
FACTS = (*TEXTS, *NUMBERS)
LOCATION = frozenset({"latitude", "longitude"})
MAX_CHARACTERS, MAX_KEYWORDS, MAX_KEYWORD = 300, 64, 64

_DATE = re.compile(
    r"(\d{4})[:-](\d\d)[:-](\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?(?:\.\d{1,9})?\s?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
_DEGREES = re.compile(r"(\d{1,3}),(\d{1,2}(?:\.\d{1,12})?)(?:,(\d{1,2}(?:\.\d{1,12})?))?([NSEW])", re.ASCII)
_EXIF_IFD, _GPS_IFD = 0x8769, 0x8825
_MAKE, _MODEL, _RATING, _XP_TITLE, _XP_KEYWORDS = 0x010F, 0x0110, 0x4746, 0x9C9B, 0x9C9E
_TAKEN, _TAKEN_ZONE, _LENS = 0x9003, 0x9011, 0xA434


def read_facts(data: bytes, sidecars: Sequence[bytes] = ()) -> dict[str, Any]:
    """Return the facts of a picture file and its sidecars; fewer where the file is broken."""
    layers = [_of_xmp(packet) for packet in sidecars]
    with suppress(Exception):  # Pillow raises anything for broken metadata; the decoder says what is wrong
        load_readers(data)
        with identified(data) as image:
            for read in (_of_exif, _of_embedded_xmp, _of_iptc):
                with suppress(Exception):
                    layers.append(read(image))
    facts: dict[str, Any] = {}
    for layer in layers:
        facts = {**{name: value for name, value in layer.items() if value not in (None, "")}, **facts}
    if LOCATION - facts.keys():  # half a place is none
        facts = {name: value for name, value in facts.items() if name not in LOCATION}
    if "taken" in facts:
        facts["year"] = int(facts["taken"][:4])
    return checked_facts(facts)


def checked_facts(value: object) -> dict[str, Any]:
    """Return what has the form of a fact."""
    facts = value if isinstance(value, Mapping) else {}
    texts = {name: facts[name][:MAX_CHARACTERS] for name in TEXTS if isinstance(facts.get(name), str)}
    if moment_of(texts.get("taken", "")) is None:
        texts.pop("taken", None)
    numbers = {
        name: facts[name]
        for name, most in NUMBERS.items()
        if type(facts.get(name)) in (int, float) and abs(facts[name]) <= most
    }
    return texts | numbers


def moment_of(text: str, zone: str = "") -> str | None:
    """Return a moment of EXIF or XMP as ISO text, with its time zone where it has one; None for no such date."""
    match = _DATE.match(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, own_zone = match.groups()
    iso = f"{year}-{month}-{day}"
    if hour is not None:
        zone = own_zone or (zone if re.fullmatch(r"Z|[+-]\d\d:?\d\d", zone, re.ASCII) else "")
        iso += f"T{hour}:{minute}:{second or '00'}{zone if len(zone) != 5 else f'{zone[:3]}:{zone[3:]}'}"
    try:
        datetime.fromisoformat(iso)
    except ValueError:  # such as 0000-00-00, which cameras without a clock write
        return None
    return iso


def _exif_of(image: Image.Image) -> Image.Exif:
    if image.format == "PNG":
        return Image.Image.getexif(image)  # PNG's own decodes the pixels first
    return image.getexif()


def _packet_of(image: Image.Image) -> bytes:
    packet = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    if not packet and image.format == "TIFF":
        packet = image.tag_v2.get(700, b"")  # type: ignore[attr-defined]
    return packet.encode(errors="replace") if isinstance(packet, str) else bytes(packet)


def _of_embedded_xmp(image: Image.Image) -> dict[str, Any]:
    return _of_xmp(_packet_of(image))


def _of_exif(image: Image.Image) -> dict[str, Any]:
    exif = _exif_of(image)
    detail, place = exif.get_ifd(_EXIF_IFD), exif.get_ifd(_GPS_IFD)
    return {
        "taken": moment_of(_text(detail.get(_TAKEN)), _text(detail.get(_TAKEN_ZONE))),
        "camera": _camera(_text(exif.get(_MAKE)), _text(exif.get(_MODEL))),
        "lens": _text(detail.get(_LENS)),
        "latitude": _degrees(place.get(2), place.get(1)),
        "longitude": _degrees(place.get(4), place.get(3)),
        "rating": _rating(exif.get(_RATING)),
        "title": _text(_utf16(exif.get(_XP_TITLE))),
        "keywords": _keywords(_text(_utf16(exif.get(_XP_KEYWORDS))).split(";")),
    }


def _of_xmp(packet: bytes) -> dict[str, Any]:
    values = read_xmp(packet) if packet else {}

    def first(*names: str) -> str:
        return next((values[name][0] for name in names if values.get(name)), "")

    return {
        "taken": moment_of(first("DateTimeOriginal")) or moment_of(first("DateCreated")),
        "camera": _camera(_text(first("Make")), _text(first("Model"))),
        "lens": _text(first("Lens", "LensModel")),
        "latitude": _written_degrees(first("GPSLatitude")),
        "longitude": _written_degrees(first("GPSLongitude")),
        "rating": _rating(first("Rating")),
        "title": _text(first("title")),
        "keywords": _keywords(values.get("subject", [])),
    }


def _of_iptc(image: Image.Image) -> dict[str, Any]:
    assert isinstance(image, ImageFile.ImageFile)
    fields: Mapping[Any, Any] = IptcImagePlugin.getiptcinfo(image) or {}

    def texts(number: int) -> list[str]:
        value = fields.get((2, number), [])
        return [_text(part) for part in (value if isinstance(value, list) else [value])]

    date, time = ("".join(texts(number)[:1]) for number in (55, 60))
    moment = f"{date[:4]}-{date[4:6]}-{date[6:8]}"
    if len(time) >= 6:
        moment += f"T{time[:2]}:{time[2:4]}:{time[4:6]}{time[6:]}"
    return {"taken": moment_of(moment), "title": "".join(texts(5)[:1]), "keywords": _keywords(texts(25))}


def _text(value: object) -> str:
    """Return a text on one line."""
    if isinstance(value, bytes):
        value = _decoded(value)
    if not isinstance(value, str):
        return ""
    printable = "".join(sign if sign.isprintable() else " " for sign in value[: 4 * MAX_CHARACTERS])
    return " ".join(printable.split())[:MAX_CHARACTERS]


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _utf16(value: object) -> object:
    return value.decode("utf-16-le", "ignore") if isinstance(value, bytes) else value


def _camera(make: str, model: str) -> str:
    return model if model.lower().startswith(make.lower()) else f"{make} {model}".strip()


def _keywords(words: Sequence[str]) -> str:
    """Return them as one text, which `keywords contains 'beach'` looks into."""
    unique = dict.fromkeys(_text(word)[:MAX_KEYWORD] for word in words[:MAX_KEYWORDS])
    return ", ".join(word for word in unique if word)


def _rating(value: object) -> int | None:
    try:
        rating = int(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return rating if -1 <= rating <= 5 else None  # -1: rejected, in XMP


def _degrees(parts: Any, hemisphere: object) -> float | None:
    try:
        return _signed([float(part) for part in parts][:3], _text(hemisphere))
    except (TypeError, ValueError, ArithmeticError):
        return None


def _written_degrees(text: str) -> float | None:
    match = _DEGREES.fullmatch(text.strip())
    return None if match is None else _signed([float(part or 0) for part in match.groups()[:3]], match[4])


def _signed(parts: Sequence[float], hemisphere: str) -> float | None:
    total = sum(part / 60.0**power for power, part in enumerate(parts))
    most = 90 if hemisphere in ("N", "S") else 180
    if not parts or hemisphere not in ("N", "S", "E", "W") or not (math.isfinite(total) and 0 <= total <= most):
        return None
    return round(-total if hemisphere in ("S", "W") else total, 6)
