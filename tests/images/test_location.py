"""The place where a photograph was taken leaves its file; pixels and other metadata stay."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from PIL import Image
from PIL.ExifTags import IFD, Base
from PIL.PngImagePlugin import PngInfo

from tapr.images.decode import decode
from tapr.images.location import without_location
from tests.pictures import flag

XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description exif:GPSLatitude="48,51.5N" dc:title="Paris">'
    b"<exif:GPSLongitude>2,17.6E</exif:GPSLongitude></rdf:Description></x:xmpmeta>"
)
LATITUDE = struct.pack("<IIIIII", 48, 1, 51, 1, 2987, 100)


def exif(order: str = "<") -> Image.Exif:
    exif = Image.Exif()
    exif.endian = order
    exif[Base.Make] = "A camera"
    exif[Base.Orientation] = 6
    exif.get_ifd(IFD.GPSInfo).update({1: "N", 2: (48.0, 51.0, 29.87), 3: "E", 4: (2.0, 17.0, 40.2), 29: "2026:11:19"})
    return exif


def saved(kind: str, order: str = "<", **options: Any) -> bytes:
    buffer = io.BytesIO()
    if kind == "TIFF":  # Pillow writes no GPS into a TIFF: the EXIF block is one, without a picture
        return exif(order).tobytes().removeprefix(b"Exif\0\0")
    flag("red", "blue", size=(40, 30)).save(buffer, kind, exif=exif(order), **options)
    return buffer.getvalue()


def text_chunks(compressed: bool) -> PngInfo:
    info = PngInfo()
    info.add_itxt("XML:com.adobe.xmp", XMP.decode(), zip=compressed)
    info.add_text("Raw profile type exif", "\nexif\n 8\n" + exif().tobytes().hex(), zip=True)
    return info


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {"xmp": XMP}),
        ("PNG", {"pnginfo": text_chunks(compressed=False)}),
        ("PNG", {"pnginfo": text_chunks(compressed=True)}),
        ("WEBP", {"xmp": XMP, "lossless": True}),
        ("AVIF", {}),
    ],
)
def test_the_location_is_gone_and_the_rest_is_as_before(kind: str, options: dict[str, Any], order: str) -> None:
    data = saved(kind, order, **options)
    assert Image.open(io.BytesIO(data)).getexif().get_ifd(IFD.GPSInfo)
    bare = without_location(data)
    image = Image.open(io.BytesIO(bare))
    image.load()
    found = image.getexif()
    assert not found.get_ifd(IFD.GPSInfo)
    assert (found[Base.Make], found[Base.Orientation]) == ("A camera", 6)
    assert decode(bare).tobytes() == decode(data).tobytes()
    assert not any(part in bare for part in (b"48,51.5N", b"2,17.6E", b"2026:11:19", LATITUDE))
    assert without_location(bare) == bare


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_directory_of_a_tiff(order: str) -> None:
    found = Image.Exif()
    found.load(without_location(saved("TIFF", order)))
    assert (found[Base.Make], found.get_ifd(IFD.GPSInfo)) == ("A camera", {})


def test_a_file_without_a_location_is_the_same() -> None:
    for kind in ("JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP"):
        buffer = io.BytesIO()
        flag("red").save(buffer, kind)
        assert without_location(buffer.getvalue()) == buffer.getvalue()


def test_files_that_are_cut_or_forged_end() -> None:
    data = saved("JPEG", xmp=XMP)
    for cut in range(0, len(data), 7):
        without_location(data[:cut])
    loop = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 1) + struct.pack("<HHII", 0x8825, 4, 1, 8) + bytes(4)
    without_location(loop * 1000)
    without_location(b"\x89PNG\r\n\x1a\n" + b"\xff" * 100)
