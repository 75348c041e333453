"""Decode picture files into upright RGB pixels, or say in one sentence why not.

A header is believed only to refuse early: pixels and bytes have limits here. What decoding may take in memory and time
is limited from outside, by the worker processes of workers.py, in which all pictures of others are decoded.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from tapr.errors import BadInput, Unavailable
from tapr.images.frame import Frame
from tapr.utils.amounts import file_size
from tapr.utils.extras import install_hint
from tapr.utils.rooted import NotRegular, open_regular

_SUFFIXES = ".jpg .jpeg .jpe .jfif .png .webp .gif .bmp .dib .tif .tiff .heic .heif .avif .jp2 .ppm .pgm .pbm .tga .ico"
RAW_SUFFIXES = (".cr2", ".cr3", ".crw", ".nef", ".nrw", ".arw", ".dng", ".raf", ".orf", ".rw2", ".pef", ".srw")
PICTURE_SUFFIXES = frozenset(_SUFFIXES.split())
# Pillow opens more than these, some of it (EPS) by starting other programs. TGA has no mark of its own, so it is last.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "AVIF", "JPEG2000", "PPM", "ICO", "TGA")
_COMMON = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")

_ORIENTATION, _ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)  # the EXIF tag, and its values that swap width and height
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_PASSING = {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN}  # errors of the machine, not of the file


class BadImage(BadInput):
    """A file that cannot be used as a picture; the text is the reason, without the file's name."""

    code = "not_a_picture"


class PictureTooLarge(BadImage):
    """A file with more bytes or pixels than the limits allow, or that takes more memory or time to decode."""

    code = "too_large"


class NoRoomToDecode(Unavailable):
    """A picture that could not be decoded for lack of memory or of a process: it may be good, and is tried again."""

    code = "no_room"


@dataclass(frozen=True)
class Limits:
    """Limits of one picture. Those of memory and time hold in worker processes only."""

    bytes: int = 128 * 2**20
    pixels: int = 120_000_000
    memory: int = 2**30  # bytes that decoding may take
    seconds: float = 30.0  # of processor time


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class View:
    """The form in which a picture is wanted: all its pixels, or at most so many, or a square, or a PNG file."""

    side: int  # pixels that the shorter side needs: a large picture is decoded smaller
    longest: int | None = None  # pixels of the longer side, at most
    frame: Frame | None = None  # the square that an encoder sees
    png: bool = False


@dataclass(frozen=True)
class Decoded:
    """A decoded picture: its upright size, and an array for each view that was asked for."""

    size: tuple[int, int]  # width, height of the file's picture
    views: list[NDArray[np.uint8]]  # (height, width, 3) of RGB, or the bytes of a PNG file


# A picture of more pixels is made smaller while it is converted, where the caller says with `side` how many it needs.
# Below this the pixels are those of the file: what a tower sees of an ordinary picture does not depend on it.
_LARGE = 16_000_000
_SHOWN = 1024  # pixels that the shorter side keeps in any case
_BAND = 1 << 20  # pixels that are converted at a time: copies of a band are small beside the picture


def load_image(
    source: str | Path | bytes | Image.Image, *, side: int | None = None, limits: Limits = DEFAULT_LIMITS
) -> Image.Image:
    """Decode to upright RGB. `side`: how many pixels the shorter side needs. Big pictures are then decoded smaller."""
    if isinstance(source, Image.Image):
        return _opened(source, limits)
    if isinstance(source, bytes):
        return decode(source, side=side, limits=limits)
    try:
        return decode(read_bytes(source, limits), side=side, limits=limits)
    except BadImage as error:
        raise type(error)(f"{source}: {error}") from None


def _file_too_large(size: int, limits: Limits) -> PictureTooLarge:
    is_, most = file_size(size), file_size(limits.bytes)
    said = f"is {is_}, more than the {most} allowed" if is_ != most else f"is larger than the {most} allowed"
    return PictureTooLarge(said)


def read_bytes(path: str | Path, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Read a whole file; refuse one that is missing, not a regular file, or over the limit."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limits.bytes:
                raise _file_too_large(size, limits)
            data = file.read(limits.bytes + 1)
    except NotRegular:
        raise BadImage("is a folder, not a picture" if os.path.isdir(path) else "is not a regular file") from None
    except ValueError as error:  # such as a zero character in a path
        raise BadImage(f"cannot be read: {error}") from None
    except MemoryError:
        raise _no_memory() from None
    except OSError as error:
        if error.errno in _PASSING:
            raise NoRoomToDecode(f"cannot be read now: {(error.strerror or str(error)).lower()}") from None
        raise BadImage(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(data) > limits.bytes:  # it has grown meanwhile
        raise PictureTooLarge(f"is larger than the {file_size(limits.bytes)} allowed")
    return data


def decode(data: bytes, *, side: int | None = None, limits: Limits = DEFAULT_LIMITS) -> Image.Image:
    """Bytes of a picture file -> upright RGB, the first frame of an animation."""
    return decode_sized(data, side=side, limits=limits)[0]


def decode_sized(
    data: bytes, *, side: int | None = None, limits: Limits = DEFAULT_LIMITS
) -> tuple[Image.Image, tuple[int, int]]:
    """As decode, and the upright picture's full width and height, which `side` may have reduced."""
    if not data:
        raise BadImage("is empty")
    if len(data) > limits.bytes:
        raise _file_too_large(len(data), limits)
    load_readers(data)
    try:
        return _decoded(data, side, limits)
    except BadImage:
        raise
    except Image.DecompressionBombWarning:  # Pillow only warns of it, and Limits decides; but warnings may be errors
        raise PictureTooLarge(
            f"has more than the {Image.MAX_IMAGE_PIXELS:,} pixels from which Pillow warns, "
            "and this process turns warnings into errors"
        ) from None
    except Image.DecompressionBombError:
        raise PictureTooLarge(f"has more than the {limits.pixels:,} pixels allowed") from None
    except UnidentifiedImageError:
        raise BadImage(_not_a_picture(data)) from None
    except MemoryError:
        raise _no_memory() from None
    except Exception as error:  # Pillow's decoders raise OSError, ValueError, SyntaxError and more on bad data
        raise BadImage(f"is broken or cut off ({one_line(error)})") from None


def decode_views(data: bytes, views: Sequence[View], limits: Limits = DEFAULT_LIMITS) -> Decoded:
    """Decode a picture file into each of the views, in this process."""
    image, full, side = None, (0, 0), 0
    made = []
    for view in views:
        # of other sides up to _SHOWN / 2 only a JPEG is decoded at another size
        same = image is not None and max(side, view.side) <= _SHOWN // 2 and (image.size == full or not is_jpeg(data))
        if image is None or not (same or side == view.side):
            image, full = decode_sized(data, side=view.side, limits=limits)
            side = view.side
        made.append(_as_wanted(image, view))
    return Decoded(full, made)


def _as_wanted(image: Image.Image, view: View) -> NDArray[np.uint8]:
    try:
        if view.frame is not None:
            return view.frame.apply(image)
        if view.longest is not None:
            image = small(image, view.longest)
        if view.png:
            file = io.BytesIO()
            image.save(file, "PNG")
            return np.frombuffer(file.getbuffer(), np.uint8)
        return np.asarray(image)
    except MemoryError:
        raise _no_memory() from None
    except Exception as error:
        raise BadImage(f"cannot be prepared ({one_line(error)})") from None


def small(image: Image.Image, longest: int) -> Image.Image:
    """Return the picture, or a copy whose longer side has `longest` pixels."""
    if max(image.size) > longest:
        image = image.copy()
        image.thumbnail((longest, longest))
    return image


def _no_memory() -> NoRoomToDecode:
    return NoRoomToDecode("there was not enough memory to decode it")


def _decoded(data: bytes, side: int | None, limits: Limits) -> tuple[Image.Image, tuple[int, int]]:
    image = identified(data)
    width, height = image.size
    _check_pixels(width, height, limits)
    if side is not None and image.format == "JPEG":
        image.draft("RGB", _draft_size(width, height, side))  # image.size is now that of what will be decoded
    factor = _reduction(image, side)
    image.load()
    orientation = image.getexif().get(_ORIENTATION, 1)
    rgb = _in_bands(image, _converter(image), factor)
    del image  # with the decoder, which may hold several times the picture
    if orientation in _UPRIGHT:
        rgb = rgb.transpose(_UPRIGHT[orientation])
    return rgb, (height, width) if orientation in _ON_ITS_SIDE else (width, height)


def load_readers(data: bytes) -> None:
    """Load the libraries that read this file's format: what they take is not the picture's."""
    if data[4:8] == b"ftyp" and data[8:12] in _HEIC_BRANDS:
        _register_heif()
    if not data.startswith(_COMMON):
        _formats()


def identified(data: bytes) -> Image.Image:
    """Open a file with the readers that tapr allows; its pixels are not read yet."""
    if data.startswith(_COMMON):
        with contextlib.suppress(UnidentifiedImageError):
            return Image.open(io.BytesIO(data), formats=("JPEG", "PNG"))  # Pillow has these two at hand
    return Image.open(io.BytesIO(data), formats=_formats())


def _check_pixels(width: int, height: int, limits: Limits) -> None:
    if width * height > limits.pixels:
        raise PictureTooLarge(f"has {width} x {height} pixels, more than the {limits.pixels:,} allowed")
    if min(width, height) == 0:
        raise BadImage("has no pixels")


def to_rgb(image: Image.Image) -> Image.Image:
    """Any mode -> RGB: transparency on white, 16-bit and float scaled to 8 bits."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    return _in_bands(image, _converter(image))


def _in_bands(image: Image.Image, convert: Callable[[Image.Image], Image.Image], factor: int = 1) -> Image.Image:
    """A new picture, converted and reduced a piece at a time: what conversions need beside it stays small."""
    width, height = image.size
    whole = Image.new("RGB", (-(-width // factor), -(-height // factor)))
    for left, top, right, bottom in _bands(width, height, factor):
        band = convert(image.crop((left, top, right, bottom)))
        whole.paste(band.reduce(factor) if factor > 1 else band, (left // factor, top // factor))
    return whole


def _bands(width: int, height: int, factor: int = 1) -> Iterator[tuple[int, int, int, int]]:
    """Boxes of at most about a million pixels that begin at multiples of `factor`; usually some rows each."""
    columns = min(-(-width // factor), max(1, _BAND // factor)) * factor
    rows = factor * max(1, _BAND // (columns * factor))
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            yield left, top, min(width, left + columns), min(height, top + rows)


def _converter(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """How a band of this picture becomes RGB."""
    if image.mode.startswith("I") or image.mode == "F":
        top = _brightest(image)
        return lambda band: _from_deep(band, top)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _on_white
    return lambda band: band.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def _opened(image: Image.Image, limits: Limits) -> Image.Image:
    """A PIL image, which may not have read its file yet."""
    _check_pixels(*image.size, limits)
    try:
        return to_rgb(ImageOps.exif_transpose(image))
    except MemoryError:
        raise _no_memory() from None
    except Exception as error:  # as in decode_sized; also a file that was closed before it was read
        raise BadImage(f"is broken, cut off or closed ({one_line(error)})") from None


def is_jpeg(data: bytes) -> bool:
    """Whether `side` decides the size at which it is decoded, also below 16 million pixels."""
    return data.startswith(b"\xff\xd8\xff")


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pixels_sha256(image: Image.Image) -> str:
    """A name for a picture that has no file: its size and RGB values."""
    digest = hashlib.sha256(f"{image.size}".encode())
    digest.update(image.tobytes())
    return digest.hexdigest()


def looks_like_picture(path: Path) -> bool:
    """By suffix; a file without a suffix by its first bytes."""
    if path.suffix:
        return path.suffix.lower() in PICTURE_SUFFIXES
    try:
        if not path.is_file():  # opening a named pipe waits for somebody to write to it
            return False
        with path.open("rb") as file:
            head = file.read(32)
    except OSError:
        return False
    return head.startswith((b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"II*\0", b"MM\0*")) or (
        head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    )


def _draft_size(width: int, height: int, side: int) -> tuple[int, int]:
    # twice what is needed: the JPEG's own 1/2, 1/4, 1/8 scaling is a box filter, the last step should be ours
    scale = min(1.0, 2 * side / min(width, height))
    return max(1, int(width * scale)), max(1, int(height * scale))


def _reduction(image: Image.Image, side: int | None) -> int:
    """By how much a large picture can be reduced with the shorter side still twice what is needed.

    The same for a tower and for the eye, so that a reference is decoded once for both.
    """
    if side is None or image.width * image.height <= _LARGE:
        return 1
    return max(1, min(image.size) // max(2 * side, _SHOWN))


def _brightest(image: Image.Image) -> float:
    # integers are 16-bit, floats run to 1; a picture that goes beyond is scaled to its own brightest point
    top = 65535.0 if image.mode.startswith("I") else 1.0
    for box in _bands(image.width, image.height):
        band = image.crop(box)
        top = max(top, float(np.nan_to_num(np.asarray(band, dtype=np.float64)).max()))
    return top


def _from_deep(image: Image.Image, top: float) -> Image.Image:
    values = np.nan_to_num(np.asarray(image, dtype=np.float64))
    grey = np.clip(values / top * 255, 0, 255).round().astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


@cache
def _built_in() -> tuple[str, ...]:
    Image.init()  # loads all of Pillow's readers
    return tuple(name for name in _FORMATS if name in Image.OPEN)  # an older Pillow has no AVIF


def _formats() -> tuple[str, ...]:
    return ("HEIF", *_built_in()) if "HEIF" in Image.OPEN else _built_in()  # registered when the first one is met


def readers() -> str:
    """Versions of the libraries that decode pictures here: when they change, files that failed are tried again."""
    found = [f"pillow {PIL.__version__}"]
    with contextlib.suppress(PackageNotFoundError):
        found.append(f"pillow-heif {version('pillow-heif')}")
    return ", ".join(found)


def _register_heif() -> None:
    try:
        import pillow_heif
    except ImportError:
        raise BadImage(f"is a HEIC picture: install the reader with {install_hint('heic')}") from None
    pillow_heif.register_heif_opener()


def _not_a_picture(data: bytes) -> str:
    head = data[:256].lstrip().lower()
    if head.startswith((b"<svg", b"<?xml")) and b"<svg" in data[:4096].lower():
        return "is an SVG drawing, not a picture: convert it to PNG"
    if head.startswith(b"%pdf"):
        return "is a PDF, not a picture: export its pages as PNG"
    if head.startswith((b"<!doctype", b"<html")):
        return "is a web page, not a picture"
    return "is not a picture in a format that tapr reads"


def one_line(error: Exception) -> str:
    """What an exception says, short enough for a sentence."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 120 else text[:117] + "..."
