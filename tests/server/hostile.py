"""Fifty and more uploads that are not what they claim to be."""

from __future__ import annotations

import io
import random
import struct
import zlib

from PIL import Image

from tests.pictures import flag, png


def saved(format_: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    flag("red", "blue").save(buffer, format_, **options)
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width: int, height: int, depth: int = 8, colour: int = 2, body: bytes | None = None) -> bytes:
    """A PNG whose header claims a size; its body is a few zeros."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    packed = zlib.compress(body if body is not None else bytes(100))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def bmp_of(width: int, height: int, bits: int = 24) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + header


def gif_of(width: int, height: int) -> bytes:
    return (
        b"GIF89a"
        + struct.pack("<HHBBB", width, height, 0, 0, 0)
        + b"\x2c"
        + struct.pack("<HHHHB", 0, 0, width, height, 0)
    )


def hostile_uploads() -> dict[str, bytes]:
    good_png, good_jpeg, good_gif = png(flag("red", "blue")), saved("JPEG"), saved("GIF")
    good_webp, good_tiff, good_bmp = saved("WEBP"), saved("TIFF"), saved("BMP")
    dice = random.Random(6)
    out = {
        "nothing": b"",
        "one byte": b"\x00",
        "zeros": bytes(10_000),
        "text": b"hello, I am a picture\n" * 50,
        "html": b"<!doctype html><script>alert(1)</script>",
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        "svg with entity": b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><svg>&e;</svg>',
        "pdf": b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n",
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(%pipe%id) (w) file\n",
        "zip": b"PK\x03\x04" + bytes(200),
        "gzip bomb": zlib.compress(bytes(10_000_000), 9),
        "elf": b"\x7fELF" + bytes(200),
        "php": b"<?php system($_GET['c']); ?>",
        "mp4": b"\x00\x00\x00\x18ftypmp42" + bytes(100),
        "heic head": b"\x00\x00\x00\x18ftypheic" + bytes(100),
        "avif head": b"\x00\x00\x00\x18ftypavif" + bytes(100),
        "icns head": b"icns" + struct.pack(">I", 100) + bytes(92),
        "psd head": b"8BPS" + bytes(30),
        "jpeg 2000 head": b"\x00\x00\x00\x0cjP  \r\n\x87\n" + bytes(50),
        "fits": b"SIMPLE  =                    T" + b" " * 2850,
        "tga noise": bytes([0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 24, 0]),
        "ppm without end": b"P6\n100 100\n255\n",
        "ppm endless header": b"P6\n" + b"#" * 5000,
        "pgm huge": b"P5 99999 99999 255\n",
        "pfm nonsense": b"Pf\n-5 10\n-1.0\n",
        "xbm": b"#define x_width 99999999\n#define x_height 99999999\nstatic char x_bits[] = {",
        "png bomb 100k x 100k": png_of(100_000, 100_000),
        "png bomb 50k x 50k palette": png_of(50_000, 50_000, 1, 3),
        "png claims 2^31": png_of(2**31 - 1, 2**31 - 1),
        "png of no width": png_of(0, 100),
        "png wrong depth": png_of(10, 10, 99),
        "png wrong colour": png_of(10, 10, 8, 99),
        "png body too short": png_of(2000, 2000),
        "png body not zlib": good_png[:33] + chunk(b"IDAT", b"xx"),
        "png header only": good_png[:33],
        "png signature only": good_png[:8],
        "png bad checksum": good_png[:20] + b"\xff" + good_png[21:],
        "png without picture": b"\x89PNG\r\n\x1a\n" + chunk(b"IEND", b""),
        "png text bomb": good_png[:33] + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(80_000_000), 9)) + good_png[33:],
        "png chunk too long": good_png[:33] + b"\xff\xff\xff\xffIDAT" + good_png[33:],
        "jpeg cut": good_jpeg[: len(good_jpeg) // 3],
        "jpeg start only": b"\xff\xd8\xff\xe0",
        "jpeg huge claim": good_jpeg.replace(b"\x00\x30\x00\x30", b"\xff\xdc\xff\xdc", 1)[:200],
        "jpeg markers": b"\xff\xd8" + b"\xff\xe1\xff\xff" * 50,
        "gif cut": good_gif[:20],
        "gif bomb": gif_of(65535, 65535),
        "gif of no size": gif_of(0, 0),
        "webp cut": good_webp[:30],
        "webp head": b"RIFF\xff\xff\xff\x7fWEBPVP8 " + bytes(30),
        "tiff cut": good_tiff[:40],
        "tiff loop": b"II*\0\x08\0\0\0" + b"\0\0" + b"\x08\0\0\0",
        "tiff many entries": b"II*\0\x08\0\0\0\xff\xff" + bytes(100),
        "bmp cut": good_bmp[:40],
        "bmp bomb": bmp_of(60_000, 60_000),
        "bmp negative": bmp_of(-5, -5),
        "bmp odd bits": bmp_of(10, 10, 77),
        "ico of nothing": b"\0\0\1\0\0\0",
        "ico loop": b"\0\0\1\0\1\0" + bytes(16),
    }  # fmt: skip
    for number in range(6):
        out[f"noise {number}"] = dice.randbytes(500 * (number + 1))
    return out


def bomb_in_limits() -> bytes:
    """Small on disk, 150 million white pixels when decoded."""
    buffer = io.BytesIO()
    Image.new("1", (15_000, 10_000), 1).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
