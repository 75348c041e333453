"""From a path or bytes to an upright RGB picture, or one sentence that says why not."""

from __future__ import annotations

import contextlib
import hashlib
import io
import warnings
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageOps, UnidentifiedImageError

from tapr.errors import BadInput
from tapr.extras import install_hint

# Pillow's own limit only warns; Limits below refuses, with a sentence, before a pixel is decoded.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

_SUFFIXES = ".jpg .jpeg .jpe .jfif .png .webp .gif .bmp .dib .tif .tiff .heic .heif .avif .jp2 .ppm .pgm .pbm .tga .ico"
PICTURE_SUFFIXES = frozenset(_SUFFIXES.split())
_HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")

_ORIENTATION, _ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)  # the EXIF tag, and its values that swap width and height


class BadImage(BadInput):
    """A file that cannot be used as a picture; the text is the reason, without the file's name."""


class PictureTooLarge(BadImage):
    """More bytes or pixels than the limits allow."""


@dataclass(frozen=True)
class Limits:
    """What is refused before it is decoded."""

    bytes: int = 128 * 2**20
    pixels: int = 120_000_000


DEFAULT_LIMITS = Limits()


def load_image(
    source: str | Path | bytes | Image.Image, *, side: int | None = None, limits: Limits = DEFAULT_LIMITS
) -> Image.Image:
    """Decode to upright RGB. `side` is how many pixels the shorter side needs: big JPEGs are then decoded smaller."""
    if isinstance(source, Image.Image):
        return _opened(source, limits)
    if isinstance(source, bytes):
        return decode(source, side=side, limits=limits)
    try:
        return decode(read_bytes(source, limits), side=side, limits=limits)
    except BadImage as error:
        raise type(error)(f"{source}: {error}") from None


def read_bytes(path: str | Path, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The whole file, refused when it is missing, empty or over the limit."""
    path = Path(path)
    try:
        if path.is_dir():
            raise BadImage("is a folder, not a picture")
        size = path.stat().st_size
        if size > limits.bytes:
            raise PictureTooLarge(f"has {size:,} bytes, more than the {limits.bytes:,} allowed")
        if not path.is_file():  # a named pipe or a device could be read forever
            raise BadImage("is not a regular file")
        return path.read_bytes()
    except OSError as error:
        raise BadImage(f"cannot be read: {(error.strerror or str(error)).lower()}") from None


def decode(data: bytes, *, side: int | None = None, limits: Limits = DEFAULT_LIMITS) -> Image.Image:
    """Bytes of any format Pillow reads -> upright RGB, the first frame of an animation."""
    return decode_sized(data, side=side, limits=limits)[0]


def decode_sized(
    data: bytes, *, side: int | None = None, limits: Limits = DEFAULT_LIMITS
) -> tuple[Image.Image, tuple[int, int]]:
    """As decode, and the upright picture's full width and height, which `side` may have reduced."""
    if not data:
        raise BadImage("is empty")
    if len(data) > limits.bytes:
        raise PictureTooLarge(f"has {len(data):,} bytes, more than the {limits.bytes:,} allowed")
    if data[4:8] == b"ftyp" and data[8:12] in _HEIC_BRANDS:
        _register_heif()
    try:
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
            if width * height > limits.pixels:
                raise PictureTooLarge(f"has {width} x {height} pixels, more than the {limits.pixels:,} allowed")
            if min(width, height) == 0:
                raise BadImage("has no pixels")
            if side is not None and image.format == "JPEG":
                image.draft("RGB", _draft_size(width, height, side))
            image.load()
            turned = image.getexif().get(_ORIENTATION, 1) in _ON_ITS_SIDE
            full = (height, width) if turned else (width, height)
            return to_rgb(ImageOps.exif_transpose(image)), full
    except BadImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise PictureTooLarge(f"has more than the {limits.pixels:,} pixels allowed") from None
    except UnidentifiedImageError:
        raise BadImage(_not_a_picture(data)) from None
    except MemoryError:
        raise BadImage("needs more memory to decode than there is") from None
    except (
        Exception
    ) as error:  # Pillow's decoders raise OSError, ValueError, SyntaxError, struct.error, ... on bad data
        raise BadImage(f"is broken or cut off ({_one_line(error)})") from None


def to_rgb(image: Image.Image) -> Image.Image:
    """Any mode -> RGB: transparency on white, 16-bit and float scaled to 8 bits."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I") or image.mode == "F":
        return _from_deep(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _opened(image: Image.Image, limits: Limits) -> Image.Image:
    """A PIL image, which may not have read its file yet."""
    width, height = image.size
    if min(width, height) == 0:
        raise BadImage("has no pixels")
    if width * height > limits.pixels:
        raise PictureTooLarge(f"has {width} x {height} pixels, more than the {limits.pixels:,} allowed")
    try:
        return to_rgb(ImageOps.exif_transpose(image))
    except MemoryError:
        raise BadImage("needs more memory to decode than there is") from None
    except Exception as error:  # as in decode_sized; also a file that was closed before it was read
        raise BadImage(f"is broken, cut off or closed ({_one_line(error)})") from None


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


def _from_deep(image: Image.Image) -> Image.Image:
    values = np.asarray(image, dtype=np.float64)
    values = np.nan_to_num(values)
    # integers are 16-bit, floats run to 1; a picture that goes beyond is scaled to its own brightest point
    top = max(65535.0 if image.mode.startswith("I") else 1.0, float(values.max()))
    grey = np.clip(values / top * 255, 0, 255).round().astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


def readers() -> str:
    """Which programs read pictures here: a file that failed is worth another try when this has changed."""
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
    return "is not a picture in a format that Pillow reads"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 120 else text[:117] + "..."
