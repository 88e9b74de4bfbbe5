"""The native quantizer: bit for bit the eager one; its gradient sums are those of float64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from benchmarks import native_ops as native
from lapis.errors import LapisError
from lapis.ops.lsq import eager

Float = npt.NDArray[np.float32]
SIZES = (1, 7, 8, 9, 1000, 16384, 16385, 70001)
RANGES = ((0, 15, 1), (0, 1, 1), (-20, 20, 1), (0, 15, 4), (-20, 20, 3), (-20, 20, 20))
OFFSETS = (None, -0.37)
FORWARD = {"value": (native.lsq_value, eager.lsq_value), "codes": (native.lsq_codes, eager.lsq_codes)}
BACKWARD = {"value": native.lsq_value_backward, "codes": native.lsq_codes_backward}


def numbers(size: int, seed: int = 0) -> Float:
    x = np.random.default_rng(seed).standard_normal(size).astype(np.float32) * 3
    # Ties and range ends, where a threshold decides.
    ends = np.array([0.0, -0.0, 0.0865, 0.173 * 15, 0.173 * 14.5, 1e30, -1e30], np.float32)
    x[: min(size, ends.size)] = ends[:size]
    return x


def torch_twin(
    kind: str,
    x: Float,
    step: npt.ArrayLike,
    offset: float | None,
    low: int,
    high: int,
    dtype: torch.dtype = torch.float32,
    min_code: int = 1,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    leaves = [torch.tensor(np.asarray(v), dtype=dtype, requires_grad=True) for v in (x, step)]
    if offset is not None:
        leaves.append(torch.tensor(np.float32(offset), dtype=dtype, requires_grad=True))
    shift = leaves[2] if offset is not None else None
    return FORWARD[kind][1](leaves[0], leaves[1], shift, low, high, 1.0, min_code), leaves


@pytest.mark.parametrize("kind", FORWARD)
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize(("low", "high", "min_code"), RANGES)
@pytest.mark.parametrize("size", SIZES)
def test_forward_and_input_gradient_equal_eager_in_every_bit(
    isa: str, kind: str, offset: float | None, low: int, high: int, min_code: int, size: int
) -> None:
    x, g, step = numbers(size), numbers(size, 1), np.float32(0.173)
    y, leaves = torch_twin(kind, x, step, offset, low, high, min_code=min_code)
    assert np.array_equal(FORWARD[kind][0](x, step, offset, low, high, min_code=min_code), y.detach().numpy())
    made = BACKWARD[kind](g, x, step, offset, low, high, min_code=min_code)
    (grad_x,) = torch.autograd.grad(y, leaves[:1], torch.tensor(g))
    assert np.array_equal(made.x, grad_x.numpy())


@pytest.mark.parametrize("kind", FORWARD)
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("min_code", [1, 3])
def test_step_and_offset_gradients_err_no_more_than_eager(
    isa: str, kind: str, offset: float | None, min_code: int
) -> None:
    x, step = np.random.default_rng(0).standard_normal(50_000).astype(np.float32), np.float32(0.125)
    g = np.random.default_rng(1).standard_normal(50_000).astype(np.float32)
    made = BACKWARD[kind](g, x, step, offset, 0, 15, min_code=min_code)
    errors: dict[torch.dtype, list[float]] = {}
    truth: list[float] = []
    for dtype in (torch.float64, torch.float32):
        y, leaves = torch_twin(kind, x, step, offset, 0, 15, dtype, min_code)
        grads = [float(v) for v in torch.autograd.grad(y, leaves[1:], torch.tensor(g, dtype=dtype))]
        truth = truth or grads
        errors[dtype] = [abs(a - b) for a, b in zip(grads, truth, strict=True)]
    mine = [float(made.step), made.offset][: len(truth)]
    # u itself is a float32 in both; a relative 1e-6 covers its rounding in 50,000 terms.
    for value, true, eager_error in zip(mine, truth, errors[torch.float32], strict=True):
        assert abs(value - true) <= max(eager_error, 1e-6 * abs(true) + 1e-4)


def test_rows_have_their_own_steps(isa: str) -> None:
    rng = np.random.default_rng(0)
    x, g = (rng.standard_normal((37, 101)).astype(np.float32) for _ in range(2))
    step = rng.uniform(0.01, 0.1, (37, 1)).astype(np.float32)
    y, leaves = torch_twin("value", x, step, None, -31, 31)
    assert np.array_equal(native.lsq_value(x, step, None, -31, 31), y.detach().numpy())
    made = native.lsq_value_backward(g, x, step, None, -31, 31)
    grad_x, grad_step = torch.autograd.grad(y, leaves, torch.tensor(g))
    assert np.array_equal(made.x, grad_x.numpy())
    assert made.step.shape == (37, 1)
    assert np.allclose(made.step, grad_step.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", FORWARD)
def test_threads_change_no_bit_of_the_sums(isa: str, kind: str) -> None:
    x, g = numbers(300_001), numbers(300_001, 1)
    one, many = (BACKWARD[kind](g, x, np.float32(0.1), 0.3, 0, 15, threads=t) for t in (1, 3))
    assert np.array_equal(one.x, many.x)
    assert (one.step, one.offset) == (many.step, many.offset)


def test_a_nan_is_passed_on_as_torch_does(isa: str) -> None:
    x = np.array([np.nan, 1.0, np.inf, -np.inf] * 5, np.float32)
    y, _ = torch_twin("value", x, np.float32(0.5), None, 0, 15)
    assert np.array_equal(native.lsq_value(x, np.float32(0.5), None, 0, 15), y.detach().numpy(), equal_nan=True)


def test_steps_that_do_not_fit_are_refused(isa: str) -> None:
    with pytest.raises(LapisError, match="steps of shape"):
        native.lsq_value(np.zeros((4, 5), np.float32), np.ones((5, 1), np.float32), None, 0, 15)
    with pytest.raises(LapisError, match="gradient of shape"):
        native.lsq_value_backward(np.zeros(3, np.float32), np.zeros(4, np.float32), np.float32(1), None, 0, 15)
