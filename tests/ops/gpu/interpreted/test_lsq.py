"""The quantizer by the GPU kernels: codes, values and the gradient of x are the eager ones in every bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lapis.ops.lsq import eager, torch_native


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


RULES: list[tuple[int, int, float | None, int]] = [
    (0, 15, None, 1),
    (-20, 20, None, 4),
    (0, 15, -0.2, 1),
    (0, 1, 0.1, 1),
]


@pytest.mark.parametrize(("low", "high", "offset", "min_code"), RULES)
@pytest.mark.parametrize("name", ["lsq_value", "lsq_codes"])
def test_quantizers_equal_eager(name: str, low: int, high: int, offset: float | None, min_code: int) -> None:
    x = leaf(13, 7, 31).transpose(0, 1)
    grad = leaf(7, 13, 31, seed=1).detach()
    results = []
    for module in (torch_native, eager):
        leaves = [x.detach().clone(), torch.tensor(0.17), *([] if offset is None else [torch.tensor(offset)])]
        leaves = [tensor.requires_grad_() for tensor in leaves]
        made = getattr(module, name)(*leaves[:2], leaves[2] if offset is not None else None, low, high, 0.01, min_code)
        results.append((made, torch.autograd.grad(made, leaves, grad)))
    (mine, my_grads), (theirs, their_grads) = results
    assert mine.equal(theirs)
    assert my_grads[0].equal(their_grads[0])
    for a, b in zip(my_grads[1:], their_grads[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_boundaries_get_the_code_of_eager() -> None:
    # Halves of a step that float32 cannot hold: an approximate division would move some across.
    step = torch.tensor(0.1)
    x = (torch.arange(-40, 40) * 0.5) * step
    assert torch_native.lsq_codes(x, step, None, -15, 15).equal(eager.lsq_codes(x, step, None, -15, 15))


def test_weights_have_a_step_for_each_row() -> None:
    results = []
    for module in (torch_native, eager):
        leaves = [leaf(5, 1030), torch.linspace(0.05, 0.2, 5).view(5, 1).requires_grad_()]
        made = module.lsq_value(*leaves, None, -31, 31, 0.1)
        results.append((made, *torch.autograd.grad(made, leaves, leaf(5, 1030, seed=1).detach())))
    assert results[0][0].equal(results[1][0])
    assert results[0][1].equal(results[1][1])
    torch.testing.assert_close(results[0][2], results[1][2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lsq_value", "lsq_codes"])
def test_not_a_number_stays_one(name: str) -> None:
    x = torch.tensor([0.3, float("nan"), -2.0])
    made = getattr(torch_native, name)(x, torch.tensor(0.1), None, 0, 15)
    assert made.isnan().tolist() == [False, True, False]


def test_nothing_is_quantized_to_nothing() -> None:
    x = torch.zeros(0, 4, requires_grad=True)
    made = torch_native.lsq_value(x, torch.tensor(0.1), None, 0, 15)
    made.sum().backward()
    assert made.shape == (0, 4)
    assert x.grad is not None


@pytest.mark.parametrize("name", ["lsq_value", "lsq_codes"])
def test_torch_finds_the_operator_sound(name: str) -> None:
    arguments: tuple[Any, ...] = (leaf(5, 6), torch.tensor(0.3).requires_grad_(), None, 0, 15, 0.5, 1)
    torch.library.opcheck(getattr(torch.ops.lapis, name).default, arguments)
