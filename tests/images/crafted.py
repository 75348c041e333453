"""Small files that are large pictures: made by hand to take as much memory in decoding as their format allows.

Each is a few kilobytes to a few megabytes and decodes to `pixels` pixels. They hold one colour: what matters is how the
decoding library lays out its buffers for them.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

from PIL import Image

Maker = Callable[[int], bytes]  # pixels -> file


def _side(pixels: int, multiple: int = 16) -> int:
    """Of a square picture."""
    return max(multiple, int(pixels**0.5) // multiple * multiple)


def _saved(image: Image.Image, format_: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_, **options)
    return buffer.getvalue()


# JPEG: one Huffman code, a single 0 bit, for "no difference" and for "end of block": two zero bits per block of 64


def _segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def jpeg(
    width: int,
    height: int,
    samplings: list[int],
    scans: list[list[int]],
    *,
    frame: int = 0xC0,
) -> bytes:
    """`samplings`: one byte per component, 0x11 for full size; `scans`: which components each scan holds."""
    table = bytes([0x00, 1] + [0] * 15 + [0])
    out = [b"\xff\xd8", _segment(0xDB, b"\0" + b"\1" * 64)]
    components = b"".join(bytes([number + 1, sampling, 0]) for number, sampling in enumerate(samplings))
    out.append(_segment(frame, struct.pack(">BHHB", 8, height, width, len(samplings)) + components))
    out.append(_segment(0xC4, table + bytes([0x10]) + table[1:]))
    most_h, most_v = max(one >> 4 for one in samplings), max(one & 15 for one in samplings)
    for scan in scans:
        chosen = b"".join(bytes([number + 1, 0]) for number in scan)
        progressive = frame == 0xC2
        out.append(_segment(0xDA, bytes([len(scan)]) + chosen + bytes([0, 0 if progressive else 63, 0])))
        blocks = 0
        for number in scan:
            h, v = samplings[number] >> 4, samplings[number] & 15
            if len(scan) == 1:
                blocks += -(-width * h // (8 * most_h)) * -(-height * v // (8 * most_v))
            else:
                blocks += h * v * -(-width // (8 * most_h)) * -(-height // (8 * most_v))
        out.append(bytes(-(-blocks * (1 if progressive else 2) // 8) + 8))
    return b"".join(out) + b"\xff\xd9"


def _jpeg(samplings: list[int], *, scan_each: bool = False, frame: int = 0xC0, long: bool = False) -> Maker:
    def make(pixels: int) -> bytes:
        side = _side(pixels, 64)
        width, height = (min(65_500, pixels // 1024), 1024) if long else (side, side)
        every = list(range(len(samplings)))
        scans = [[number] for number in every] if scan_each else [every]
        return jpeg(width, height, samplings, scans, frame=frame)

    return make


# TIFF


def _ifd(entries: list[tuple[int, int, int, bytes]], start: int) -> bytes:
    """A directory at `start` and the values that do not fit into it behind it; entries: tag, type, count, value."""
    body, tail = struct.pack("<H", len(entries)), b""
    at = start + 2 + 12 * len(entries) + 4
    for tag, type_, count, value in sorted(entries, key=lambda entry: entry[0]):
        inside = value.ljust(4, b"\0")
        if len(value) > 4:
            inside, tail = struct.pack("<I", at + len(tail)), tail + value
        body += struct.pack("<HHI", tag, type_, count) + inside
    return body + bytes(4) + tail


def tiff(
    width: int,
    height: int,
    *,
    bands: int,
    bits: int,
    rows: int | None = None,
    tile: int | None = None,
    planar: bool = False,
    predictor: bool = False,
    orientation: int = 1,
    signed: bool = False,
) -> bytes:
    """Deflate, in strips of `rows` or tiles of `tile` pixels; all zeros. `signed`: lengths are of the type SLONG."""
    planes, per_plane = (bands, 1) if planar else (1, bands)
    if tile:
        size, count = tile * tile, -(-width // tile) * -(-height // tile)
        sizes = [size] * count
    else:
        rows = rows or height
        sizes = [width * min(rows, height - top) for top in range(0, height, rows)]
    packed = {size: _deflated(size * per_plane * bits // 8) for size in set(sizes)}
    offsets, lengths, at, data = list[int](), list[int](), 8, b""
    places: dict[int, int] = {}
    for size, piece in packed.items():  # equal pieces may lie in one place
        places[size] = at + len(data)
        data += piece
    for size in sizes * planes:
        offsets.append(places[size])
        lengths.append(len(packed[size]))

    def shorts(tag: int, *values: int) -> tuple[int, int, int, bytes]:
        return tag, 3, len(values), struct.pack(f"<{len(values)}H", *values)

    def longs(tag: int, *values: int) -> tuple[int, int, int, bytes]:
        is_signed = signed and tag in (256, 257, 278, 322, 323)
        return tag, 9 if is_signed else 4, len(values), struct.pack(f"<{len(values)}I", *values)

    entries = [
        longs(256, width), longs(257, height), shorts(258, *[bits] * bands), shorts(259, 8),
        shorts(262, 2 if bands >= 3 else 1), shorts(277, bands), shorts(284, 2 if planar else 1),
        shorts(274, orientation),
    ]  # fmt: skip
    if bands in (2, 4):
        entries.append(shorts(338, 2))
    if predictor:
        entries.append(shorts(317, 2))
    if tile:
        entries += [longs(322, tile), longs(323, tile), longs(324, *offsets), longs(325, *lengths)]
    else:
        assert rows is not None
        entries += [longs(278, rows), longs(273, *offsets), longs(279, *lengths)]
    start = 8 + len(data) + len(data) % 2
    return struct.pack("<2sHI", b"II", 42, start) + data.ljust(start - 8, b"\0") + _ifd(entries, start)


def _deflated(size: int) -> bytes:
    packer, out, lump = zlib.compressobj(9), b"", bytes(1 << 20)
    while size:
        out += packer.compress(lump[: min(size, len(lump))])
        size -= min(size, len(lump))
    return out + packer.flush()


def _tiff(bands: int, bits: int, *, tiles: float = 0, planar: bool = False, **options: object) -> Maker:
    """`tiles`: their side as a share of the picture's; 0: one strip."""

    def make(pixels: int) -> bytes:
        side = _side(pixels)
        tile = max(16, int(side * tiles) // 16 * 16) if tiles else None
        return tiff(side, side, bands=bands, bits=bits, tile=tile, planar=planar, **options)  # type: ignore[arg-type]

    return make


# PNG


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(width: int, height: int, *, bits: int, kind: int, interlaced: bool = False, texts: bytes = b"") -> bytes:
    """All zeros; `kind`: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA. `texts`: further chunks."""
    bands = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]

    def raw(columns: int, rows: int) -> int:
        return rows * (1 + -(-columns * bands * bits // 8)) if columns and rows else 0

    if interlaced:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
        size = sum(raw(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes)
    else:
        size = raw(width, height)
    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, int(interlaced))
    palette = _chunk(b"PLTE", bytes(3 * 256)) if kind == 3 else b""
    chunks = [_chunk(b"IHDR", head), texts, palette, _chunk(b"IDAT", _deflated(size)), _chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _png_with_texts(_: int) -> bytes:
    """63 texts of a megabyte, each with one emoji: four bytes per letter when they are read."""
    text = zlib.compress(b"a" * (2**20 - 8) + "\U0001f600".encode(), 9)
    texts = b"".join(_chunk(b"iTXt", b"key%d\0\1\0\0\0" % number + text) for number in range(63))
    return png(16, 16, bits=8, kind=2, texts=texts)


def _png(bits: int, kind: int, *, long: bool = False, interlaced: bool = False) -> Maker:
    def make(pixels: int) -> bytes:
        width, height = (pixels, 1) if long else (_side(pixels), _side(pixels))
        return png(width, height, bits=bits, kind=kind, interlaced=interlaced)

    return make


# the others, as Pillow writes them


def _written(format_: str, mode: str, **options: object) -> Maker:
    def make(pixels: int) -> bytes:
        return _saved(Image.new(mode, (_side(pixels), _side(pixels))), format_, **options)

    return make


def _webp_with_noisy_alpha(pixels: int) -> bytes:
    """Lossy, with an alpha channel of many values, which is coded on its own."""
    side = min(_side(pixels), 16_368)
    image = Image.new("RGBA", (side, side))
    image.putalpha(Image.linear_gradient("L").resize((side, side)))
    return _saved(image, "WEBP", quality=10, method=0)


def _jpeg2000_small_blocks(pixels: int) -> bytes:
    """Code blocks of 4 x 4. Middle grey gives empty packets, whose blocks may be of any size."""
    side = _side(pixels)
    data = _saved(Image.new("RGBA", (side, side), (128, 128, 128, 128)), "JPEG2000", no_jp2=True)
    at = data.index(b"\xff\x52") + 10
    return data[:at] + b"\0\0" + data[at + 2 :]


def _box(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body) + 8) + name + body


def _jpeg2000_with_forged_size(pixels: int) -> bytes:
    """A `uuid` box with the header of a small picture, before that of the large one."""
    data = _written("JPEG2000", "RGBA")(pixels)
    forged = b"\xff\x4f\xff\x51" + struct.pack(">HHIIIIIIIIH", 41, 0, 16, 16, 0, 0, 16, 16, 0, 0, 1) + b"\7\1\1"
    at = data.index(b"jp2h") - 4
    return data[:at] + _box(b"uuid", bytes(16) + forged) + data[at:]


def _avif_with_forged_size(pixels: int) -> bytes:
    """The container says 64 x 64, the picture inside is large."""
    data = _written("AVIF", "RGB", quality=10, speed=10)(pixels)
    at = data.index(b"ispe") + 8
    return data[:at] + struct.pack(">II", 64, 64) + data[at + 8 :]


def _icon(pixels: int) -> bytes:
    """A large PNG inside, of which the directory says 16 x 16."""
    inner = _png(8, 6)(pixels)
    return struct.pack("<HHH", 0, 1, 1) + struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(inner), 22) + inner


def _plain_ppm(pixels: int) -> bytes:
    """Numbers in decimal: two bytes per value."""
    side = _side(pixels)
    return b"P2 %d %d 65535\n" % (side, side) + b"0 " * (side * side)


def _bmp_rle(pixels: int) -> bytes:
    side = _side(pixels)
    row = b"\xff\0" * (side // 255) + bytes([side % 255, 0]) * bool(side % 255) + b"\0\0"
    data = row * side + b"\0\1"
    head = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, len(data), 0, 0, 256, 0)
    start = 14 + 40 + 1024
    return struct.pack("<2sIHHI", b"BM", start + len(data), 0, 0, start) + head + bytes(1024) + data


def _heic(mode: str, chroma: int) -> Maker:
    def make(pixels: int) -> bytes:
        import pillow_heif

        side = _side(min(pixels, 4_000_000))  # its encoder is slow
        buffer = io.BytesIO()
        pillow_heif.from_pillow(Image.new(mode, (side, side))).save(buffer, quality=10, chroma=chroma)
        return buffer.getvalue()

    return make


MAKERS: dict[str, Maker] = {
    "jpeg baseline": _jpeg([0x22, 0x11, 0x11]),
    "jpeg baseline, a scan per component, 4 components": _jpeg([0x11] * 4, scan_each=True),
    "jpeg baseline, a scan per component, 3 components": _jpeg([0x11] * 3, scan_each=True),
    "jpeg baseline, a scan per component, 4:1:0": _jpeg([0x42, 0x11, 0x11], scan_each=True),
    "jpeg progressive, 3 components": _jpeg([0x11] * 3, frame=0xC2),
    "jpeg progressive, 4 components": _jpeg([0x11] * 4, frame=0xC2),
    "jpeg progressive, grey": _jpeg([0x11], frame=0xC2),
    "jpeg of one row of tall blocks": _jpeg([0x11] * 4, scan_each=True, long=True),
    "tiff, one strip, RGBA 16 bit": _tiff(4, 16),
    "tiff, one strip, RGBA 16 bit, predictor": _tiff(4, 16, predictor=True),
    "tiff, one strip, RGB 8 bit": _tiff(3, 8),
    "tiff, one strip, RGB 8 bit, turned": _tiff(3, 8, orientation=6),
    "tiff, a strip per plane, RGB 8 bit": _tiff(3, 8, planar=True),
    "tiff, one tile, RGBA 16 bit": _tiff(4, 16, tiles=1),
    "tiff, small tiles, RGBA 16 bit": _tiff(4, 16, tiles=0.05),
    "tiff, tile wider than the picture, RGBA 16 bit": _tiff(4, 16, tiles=2),
    "tiff, one strip, grey 16 bit": _tiff(1, 16),
    "tiff, lengths as signed numbers, one strip": _tiff(4, 16, signed=True),
    "tiff, lengths as signed numbers, one tile": _tiff(4, 16, tiles=1, signed=True),
    "png, 63 compressed texts": _png_with_texts,
    "png, RGBA 16 bit": _png(16, 6),
    "png, RGBA 16 bit, interlaced": _png(16, 6, interlaced=True),
    "png, RGBA 16 bit, one row": _png(16, 6, long=True),
    "png, grey and alpha, one row": _png(8, 4, long=True),
    "png, palette of 1 bit": _png(1, 3),
    "png, grey 16 bit": _png(16, 0),
    "webp lossless, RGBA": _written("WEBP", "RGBA", lossless=True, method=0, quality=0),
    "webp lossy, RGB": _written("WEBP", "RGB", quality=10, method=0),
    "webp lossy with alpha": _webp_with_noisy_alpha,
    "gif": _written("GIF", "P"),
    "bmp, run-length coded": _bmp_rle,
    "ppm, plain, 16 bit": _plain_ppm,
    "tga, run-length coded": _written("TGA", "RGBA", compression="tga_rle"),
    "jpeg 2000, one tile, RGBA": _written("JPEG2000", "RGBA"),
    "jpeg 2000, blocks of 4 x 4": _jpeg2000_small_blocks,
    "jpeg 2000, small tiles, RGB": _written("JPEG2000", "RGB", tile_size=(256, 256)),
    "jpeg 2000, tiles of 32 x 32, RGB": _written("JPEG2000", "RGB", tile_size=(32, 32)),
    "jpeg 2000, forged size in a uuid box": _jpeg2000_with_forged_size,
    "avif, forged size": _avif_with_forged_size,
    "icon, large PNG": _icon,
    "avif, RGB": _written("AVIF", "RGB", quality=10, speed=10),
    "avif, RGBA 4:4:4": _written("AVIF", "RGBA", quality=10, speed=10, subsampling="4:4:4"),
    "heic, RGB": _heic("RGB", 420),
    "heic, RGBA 4:4:4": _heic("RGBA", 444),
}  # fmt: skip
BY_HAND = ("jpeg baseline", "jpeg progressive", "jpeg of", "tiff", "png", "icon", "bmp")  # made at any size, fast
