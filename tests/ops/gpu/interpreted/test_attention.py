"""Attention by the GPU kernels against float64: values and every gradient, on awkward shapes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from lapis.ops.attention import eager, torch_native
from lapis.ops.gpu import choice
from tests.ops.gpu.interpreted import assembly

# Of the largest entry: float32 sums of up to 577 terms, and of as many signs.
TOLERANCE = 3e-5


class Case(NamedTuple):
    """Sizes, the range of the codes, and which way distances are found while the case runs."""

    sizes: tuple[int, int, int, int, int]  # B, H, N, M, C
    codes: tuple[int, int]
    row_scale: Any
    delayed: bool
    choice: str


CASES = [
    Case((1, 1, 1, 1, 1), (0, 1), "exact", False, "words"),
    Case((2, 3, 2, 5, 31), (0, 15), "pow2", True, "words"),
    Case((1, 2, 17, 37, 80), (-20, 20), "exact", True, "words"),
    Case((2, 1, 37, 17, 64), (-15, 15), "pow2", False, "words"),
    Case((1, 1, 2, 577, 31), (0, 20), "exact", False, "words"),
    Case((1, 1, 577, 2, 64), (0, 15), "pow2", False, "words"),
    Case((1, 1, 197, 31, 80), (-15, 15), "exact", True, "words"),
    Case((1, 1, 1, 197, 1), (-1, 1), "pow2", False, "words"),
    Case((1, 2, 2, 1, 1), (0, 20), "exact", True, "thermometer"),
    Case((1, 1, 33, 65, 64), (-63, 63), "pow2", False, "thermometer"),
    Case((1, 2, 17, 31, 80), (-1, 1), "exact", False, "thermometer"),
    Case((1, 1, 37, 197, 64), (0, 15), "pow2", True, "thermometer"),
]


def draw(case: Case, seed: int = 0) -> tuple[list[Any], Tensor]:
    """q, k, v, tau and perhaps delay as leaves, and the gradient of the result."""
    batch, heads, n, m, channels = case.sizes
    low, high = case.codes
    source = torch.Generator().manual_seed(seed)
    q, k = (torch.randint(low, high + 1, (batch, heads, x, channels), generator=source).float() for x in (n, m))
    leaves = [q, k, torch.randn(batch, heads, m, channels, generator=source)]
    leaves.append(torch.rand(heads, generator=source) * channels * (high - low) / 16 + 1)
    if case.delayed:
        leaves.append(torch.randint(0, 30, (heads, n, m), generator=source).float())
    return [leaf.requires_grad_() for leaf in leaves], torch.randn(q.shape, generator=source)


def close(found: Tensor, wanted: Tensor) -> None:
    error = (found.double() - wanted).abs().max() / wanted.abs().max().clamp_min(1e-9)
    assert error < TOLERANCE, float(error)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_those_of_float64(case: Case) -> None:
    leaves, grad = draw(case)
    exact: list[Any] = [leaf.detach().double().requires_grad_() for leaf in leaves]
    with choice.force(case.choice):
        made = torch_native.attention(*leaves[:4], case.row_scale, *(leaves[4:] or [None]), codes=case.codes)
    wanted = eager.attention(*exact[:4], case.row_scale, *(exact[4:] or [None]))
    close(made, wanted.detach())
    made.backward(grad)
    wanted.backward(grad.double())
    for mine, reference in zip(leaves, exact, strict=True):
        assert mine.grad is not None
        assert reference.grad is not None
        close(mine.grad, reference.grad)


@pytest.mark.parametrize("row_scale", ["exact", "pow2"])
def test_silent_codes_mix_all_values_alike(row_scale: Any) -> None:
    q, v = torch.zeros(1, 1, 3, 5), torch.randn(1, 1, 7, 5, generator=torch.Generator().manual_seed(0))
    k = torch.zeros(1, 1, 7, 5)
    mixed = torch_native.attention(q, k, v, torch.tensor([2.0]), row_scale, codes=(0, 15))
    # Seven keys have the mass 7, whose nearest power of two is 8.
    close(mixed, v.double().sum(2, keepdim=True).expand(-1, -1, 3, -1) / (7 if row_scale == "exact" else 8))


@pytest.mark.parametrize("way", ["words", "thermometer"])
@pytest.mark.parametrize("row_scale", ["exact", "pow2"])
def test_silent_codes_have_no_direction_to_learn_and_values_share_what_comes(row_scale: Any, way: str) -> None:
    leaves, grad = draw(Case((1, 2, 17, 17, 31), (0, 15), row_scale, False, way))
    q, k, v, tau = (leaf.detach() * (0 if index < 2 else 1) for index, leaf in enumerate(leaves))
    leaves = [leaf.requires_grad_() for leaf in (q, k, v, tau)]
    with choice.force(way):
        torch_native.attention(*leaves, row_scale, codes=(0, 15)).backward(grad)
    # Seventeen keys have the mass 17, whose nearest power of two is 16.
    shared = grad.sum(2, keepdim=True).expand_as(v) / (17 if row_scale == "exact" else 16)
    assert leaves[0].grad is not None
    assert not leaves[0].grad.any()
    assert not leaves[1].grad.any()
    close(leaves[2].grad, shared.double())
    assert float(leaves[3].grad.abs().max()) == 0  # all distances are 0


def test_heads_too_wide_for_a_row_of_registers_are_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    from lapis.ops.attention import triton

    def refuse(inputs: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(triton, "attention", refuse)
    leaves, grad = draw(Case((1, 1, 5, 7, torch_native.MOST_CHANNELS + 1), (0, 15), "exact", True, "words"))
    exact: list[Any] = [leaf.detach().double().requires_grad_() for leaf in leaves]
    made, wanted = (module.attention(*x[:4], "exact", x[4]) for module, x in ((torch_native, leaves), (eager, exact)))
    close(made, wanted.detach())
    made.backward(grad)
    wanted.backward(grad.double())
    for mine, reference in zip(leaves, exact, strict=True):
        close(mine.grad, reference.grad)


@pytest.mark.parametrize("row_scale", ["exact", "pow2"])
def test_rows_far_from_every_key_do_not_vanish(row_scale: Any) -> None:
    q, k = torch.zeros(1, 1, 3, 64), torch.full((1, 1, 5, 64), 63.0)
    v, tau = torch.randn(1, 1, 5, 64, generator=torch.Generator().manual_seed(0)), torch.tensor([0.7])
    wanted = eager.attention(q.double(), k.double(), v.double(), tau.double(), row_scale)
    close(torch_native.attention(q, k, v, tau, row_scale, codes=(0, 63)), wanted)


def test_large_batches_are_differentiated_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from lapis.ops.attention import triton

    results = []
    for most in (triton.MOST_SCRATCH, 1):
        monkeypatch.setattr(triton, "MOST_SCRATCH", most)
        leaves, grad = draw(Case((3, 1, 5, 7, 9), (0, 15), "exact", True, ""))
        torch_native.attention(*leaves[:4], "exact", leaves[4]).backward(grad)
        results.append([leaf.grad for leaf in leaves])
    for whole, parts in zip(*results, strict=True):
        torch.testing.assert_close(whole, parts)


@pytest.mark.parametrize("shape", [(7, 9), (2, 7, 9), (1, 2, 2, 7, 9)])
def test_any_leading_axes_are_taken(shape: tuple[int, ...]) -> None:
    source = torch.Generator().manual_seed(0)
    q, k, v = (torch.randint(0, 16, shape, generator=source).float() for _ in range(3))
    leaves: list[Any] = [x.requires_grad_() for x in (q, k, v, torch.tensor(5.0))]
    made = torch_native.attention(*leaves, "exact")
    wanted = eager.attention(*leaves, "exact")
    torch.testing.assert_close(made, wanted, rtol=TOLERANCE, atol=TOLERANCE)
    for mine, reference in zip(*(torch.autograd.grad(y.square().sum(), leaves) for y in (made, wanted)), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-3)


def test_torch_finds_the_operator_sound() -> None:
    leaves, _ = draw(Case((1, 2, 2, 3, 5), (0, 15), "pow2", True, ""))
    torch.library.opcheck(torch.ops.lapis.attention.default, (*leaves[:4], "pow2", leaves[4], 0, 15))


@pytest.mark.parametrize("words", ["vabsdiff4", "min_dp4a", "v_sad_u8"])
def test_what_a_card_runs_equals_the_plain_form_in_every_bit(words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from lapis.ops.attention import triton

    cards = [choice.card_of_device(torch.device("cpu")), assembly.card_with(words)]
    results = []
    for card in cards:
        monkeypatch.setattr(triton, "card_of_device", lambda device, card=card: card)
        leaves, grad = draw(Case((1, 1, 5, 7, 9), (-20, 20), "pow2", True, ""))
        with assembly.emulated():
            made = torch_native.attention(*leaves[:4], "pow2", leaves[4])
            made.backward(grad)
        results.append([made.detach(), *(leaf.grad for leaf in leaves)])
    for plain, mine in zip(*results, strict=True):
        assert plain is not None
        assert mine is not None
        assert plain.equal(mine)
