import numpy as np
import pytest

from tapr.encoders.base import unit
from tapr.errors import BadInput
from tapr.store.codec import check_lengths, decode, quantise, rotate, rotation


def test_the_error_bounds_what_is_lost_in_every_direction() -> None:
    rng = np.random.default_rng(0)
    vectors = unit(rng.normal(size=(20, 7, 64))).astype(np.float16)
    codes, scales, errors = quantise(vectors)
    assert codes.dtype == np.int8
    lost = vectors.astype(np.float64) - (codes * scales[..., None].astype(np.float64)) @ rotation(64)
    assert (np.linalg.norm(lost, axis=-1) <= errors).all()
    probes = unit(rng.normal(size=(100, 64)))
    assert (np.abs(np.einsum("nd,bmd->bmn", probes, lost)) <= errors[..., None]).all()
    assert errors.max() < 0.02


def test_a_zero_vector_stays_zero() -> None:
    codes, scales, _ = quantise(np.zeros((1, 4), np.float16))
    assert not codes.any()
    assert not scales.any()


@pytest.mark.parametrize("dim", [1, 2, 5, 37, 64, 512, 768])
def test_the_rotation_keeps_dot_products(dim: int) -> None:
    np.testing.assert_allclose(rotation(dim) @ rotation(dim).T, np.eye(dim), atol=1e-12)
    np.testing.assert_allclose(rotate(np.eye(dim)), rotation(dim).T, atol=1e-12)


def test_a_component_that_holds_most_of_a_vector_costs_the_others_nothing() -> None:
    rng = np.random.default_rng(1)
    even = unit(rng.normal(size=(50, 512)))
    spiked = even.copy()
    spiked[:, 133] += 0.7
    lost_even, lost_spiked = (quantise(vectors.astype(np.float16))[2] for vectors in (even, unit(spiked)))
    assert lost_spiked.mean() < 1.1 * lost_even.mean()


def test_codes_read_back_as_the_vectors() -> None:
    vectors = unit(np.random.default_rng(2).normal(size=(4, 9, 48))).astype(np.float16)
    codes, scales, errors = quantise(vectors)
    np.testing.assert_allclose(decode(codes, scales), vectors, atol=0.02)
    assert (np.linalg.norm(rotate(vectors) - codes * scales[..., None].astype(np.float64), axis=-1) <= errors).all()


def test_vectors_longer_than_one_are_refused() -> None:
    check_lengths(np.eye(4, dtype=np.float16))
    check_lengths(np.zeros((0, 4)))
    for wrong in (2 * np.eye(4), np.full((1, 4), np.nan)):
        with pytest.raises(BadInput, match="length"):
            check_lengths(wrong)
