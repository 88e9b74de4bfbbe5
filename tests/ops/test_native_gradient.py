"""Gradients of the distances: within a stated bound of float64, and no worse than eager fp32."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import torch

from benchmarks import native_ops as native
from lapis.errors import LapisError
from lapis.ops.distance import eager

from .shapes import SHAPES, codes

Float = npt.NDArray[np.float64]
# One rounding to float32 at the end.
HALF_ULP = 2.0**-24
# Entries of a row of g are held to 2**-30 of its largest (csrc/kernels/gradient.inc), each rounded by half of that.
FIXED_POINT = 2.0**-30


def slopes(q: npt.NDArray[np.uint8], k: npt.NDArray[np.uint8], reach: int) -> Float:
    difference = q[..., :, None, :].astype(np.int16) - k[..., None, :, :]
    return np.asarray(np.sign(difference).astype(np.float64) * (np.abs(difference) <= reach))


def by_hand(g: npt.NDArray[np.float32], slope: Float) -> tuple[Float, Float]:
    wide = g.astype(np.float64)
    return np.einsum("bij,bijc->bic", wide, slope), -np.einsum("bij,bijc->bjc", wide, slope)


def within_bound(made: npt.NDArray[np.float32], true: Float, largest: Float, count: int) -> bool:
    """|error| <= half an ulp of the result + count * what one entry of g can lose; largest (..., 1) of each row."""
    return bool((np.abs(made - true) <= 1.01 * HALF_ULP * np.abs(true) + count * FIXED_POINT * largest).all())


@cache
def case(
    shape: tuple[int, int, int, int],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    n, m, c, window = shape
    g = np.random.default_rng(n).standard_normal((1, n, m)).astype(np.float32)
    return codes(n, (1, n, c), window), codes(m + 1, (1, m, c), window), g


@cache
def expected(shape: tuple[int, int, int, int], reach: int) -> tuple[Float, Float]:
    q, k, g = case(shape)
    return by_hand(g, slopes(q, k, reach))


@cache
def eager_error(shape: tuple[int, int, int, int]) -> tuple[float, float]:
    q, k, g = case(shape)
    q_real, k_real = (torch.tensor(x.astype(np.float32), requires_grad=True) for x in (q, k))
    made = torch.autograd.grad(eager.l1_distance(q_real, k_real), (q_real, k_real), torch.tensor(g))
    errors = [float(np.abs(x.numpy() - true).max()) for x, true in zip(made, expected(shape, 255), strict=True)]
    return errors[0], errors[1]


@pytest.mark.parametrize("shape", [s for s in SHAPES if s[0] * s[1] * s[2] < 8_000_000], ids=str)
def test_gradient_is_float64s_and_no_worse_than_eager(isa: str, shape: tuple[int, int, int, int]) -> None:
    q, k, g = case(shape)
    true_q, true_k = expected(shape, 255)
    for dtype in (np.uint8, np.float32):
        grad_q, grad_k = native.l1_distance_backward(g, q.astype(dtype), k.astype(dtype))
        assert within_bound(grad_q, true_q, np.abs(g).max(-1)[..., None], g.shape[-1])
        assert within_bound(grad_k, true_k, np.abs(g).max(-2)[..., None], g.shape[-2])
        for made, true, eager_is in zip((grad_q, grad_k), (true_q, true_k), eager_error(shape), strict=True):
            assert np.abs(made - true).max() <= max(eager_is, HALF_ULP * np.abs(true).max())


@pytest.mark.parametrize("shape", SHAPES[:35:3], ids=str)
def test_hamming_gradient_is_the_stated_surrogate(isa: str, shape: tuple[int, int, int, int]) -> None:
    q, k, g = case(shape)
    made = native.hamming_distance_backward(g, q, k)
    for grad, true, axis in zip(made, expected(shape, 1), (-1, -2), strict=True):
        assert within_bound(grad, true, np.abs(g).max(axis)[..., None], g.shape[axis])


def test_peaked_rows_keep_their_small_entries(isa: str) -> None:
    # One entry a million times the others: what a sharp attention row sends back.
    g = np.full((1, 40, 300), 1e-6, np.float32)
    g[..., 7] = 1.0
    q, k = codes(0, (1, 40, 32), 15), codes(1, (1, 300, 32), 15)
    true_q, true_k = by_hand(g, slopes(q, k, 255))
    grad_q, grad_k = native.l1_distance_backward(g, q, k)
    assert within_bound(grad_q, true_q, np.abs(g).max(-1)[..., None], 300)
    assert within_bound(grad_k, true_k, np.abs(g).max(-2)[..., None], 40)


def test_ties_have_no_slope(isa: str) -> None:
    q = codes(0, (1, 1, 65), 15).repeat(20, axis=1)
    grad_q, grad_k = native.l1_distance_backward(np.ones((1, 20, 20), np.float32), q, q)
    assert not grad_q.any()
    assert not grad_k.any()


def test_extreme_digits_do_not_overflow(isa: str) -> None:
    # Every entry at the top of the fixed-point range, every slope the same: the largest sums there are.
    for sign in (1, -1):
        g = np.full((1, 2, 9000), sign * np.nextafter(np.float32(2), np.float32(0)), np.float32)
        q, k = np.full((1, 2, 16), 200, np.uint8), np.zeros((1, 9000, 16), np.uint8)
        grad_q, _ = native.l1_distance_backward(g, q, k)
        assert np.allclose(grad_q, g.sum(-1, dtype=np.float64)[..., None], rtol=2.0**-22, atol=0)


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e30, 1e37])
def test_tiny_and_huge_gradients_keep_their_bits(isa: str, scale: float) -> None:
    q, k = codes(0, (1, 5, 33), 15), codes(1, (1, 7, 33), 15)
    g = (np.random.default_rng(0).uniform(-1, 1, (1, 5, 7)) * scale).astype(np.float32)
    true, _ = by_hand(g, slopes(q, k, 255))
    made, _ = native.l1_distance_backward(g, q, k)
    # Below 2**-149 a float32 holds nothing.
    assert (np.abs(made - true) <= 2 * HALF_ULP * np.abs(g).max() * 7 + 2.0**-149).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_is_passed_on(isa: str, bad: float) -> None:
    q, k = codes(0, (1, 9, 40), 15), codes(1, (1, 11, 40), 15)
    g = np.ones((1, 9, 11), np.float32)
    g[0, 4, 6] = bad
    grad_q, grad_k = native.l1_distance_backward(g, q, k)
    differs = q[0, 4] != k[0, 6]
    assert not np.isfinite(grad_q[0, 4, differs]).any()
    assert not np.isfinite(grad_k[0, 6, differs]).any()
    assert np.isfinite(np.delete(grad_q, 4, axis=1)).all()
    assert np.isfinite(np.delete(grad_k, 6, axis=1)).all()


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_no_bit(isa: str, threads: int) -> None:
    q, k = codes(0, (1, 150, 64), 15), codes(1, (1, 170, 64), 15)
    g = np.random.default_rng(0).standard_normal((1, 150, 170)).astype(np.float32)
    one, many = native.l1_distance_backward(g, q, k), native.l1_distance_backward(g, q, k, threads=threads)
    assert all(np.array_equal(a, b) for a, b in zip(one, many, strict=True))


def test_a_gradient_of_a_wrong_shape_is_refused(isa: str) -> None:
    q, k = codes(0, (5, 8), 15), codes(1, (7, 8), 15)
    with pytest.raises(LapisError, match="shape"):
        native.l1_distance_backward(np.zeros((7, 5), np.float32), q, k)
