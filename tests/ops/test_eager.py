"""The torch twins against the numpy reference, and their gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.synthetic import tables_of
from lapis.codes import pow2_exponent
from lapis.config import RowScale
from lapis.errors import LapisError
from lapis.ops.attention import eager as attention_eager
from lapis.ops.attention import reference as attention_reference
from lapis.ops.distance.eager import hamming_distance, l1_distance, squared_distance
from lapis.ops.distance.reference import hamming_distance as hamming_reference
from lapis.ops.distance.reference import l1_distance as l1_reference
from lapis.ops.distance.reference import squared_distance as squared_reference
from lapis.ops.lsq.eager import lsq_codes, lsq_value
from lapis.ops.lsq.reference import lsq_codes as codes_reference
from lapis.ops.lsq.reference import lsq_value as value_reference
from lapis.ops.row_scale import eager as rows_eager
from lapis.ops.row_scale import reference as rows_reference
from lapis.spikes import encode

# One over each tile, one under, primes and ones: (batch, heads, queries, keys, channels, window).
SHAPES = [
    (1, 1, 1, 1, 1, 1),
    (2, 3, 5, 7, 31, 15),
    (1, 2, 17, 16, 32, 20),
    (2, 1, 37, 37, 64, 15),
    (1, 1, 2, 3, 80, 63),
]


def _codes(shape: tuple[int, ...], window: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, window + 1, shape, generator=generator).to(dtype)


def _pair(case: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    b, h, n, m, c, window = case
    return _codes((b, h, n, c), window, 1, dtype), _codes((b, h, m, c), window, 2, dtype)


@pytest.mark.parametrize("case", SHAPES)
def test_distances_equal_the_reference_exactly(case: tuple[int, ...]) -> None:
    q, k = _pair(case)
    for mine, theirs in (
        (l1_distance(q, k), l1_reference),
        (squared_distance(q, k), squared_reference),
        (hamming_distance(q, k, case[-1] + 1), hamming_reference),
    ):
        assert (mine.numpy() == theirs(q.long().numpy(), k.long().numpy())).all()


@pytest.mark.parametrize("extreme", [0, 15])
def test_all_silent_and_all_full_tokens_have_no_distance(extreme: int) -> None:
    z = torch.full((1, 1, 9, 33), float(extreme))
    assert not l1_distance(z, z).any()
    assert not hamming_distance(z, z, 16).any()


@pytest.mark.parametrize("case", SHAPES)
def test_the_l1_gradient_is_the_sign_of_the_difference(case: tuple[int, ...]) -> None:
    q, k = (z.requires_grad_() for z in _pair(case, torch.float64))
    grad = torch.randn(l1_distance(q, k).shape, dtype=torch.float64)
    l1_distance(q, k).backward(grad)
    sign = torch.sign(q[..., :, None, :] - k[..., None, :, :]).detach()
    torch.testing.assert_close(q.grad, (grad[..., None] * sign).sum(-2))
    torch.testing.assert_close(k.grad, -(grad[..., None] * sign).sum(-3))


def test_the_l1_gradient_matches_finite_differences_between_codes() -> None:
    q = (torch.rand(2, 5, 6, dtype=torch.float64) * 15).requires_grad_()
    k = (torch.rand(2, 4, 6, dtype=torch.float64) * 15).requires_grad_()
    assert torch.autograd.gradcheck(l1_distance, (q, k))


def test_the_squared_gradient_matches_finite_differences() -> None:
    q = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(squared_distance, (q, k))


@pytest.mark.parametrize("case", SHAPES)
def test_the_hamming_gradient_follows_its_stated_rule(case: tuple[int, ...]) -> None:
    q, k = (z.requires_grad_() for z in _pair(case, torch.float64))
    distance = hamming_distance(q, k, case[-1] + 1)
    grad = torch.randn(distance.shape, dtype=torch.float64)
    distance.backward(grad)
    difference = (q[..., :, None, :] - k[..., None, :, :]).detach()
    slope = torch.sign(difference) * (difference.abs() <= 1)
    torch.testing.assert_close(q.grad, (grad[..., None] * slope).sum(-2))
    torch.testing.assert_close(k.grad, -(grad[..., None] * slope).sum(-3))


def test_affinities_agree_with_the_reference() -> None:
    d, tau = torch.randint(0, 400, (2, 3, 5, 7)), torch.tensor([3.0, 20.0, 90.0], dtype=torch.float64)
    expected = rows_reference.affinity(d.numpy(), tau.numpy())
    np.testing.assert_allclose(rows_eager.affinity(d, tau).numpy(), expected, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_scales_agree_with_the_reference(dtype: torch.dtype) -> None:
    d = torch.randint(0, 3000, (2, 3, 9, 41)).to(dtype)
    log_a = rows_eager.log_affinity(d, torch.tensor([2.0, 16.0, 64.0], dtype=dtype))
    # Judged at the same log affinities: rounding those is the caller's affair.
    exact, shifted = rows_reference.exact_rows(log_a.numpy()), rows_reference.pow2_rows(log_a.numpy())
    tolerance = 40 * torch.finfo(dtype).eps
    np.testing.assert_allclose(rows_eager.exact_rows(log_a).numpy(), exact, rtol=0, atol=tolerance)
    np.testing.assert_allclose(rows_eager.pow2_rows(log_a).numpy(), shifted, rtol=0, atol=tolerance)


def test_the_row_exponent_equals_the_reference() -> None:
    log_a = -torch.rand(50, 40, 37, dtype=torch.float64) * 5000
    assert (rows_eager.row_exponent(log_a).numpy() == rows_reference.row_exponent(log_a.numpy())).all()


def test_float_rows_that_would_underflow_stay_correct() -> None:
    log_a = torch.tensor([[-90_000.0, -90_001.0, -90_005.0]])
    for mine, theirs in (
        (rows_eager.exact_rows, rows_reference.exact_rows),
        (rows_eager.pow2_rows, rows_reference.pow2_rows),
    ):
        np.testing.assert_allclose(mine(log_a).numpy(), theirs(log_a.numpy()), rtol=1e-6)


@pytest.mark.parametrize("bits", [None, 15])
def test_rows_scaled_by_a_shift_train_with_the_gradient_of_exact_rows_times_their_mass(bits: int | None) -> None:
    log_a = (-torch.rand(3, 7, dtype=torch.float64) * 4).requires_grad_()
    grad = torch.randn(3, 7, dtype=torch.float64)
    rows = rows_eager.pow2_rows(log_a) if bits is None else rows_eager.narrow_rows(log_a, bits)
    (mine,) = torch.autograd.grad(rows, log_a, grad)
    (exact,) = torch.autograd.grad(rows_eager.exact_rows(log_a), log_a, grad)
    torch.testing.assert_close(
        mine, exact * rows.detach().sum(dim=-1, keepdim=True), rtol=0, atol=1e-12 if bits is None else 1e-3
    )
    # A step that enlarges all affinities of a row changes nothing that a shift keeps.
    assert (mine.sum(dim=-1).abs() < 1e-9).all()


@pytest.mark.parametrize("bits", [15, 8, 4, 1])
def test_narrow_rows_are_the_deployed_affinities_scaled(bits: int) -> None:
    tau = [2.3, 16.7, 64.1]
    d = torch.randint(0, 900, (2, 3, 9, 41), generator=torch.Generator().manual_seed(bits))
    tables = tables_of(tau, 900, bits)
    head, distance = np.arange(3)[:, None, None], d.numpy()
    row = tables.row_exponent[head, distance.min(axis=-1, keepdims=True)]
    deployed = tables.table[head, row, distance].astype(np.float64)
    expected = np.ldexp(deployed, -pow2_exponent(deployed.sum(axis=-1, keepdims=True)))
    log_a = rows_eager.log_affinity(d.double(), torch.tensor(tau, dtype=torch.float64))
    assert (rows_eager.narrow_rows(log_a, bits).numpy() == expected).all()


def test_narrow_powers_of_two_stay_what_they_are_though_float32_has_no_exact_logarithm_of_them() -> None:
    halvings = torch.arange(200.0)[:, None] + torch.arange(6.0)
    rows = rows_eager.narrow_rows(-math.log(2.0) * halvings, 6)
    # 32, 16, 8, 4, 2, 1: the mass 63 is nearest to 2**6.
    assert (rows == 2.0 ** -torch.arange(1.0, 7.0)).all()


@pytest.mark.parametrize("row_scale", ["exact", "pow2"])
@pytest.mark.parametrize("delayed", [False, True])
def test_attention_agrees_with_the_reference(row_scale: RowScale, delayed: bool) -> None:
    b, h, n, c, window = 2, 3, 11, 16, 15
    q, k, v = (_codes((b, h, n, c), window, seed, torch.float64) for seed in (1, 2, 3))
    tau = torch.tensor([4.0, 15.0, 60.0], dtype=torch.float64)
    delay = torch.randint(0, 20, (h, n, n)) if delayed else None
    q_codes, k_codes, v_codes = (z.long().numpy() for z in (q, k, v))
    theirs = None if delay is None else delay.numpy()
    expected = attention_reference.attention(q_codes, k_codes, v_codes, tau.numpy(), row_scale, theirs)
    mine = attention_eager.attention(q, k, v, tau, row_scale, delay)
    np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-10)
    q_spikes, k_spikes, v_spikes = (encode(z, window) for z in (q_codes, k_codes, v_codes))
    q_train, k_train, v_train = (torch.from_numpy(spikes) for spikes in (q_spikes, k_spikes, v_spikes))
    steps = attention_eager.attention_spikes(q_train, k_train, v_train, tau, row_scale, delay)
    by_step = attention_reference.attention_spikes(q_spikes, k_spikes, v_spikes, tau.numpy(), row_scale, theirs)
    np.testing.assert_allclose(steps.numpy(), by_step, rtol=1e-10, atol=1e-15)


LSQ_CASES = [
    (0, 15, None, 1), (0, 1, None, 1), (0, 20, -0.7, 1), (-15, 15, None, 1), (-31, 31, None, 1),
    (0, 15, None, 4), (0, 20, -0.7, 20), (-15, 15, None, 2), (-15, 15, None, 15),
]  # fmt: skip


@pytest.mark.parametrize(("low", "high", "shift", "min_code"), LSQ_CASES)
def test_lsq_codes_and_values_equal_the_reference(low: int, high: int, shift: float | None, min_code: int) -> None:
    # A step that is a power of two and an x on a grid of quarter steps: ties included, and nothing is rounded.
    x = torch.arange(-200, 200) * 0.0625
    step = torch.tensor(0.25)
    offset = None if shift is None else torch.tensor(-0.75)
    theirs = None if offset is None else float(offset)
    codes = lsq_codes(x, step, offset, low, high, 1.0, min_code)
    assert (codes.numpy() == codes_reference(x.numpy(), 0.25, theirs, low, high, min_code)).all()
    value = lsq_value(x, step, offset, low, high, 1.0, min_code)
    assert (value.numpy() == value_reference(x.numpy(), 0.25, theirs, low, high, min_code)).all()
    assert set(codes.abs().unique().tolist()) <= {0, *range(min_code, high + 1)}


@pytest.mark.parametrize(("low", "high", "shift", "min_code"), LSQ_CASES)
def test_lsq_gradients_follow_the_published_rule(low: int, high: int, shift: float | None, min_code: int) -> None:
    x = (torch.randn(64, 8, dtype=torch.float64) * 5).requires_grad_()
    step = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    offset = None if shift is None else torch.tensor(shift, dtype=torch.float64, requires_grad=True)
    grad, scale = torch.randn(64, 8, dtype=torch.float64), 0.37
    u = ((x - (offset if offset is not None else 0)) / step).detach()
    inside = ((u > low) & (u < high)).double()
    z = (u + 0.5).floor().clamp(low, high)
    z = z * (z.abs() >= min_code)

    lsq_value(x, step, offset, low, high, scale, min_code).backward(grad)
    torch.testing.assert_close(x.grad, grad * inside)
    torch.testing.assert_close(step.grad, scale * (grad * (z - u * inside)).sum())
    if offset is not None:
        torch.testing.assert_close(offset.grad, scale * (grad * (1 - inside)).sum())

    for leaf in (x, step, offset):
        if leaf is not None:
            leaf.grad = None
    lsq_codes(x, step, offset, low, high, scale, min_code).backward(grad)
    torch.testing.assert_close(x.grad, grad * inside / step.detach())
    torch.testing.assert_close(step.grad, scale * (-grad * inside * u / step.detach()).sum())
    if offset is not None:
        torch.testing.assert_close(offset.grad, scale * (-grad * inside / step.detach()).sum())


def test_lsq_steps_of_weights_are_per_channel() -> None:
    w = torch.randn(5, 40, requires_grad=True)
    step = (torch.rand(5, 1) * 0.1 + 0.01).requires_grad_()
    grad = torch.randn(5, 40)
    lsq_value(w, step, None, -31, 31, 1.0).backward(grad)
    assert step.grad is not None
    for row in range(5):
        one = step[row].detach().clone().requires_grad_()
        lsq_value(w[row : row + 1].detach(), one, None, -31, 31, 1.0).backward(grad[row : row + 1])
        torch.testing.assert_close(step.grad[row], one.grad)


@pytest.mark.parametrize(
    ("x", "step", "low", "words"), [([np.nan], 1.0, 0, "NaN"), ([1.0], 0.0, 0, "step"), ([1.0], 1.0, 9, "empty")]
)
def test_lsq_refuses_what_has_no_code(x: list[float], step: float, low: int, words: str) -> None:
    with pytest.raises(LapisError, match=words):
        codes_reference(x, step, None, low, 9)


@pytest.mark.parametrize("min_code", [0, 10])
def test_a_least_code_lies_within_the_window(min_code: int) -> None:
    with pytest.raises(LapisError, match=r"outside 1\.\.9"):
        codes_reference([1.0], 1.0, None, 0, 9, min_code)


def test_shapes_that_do_not_fit_are_refused_in_torch_too() -> None:
    for call in (l1_distance, squared_distance, lambda q, k: hamming_distance(q, k, 16)):
        with pytest.raises(LapisError, match="agree in every axis"):
            call(torch.zeros(2, 3), torch.zeros(2, 4))
