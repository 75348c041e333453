import numpy as np

from tapr.encoders.base import unit
from tapr.gallery.codec import quantise


def test_the_error_bounds_what_is_lost_in_every_direction() -> None:
    rng = np.random.default_rng(0)
    vectors = unit(rng.normal(size=(20, 7, 64))).astype(np.float16)
    codes, scales, errors = quantise(vectors)
    assert codes.dtype == np.int8
    lost = vectors.astype(np.float64) - codes * scales[..., None].astype(np.float64)
    assert (np.linalg.norm(lost, axis=-1) <= errors).all()
    probes = unit(rng.normal(size=(100, 64)))
    assert (np.abs(np.einsum("nd,bmd->bmn", probes, lost)) <= errors[..., None]).all()
    assert errors.max() < 0.02


def test_a_zero_vector_stays_zero() -> None:
    codes, scales, _ = quantise(np.zeros((1, 4), np.float16))
    assert not codes.any()
    assert not scales.any()
