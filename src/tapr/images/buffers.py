"""What the buffers of a decoding library will take, read from the file's own structure.

Pillow tells the size of a picture, but not how its file is laid out, and the layout decides the memory: a JPEG whose
components come in separate scans is held as coefficients, a strip of a TIFF is unpacked as a whole, a JPEG 2000 picture
has a record for each code block. Files are not trusted: where two entries disagree, the larger one counts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_STANDALONE = {0x01, *range(0xD0, 0xD9)}  # JPEG markers that no length follows
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15
_PROGRESSIVE = {0xC2, 0xC6, 0xCA, 0xCE}

_TIFF_TYPES = {1: "B", 3: "H", 4: "I", 16: "Q"}  # the unsigned integers
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _ORIENTATION, _SAMPLES, _ROWS = 256, 257, 258, 259, 274, 277, 278
_TILE_WIDTH, _TILE_HEIGHT = 322, 323
_UNPACKED_IN_PLACE = {1, 2, 3, 4, 5, 8, 32773, 32946}  # none, CCITT, LZW, deflate, PackBits: no buffer of their own

# OpenJPEG's records, in bytes, measured
_BLOCK, _PRECINCT, _TILE = 520, 8000, 12_000


def jpeg_coefficients(data: bytes) -> int:
    """Bytes of the coefficients that libjpeg holds until the last scan: none where one scan has all components."""
    most: int = 0
    components: int = 0
    for marker, body in _jpeg_segments(data):
        if marker in _FRAMES and len(body) >= 6:
            height, width, components = struct.unpack_from(">HHB", body, 1)
            samplings = [body[at] for at in range(7, min(len(body), 6 + 3 * components), 3)]
            h, v = max((one >> 4 for one in samplings), default=1) or 1, max((one & 15 for one in samplings), default=1)
            across, down = -(-width // (8 * h)), -(-height // (8 * (v or 1)))  # units of all components together
            held = int(across * down) * sum((one >> 4) * (one & 15) for one in samplings) * 64 * 2
            most = max(most, held)
            if marker in _PROGRESSIVE:
                return most
        elif marker == 0xDA:
            return most if body and body[0] < components else 0
    return most


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Markers and what follows them, up to the first scan."""
    at = 2
    while (at := data.find(b"\xff", at)) >= 0 and at + 1 < len(data):
        marker = data[at + 1]
        at += 1
        if marker in (0x00, 0xFF):
            continue
        at += 1
        if marker in _STANDALONE:
            continue
        if at + 2 > len(data):
            return
        length = int.from_bytes(data[at : at + 2], "big")
        yield marker, data[at + 2 : at + length]
        if marker == 0xDA:
            return
        at += max(2, length)


def tiff_pieces(data: bytes) -> tuple[int, bool]:
    """Bytes of the largest strip or tile with what its codec needs, and whether the picture is turned after loading."""
    tags = _tiff_tags(data)

    def most(tag: int, otherwise: int) -> int:
        return max(tags.get(tag, [otherwise]))

    per_pixel = -(-most(_BITS, 1) * most(_SAMPLES, 1) // 8)
    size = 0
    if _TILE_WIDTH in tags or _TILE_HEIGHT in tags:
        size = most(_TILE_WIDTH, 0) * most(_TILE_HEIGHT, 0)
    rows = min(most(_ROWS, most(_HEIGHT, 0)), most(_HEIGHT, 0))
    size = max(size, rows * most(_WIDTH, 0)) if _ROWS in tags or not size else size
    in_place = set(tags.get(_COMPRESSION, [1])) <= _UNPACKED_IN_PLACE
    # a JPEG or WebP inside it is a picture of its own: coefficients, and a second form of the pixels
    needed = size * per_pixel if in_place else size * (2 * per_pixel + 2 * most(_SAMPLES, 1) + 8)
    return needed, most(_ORIENTATION, 1) > 1


def _tiff_tags(data: bytes) -> dict[int, list[int]]:
    """Unsigned numbers of the first directory; each tag with all values that any entry gives it."""
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in (b"+\0", b"\0+")
    found: dict[int, list[int]] = {}
    try:
        (start,) = struct.unpack_from(order + ("Q" if big else "I"), data, 8 if big else 4)
        (count,) = struct.unpack_from(order + ("Q" if big else "H"), data, start)
        at, entry = start + (8 if big else 2), order + ("HHQ8s" if big else "HHI4s")
        for number in range(min(count, 65_535)):
            tag, type_, values, inline = struct.unpack_from(entry, data, at + number * struct.calcsize(entry))
            if type_ not in _TIFF_TYPES or not _WIDTH <= tag <= _TILE_HEIGHT:
                continue
            values = min(values, 64)  # bits per sample has one per component; no tag that is looked at has more
            layout = f"{order}{values}{_TIFF_TYPES[type_]}"
            inside = struct.calcsize(layout) <= len(inline)
            (offset,) = struct.unpack(order + ("Q" if big else "I"), inline)
            read = struct.unpack_from(layout, inline if inside else data, 0 if inside else offset)
            found.setdefault(tag, []).extend(read)
    except struct.error:  # cut off: Pillow refuses it, or reads what is there
        pass
    return {tag: values for tag, values in found.items() if values}


def jpeg2000_tile(data: bytes) -> int:
    """Bytes that OpenJPEG takes to decode the largest tile."""
    start = data.find(b"\xff\x4f\xff\x51")  # start of the code stream, and its size
    if start < 0:
        return 0
    try:
        right, bottom, left, top, wide, high = struct.unpack_from(">6I", data, start + 8)
        (components,) = struct.unpack_from(">H", data, start + 8 + 32)
        depths = data[start + 42 : start + 42 + 3 * components : 3]
        width, height = min(right - left, wide), min(bottom - top, high)
        tiles = -(-right // max(1, wide)) * -(-bottom // max(1, high))
        bytes_each = 1 if all(depth & 0x7F < 8 for depth in depths) else 2
        records = max(
            (_jpeg2000_records(body, coding, components, width, height) for coding, body in _codings(data, start)),
            default=0,
        )
    except struct.error:
        return 0  # cut off in its header: it cannot be decoded
    # numbers of 4 bytes, and the same packed; transforms of one line and the like are small beside them
    return int(width * height * components * (4 + bytes_each) + records + min(tiles, 65_535) * _TILE)


def _codings(data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """COD (0x52) and COC (0x53) segments of the main header and of the tile parts."""
    at = start + 2
    part = end = 0
    while at + 4 <= len(data):
        marker, length = struct.unpack_from(">HH", data, at)
        if marker == 0xFF90:  # a tile part; 0: it goes on to the end of the file
            part = at
            (size,) = struct.unpack_from(">I", data, at + 6)
            end = part + size if size else len(data)
        if marker == 0xFF93:  # its data
            if end <= at:
                return
            at = end
            continue
        if marker < 0xFF00:
            return
        if marker in (0xFF52, 0xFF53):
            yield marker & 0xFF, data[at + 4 : at + 2 + length]
        at += 2 + max(2, length)


def _jpeg2000_records(body: bytes, coding: int, components: int, width: int, height: int) -> int:
    """Bytes of the records of code blocks and precincts of one tile, if all components were coded so."""
    if coding == 0x52:
        style, _, layers, _, levels, x, y = struct.unpack_from(">BBHBBBB", body)
        sizes = body[10:]
    else:
        skipped = 1 if components < 257 else 2
        style, levels, x, y = struct.unpack_from(">BBBB", body, skipped)
        layers, sizes = 1, body[skipped + 6 :]
    levels = min(levels, 32)
    block_x, block_y = (x & 15) + 2, (y & 15) + 2
    blocks = precincts = most = 0
    for resolution in range(levels + 1):
        size = sizes[resolution] if style & 1 and resolution < len(sizes) else 0xFF
        precinct_x, precinct_y = size & 15, size >> 4
        reduced = levels - resolution
        across, down = _pieces(width, reduced), _pieces(height, reduced)
        here = _pieces(across, precinct_x) * _pieces(down, precinct_y)
        inner = 1 if resolution else 0  # a precinct is half as large in each of the three bands
        side_x, side_y = min(block_x, max(0, precinct_x - inner)), min(block_y, max(0, precinct_y - inner))
        here_blocks = _pieces(across, side_x) * _pieces(down, side_y)
        blocks += here_blocks * 3 // 4 + 3 if resolution else here_blocks  # a quarter is the next lower one's
        precincts += here
        most = max(most, here)
    included = layers * most * (levels + 1) * 2  # which packets were seen
    return int(components * (blocks * _BLOCK + precincts * _PRECINCT + included))


def _pieces(length: int, exponent: int) -> int:
    """How many pieces of 2**exponent cover a length."""
    return -(-length >> exponent)


def is_deep(data: bytes, box: bytes) -> bool:
    """Whether an AVIF (box av1C) or HEIF file (hvcC) has more than 8 bits, or pieces that are put together."""
    head = data[: 2**20]
    if b"grid" in head or b"iovl" in head:
        return True
    at = head.find(box)
    while at >= 0:
        configuration = head[at + 4 : at + 30]
        if box == b"av1C" and len(configuration) > 2 and configuration[2] & 0x40:
            return True
        if box == b"hvcC" and len(configuration) > 18 and (configuration[17] & 7 or configuration[18] & 7):
            return True
        at = head.find(box, at + 4)
    return False
