"""Takes the place where a photograph was taken (GPS) out of its file. Pixels and all other metadata stay as they are.

The entries of EXIF's GPS directory and the `exif:GPS` values of XMP are blanked where they stand, so that no container
has to be written anew: EXIF is the same in JPEG, PNG, WebP, TIFF, HEIC, AVIF and JPEG 2000. Only the chunks of a PNG
have checksums.
"""

from __future__ import annotations

import re
import struct
import zlib
from itertools import islice

_TIFF = re.compile(rb"II\x2a\x00|MM\x00\x2a")  # EXIF begins like a TIFF file
_XMP_NAME = re.compile(rb":GPS\w{1,40}")
_XMP_VALUE = re.compile(rb"""\s{0,9}=\s{0,9}(?:"([^"<]{0,400})"|'([^'<]{0,400})')|[^<>]{0,400}>([^<]{0,400})<""")
_GPS_TAG, _LONG = 0x8825, 4
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}  # bytes of a value, by its type
# so much of a file is looked at and blanked, whatever it holds
_MAX_HEADERS, _MAX_DIRECTORIES, _MAX_ENTRIES, _MAX_VALUE_BYTES, _MAX_XMP_NAMES = 256, 8, 128, 4096, 1000
_PNG = b"\x89PNG\r\n\x1a\n"
_PACKED = (b"Raw profile type ", b"XML:com.adobe.xmp\0\x01")  # metadata of a PNG as hex or compressed: left out whole


def without_location(data: bytes) -> bytes:
    """Return the file without the place where its picture was taken; the same bytes if it holds none."""
    if data.startswith(_PNG):
        return _png_without_location(data)
    return _blanked(data)


def _blanked(data: bytes) -> bytes:
    out = bytearray(data)
    for match in islice(_TIFF.finditer(data), _MAX_HEADERS):
        _blank_gps(out, match.start(), "<" if match[0][:1] == b"I" else ">")
    for name in islice(_XMP_NAME.finditer(data), _MAX_XMP_NAMES):
        if value := _XMP_VALUE.match(data, name.end()):
            start, end = value.span(value.lastindex or 0)
            out[start:end] = b" " * (end - start)
    return bytes(out)


def _blank_gps(out: bytearray, base: int, order: str) -> None:
    """Blank the GPS directories of the EXIF block that begins at `base`."""

    def read(layout: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(order + layout, out, base + offset)

    try:
        (directory,) = read("I", 4)
        for _ in range(_MAX_DIRECTORIES):
            (count,) = read("H", directory)
            if not 0 < count <= _MAX_ENTRIES:
                return
            for number in range(count):
                tag, kind, values, place = read("HHII", directory + 2 + 12 * number)
                if (tag, kind, values) == (_GPS_TAG, _LONG, 1):
                    _blank_directory(out, base, order, place)
                    break
            (directory,) = read("I", directory + 2 + 12 * count)
            if not directory:
                return
    except struct.error:  # it is no EXIF, or is cut off
        return


def _blank_directory(out: bytearray, base: int, order: str, place: int) -> None:
    (count,) = struct.unpack_from(order + "H", out, base + place)
    if count > _MAX_ENTRIES:
        return
    for number in range(count):
        start = base + place + 2 + 12 * number
        _, kind, values, offset = struct.unpack_from(order + "HHII", out, start)
        size = _SIZES.get(kind, 1) * values
        if 4 < size <= _MAX_VALUE_BYTES and base + offset + size <= len(out):
            out[base + offset : base + offset + size] = bytes(size)
        out[start : start + 12] = bytes(12)
    struct.pack_into(order + "H", out, base + place, 0)


def _png_without_location(data: bytes) -> bytes:
    pieces, at = [_PNG], len(_PNG)
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        whole = data[at : at + 12 + size]
        at += 12 + size
        if kind in (b"tEXt", b"zTXt", b"iTXt") and body.startswith(_PACKED):
            continue
        if kind in (b"eXIf", b"tEXt", b"iTXt") and len(body) == size and (blank := _blanked(body)) != body:
            whole = whole[:8] + blank + struct.pack(">I", zlib.crc32(kind + blank))
        pieces.append(whole)
    return b"".join((*pieces, data[at:]))
