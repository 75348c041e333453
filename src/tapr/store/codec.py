"""int8 codes of rotated local vectors, with one scale per vector and the length of what is lost.

Encoders of the CLIP family put a third of the square of a vector's length into one component. A scale that fits it
leaves few steps to the others. So a vector is rotated first, by one fixed rotation that spreads every component over
all of them; dot products stay the same when the probes are rotated too. On CLIP's vectors this loses a quarter of what
plain codes lose (docs/matching.md).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.errors import BadInput
from tapr.types import Float32

LONGEST = 1 + 2.0**-8  # upper bound of a local vector's length: 1 (or 0) before fp16 rounding
_MULTIPLIER = 2654435769  # 2^32 / golden ratio, for a sign pattern unlike any vector's


@cache
def rotation(dim: int) -> NDArray[np.float64]:
    """(d, d), orthonormal: signs, then the cosine transform (DCT-II). Part of the format: it never changes."""
    number = np.arange(dim)
    basis = np.sqrt(2 / dim) * np.cos(np.pi * (2 * number[None] + 1) * number[:, None] / (2 * dim))
    basis[0] /= np.sqrt(2)
    return np.asarray(basis * _signs(dim))


@cache
def _signs(dim: int) -> NDArray[np.float64]:
    return np.array([1.0 - 2 * ((n * _MULTIPLIER % 2**32).bit_count() % 2) for n in range(dim)])


def rotate(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """(..., d) as codes see them: vectors @ rotation(d).T, by way of the Fourier transform.

    Not a matrix product: BLAS leaves threads behind that keep a processor busy while the kernel wants it.
    """
    dim = vectors.shape[-1]
    signed = np.asarray(vectors, np.float64) * _signs(dim)
    folded = np.concatenate([signed[..., ::2], signed[..., 1::2][..., ::-1]], axis=-1)
    half = np.fft.rfft(folded)  # of a real row: the other half is its mirror image
    mirrored = half[..., 1 : (dim + 1) // 2][..., ::-1]
    cosines, sines = _waves(dim)
    middle = half.shape[-1]
    rotated = (
        half.real * cosines[:middle] + half.imag * sines[:middle],
        mirrored.real * cosines[middle:] - mirrored.imag * sines[middle:],
    )
    return np.concatenate(rotated, axis=-1)


@cache
def _waves(dim: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Factors that turn the Fourier transform of a folded row into the cosine transform: (d,), (d,)."""
    angles, size = np.pi / (2 * dim) * np.arange(dim), np.full(dim, np.sqrt(2 / dim))
    size[0] /= np.sqrt(2)
    return np.cos(angles) * size, np.sin(angles) * size


def decode(codes: NDArray[np.int8], scales: Float32) -> Float32:
    """codes (..., d), scales (...) -> vectors (..., d), with the rotation undone."""
    rotated = codes.astype(np.float32) * scales[..., None]
    return np.asarray(rotated @ rotation(codes.shape[-1]).astype(np.float32), np.float32)


def quantise(vectors: NDArray[Any]) -> tuple[NDArray[np.int8], Float32, Float32]:
    """fp16 vectors (..., d) -> codes (..., d), scales (...), errors (...).

    scale * code is the rotated vector, apart from a rest whose length is at most the error. The
    scale maps the largest magnitude to 127. Errors are rounded up, so that they are bounds.
    """
    exact = rotate(vectors)
    scales = (np.abs(exact).max(axis=-1) / 127).astype(np.float32)
    safe = np.where(scales > 0, scales, 1)[..., None].astype(np.float64)
    codes = np.clip(np.rint(exact / safe), -127, 127)
    lost = np.sqrt(((exact - codes * scales[..., None]) ** 2).sum(-1))
    errors = np.nextafter((lost * (1 + 1e-9)).astype(np.float32), np.float32(np.inf))
    return codes.astype(np.int8), scales, errors.astype(np.float32)


def as_stored(vectors: NDArray[Any]) -> NDArray[np.float16]:
    """Round to fp16. Too large numbers become infinite, which `usable` detects."""
    with np.errstate(over="ignore", invalid="ignore"):
        return vectors.astype("<f2", copy=False)


def usable(vectors: NDArray[Any]) -> NDArray[np.bool_]:
    """(B, ...) -> (B,): whether all numbers of a picture are finite."""
    return np.asarray(np.isfinite(vectors).reshape(len(vectors), -1).all(axis=1))


def check_lengths(vectors: NDArray[Any]) -> None:
    """Refuse vectors (..., d) longer than 1: the bounds of exact search depend on it."""
    longest = float(np.linalg.norm(np.asarray(vectors, np.float32), axis=-1).max(initial=0))
    if not longest <= LONGEST:  # NaN fails this comparison too
        raise BadInput(f"the encoder gave a local vector of length {longest:.4g}: it must give vectors of length 1")
