"""Opening a reference: whatever names a picture -> its vectors, its picture and its hash.

The library, the command line, the server, factorizers and evaluation all open references here, so that one file has
the same vectors everywhere: those that the gallery holds of it, else those that the index would make of it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import Encoder, Evidence
from tapr.encoders.prepare import decode_for
from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.images.decode import (
    DEFAULT_LIMITS,
    BadImage,
    Limits,
    View,
    decode_views,
    load_image,
    pixels_sha256,
    read_bytes,
    sha256_of,
    small,
)
from tapr.images.workers import Decode
from tapr.query.reference import Reference

ReferenceLike = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Image.Image | NDArray[Any] | Reference
)
Known = Callable[[str], Evidence | None]  # SHA-256 of a file -> its vectors, if known
SHOWN_SIDE = 1024  # pixels of the longer side of pictures shown to people and factorizers
_SHOWN = View(SHOWN_SIDE // 2, longest=SHOWN_SIDE)


def open_reference(source: ReferenceLike, encoder: Encoder, gallery: Gallery | None = None) -> Reference:
    """Open whatever a caller gives. A string is a path if such a file exists, otherwise a gallery id."""
    if isinstance(source, Reference):
        return source
    try:
        if isinstance(source, np.ndarray):
            source = _image_of(source)
        if isinstance(source, Image.Image):
            image = load_image(source)
            evidence = encoder.encode_images([encoder.prepare(image)])
            return Reference(small(image, SHOWN_SIDE), evidence, pixels_sha256(image))
        data, id_ = _bytes_of(source, gallery)
        return open_bytes(data, encoder, lambda sha256: stored_evidence(gallery, encoder, sha256), id_=id_)
    except BadImage as error:
        name = f" {os.fspath(source)!r}" if isinstance(source, (str, os.PathLike)) else ""
        raise type(error)(f"the reference{name} {error}") from None


def open_bytes(
    data: bytes,
    encoder: Encoder,
    known: Known,
    limits: Limits = DEFAULT_LIMITS,
    id_: str | None = None,
    decode: Decode = decode_views,
) -> Reference:
    """Open a picture file's bytes; encode them unless their vectors are known.

    `decode` is decode_apart where the picture is another person's. One's own is decoded in this process.
    """
    sha256 = sha256_of(data)
    evidence = known(sha256)
    if evidence is not None:
        views = decode(data, [_SHOWN], limits).views
    else:
        views = decode_for(encoder, data, [_SHOWN], limits, decode).views
        evidence = encoder.encode_images([views[0]])
    return Reference(Image.fromarray(views[-1]), evidence, sha256, id=id_)


def shown(data: bytes) -> Image.Image:
    """Decode a picture as people and factorizers see it: upright RGB, the longer side at most SHOWN_SIDE."""
    return Image.fromarray(decode_views(data, [_SHOWN]).views[0])


def stored_evidence(gallery: Gallery | None, encoder: Encoder, sha256: str) -> Evidence | None:
    """The gallery's own vectors of this file, if it has fp16; int8 codes are too coarse for a reference."""
    if gallery is None or gallery.precision == "int8" or gallery.card != encoder.card:
        return None
    positions = gallery.positions_of(sha256)
    if not len(positions):
        return None
    block = gallery.gather(gallery.rows[positions[:1]])
    return Evidence(block.global_vectors.astype(np.float32), block.decoded().astype(np.float32))


def _image_of(pixels: NDArray[Any]) -> Image.Image:
    """Return an array of (height, width), or with 3 or 4 channels, as a picture."""
    shape_fits = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    if pixels.dtype != np.uint8 or not shape_fits or not pixels.size:
        what = f"the reference is an array of {pixels.dtype} and shape {pixels.shape}"
        raise BadInput(f"{what}: give uint8 values of shape (height, width, 3)")
    return Image.fromarray(np.ascontiguousarray(pixels))


def _bytes_of(source: object, gallery: Gallery | None) -> tuple[bytes, str | None]:
    """And its gallery id, where that is how it was named."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source), None
    if isinstance(source, (str, os.PathLike)):
        return _file_bytes(os.fspath(source), gallery)
    if callable(getattr(source, "read", None)):
        return _read_bytes(source), None
    raise BadInput(
        f"the reference is of the type {type(source).__name__}:"
        " give a path, a gallery id, bytes, a file opened with 'rb', a PIL image or a NumPy array"
    )


def _read_bytes(file: object) -> bytes:
    """Read an open file to its end. One byte above the limit is enough to refuse it."""
    if isinstance(file, io.TextIOBase):
        raise BadInput("the reference is a file opened as text: open it with 'rb'")
    try:
        data = file.read(DEFAULT_LIMITS.bytes + 1)  # type: ignore[attr-defined]
    except (OSError, ValueError, TypeError) as error:  # closed, write-only, not a file after all
        raise BadInput(f"the reference is an open file that cannot be read: {error}") from None
    if not isinstance(data, bytes):
        raise BadInput(f"the reference's read() gave {type(data).__name__}, not bytes: open the file with 'rb'")
    if not data:
        raise BadImage("is an open file with nothing left to read: open it again, or seek to its beginning")
    return data


def _file_bytes(source: str | bytes, gallery: Gallery | None) -> tuple[bytes, str | None]:
    text, id_ = os.fsdecode(source), None
    path = os.path.expanduser(text)
    if not os.path.exists(path):
        entry = gallery.find(text) if gallery is not None else None
        if entry is None:
            nor = " and the gallery has no picture of that id" if gallery is not None else ""
            raise BadInput(f"there is no file {text[:200]!r}{nor}: check the reference", code="unknown_picture")
        path, id_ = entry.path, entry.id
    try:
        return read_bytes(Path(path)), id_
    except BadInput as error:
        raise BadInput(f"{path}: {error}", code=error.code) from None
