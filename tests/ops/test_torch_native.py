"""The torch operators over the native library: what compilers, autograd and autocast see, and the fallbacks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lapis import native
from lapis.errors import LapisError
from lapis.ops import l1_distance
from lapis.ops.attention import eager as attention_eager
from lapis.ops.attention import torch_native as attention_native
from lapis.ops.distance import eager, torch_native
from lapis.ops.distance import eager as hamming_eager
from lapis.ops.distance import torch_native as hamming_native
from lapis.ops.lsq import eager as lsq_eager
from lapis.ops.lsq import torch_native as lsq_native

needs_library = pytest.mark.skipif(not native.available(), reason=f"no native kernels: {native.describe()}")


def codes(*shape: int, seed: int = 0, window: int = 15) -> Tensor:
    return torch.randint(0, window + 1, shape, generator=torch.Generator().manual_seed(seed)).float()


def leaf(x: Tensor) -> Tensor:
    return x.clone().requires_grad_()


QUERIES, KEYS, VALUES = codes(2, 3, 7, 17), codes(2, 3, 9, 17, seed=1), codes(2, 3, 9, 17, seed=2)
TAU = torch.tensor([5.0, 20.0, 60.0])
X = torch.randn(5, 6, generator=torch.Generator().manual_seed(3))
ROW_STEPS = torch.linspace(0.05, 0.2, 5).view(5, 1)
OPERATORS: list[tuple[str, tuple[Any, ...]]] = [
    ("l1_distance", (leaf(QUERIES), leaf(KEYS))),
    ("hamming_distance", (leaf(QUERIES), leaf(KEYS))),
    ("lsq_value", (leaf(X), leaf(torch.tensor(0.3)), leaf(torch.tensor(-0.2)), 0, 15, 0.5, 1)),
    ("lsq_value", (leaf(X), leaf(ROW_STEPS), None, -31, 31, 0.5, 1)),
    ("lsq_codes", (leaf(X), leaf(torch.tensor(0.3)), leaf(torch.tensor(-0.2)), 0, 15, 0.5, 1)),
    ("lsq_codes", (leaf(X), leaf(torch.tensor(0.3)), None, -3, 3, 0.5, 2)),
    ("attention", (QUERIES, KEYS, VALUES, TAU, "pow2", None)),
    ("attention", (leaf(QUERIES), leaf(KEYS), leaf(VALUES), leaf(TAU), "pow2", None)),
    ("attention", (leaf(QUERIES), leaf(KEYS), leaf(VALUES), leaf(TAU), "exact", torch.arange(9.0).expand(3, 7, 9))),
]


@needs_library
@pytest.mark.parametrize(("name", "arguments"), OPERATORS, ids=lambda value: value if isinstance(value, str) else "")
def test_torch_finds_the_operator_sound(name: str, arguments: tuple[Any, ...]) -> None:
    torch.library.opcheck(getattr(torch.ops.lapis, name).default, arguments)


@pytest.mark.parametrize("shape", [(7, 17), (3, 7, 17), (2, 3, 7, 17), (2, 2, 3, 7, 17)])
def test_distances_and_gradients_equal_eager_for_any_leading_axes(shape: tuple[int, ...]) -> None:
    q, k = leaf(codes(*shape)), leaf(codes(*shape[:-2], 11, 17, seed=1))
    pairs = [
        (torch_native.l1_distance(q, k), eager.l1_distance(q, k)),
        (hamming_native.hamming_distance(q, k, 16), hamming_eager.hamming_distance(q, k, 16)),
    ]
    for mine, theirs in pairs:
        assert mine.dtype == torch.float32
        assert mine.equal(theirs)
        g = torch.randn(mine.shape, generator=torch.Generator().manual_seed(5))
        made, wanted = (torch.autograd.grad(d, (q, k), g) for d in (mine, theirs))
        for a, b in zip(made, wanted, strict=True):
            torch.testing.assert_close(a, b)


def test_views_of_joined_heads_are_read_in_place() -> None:
    q, k = (leaf(codes(2, 13, 3, 32, seed=i)) for i in range(2))
    mine, theirs = (f(q.transpose(1, 2), k.transpose(1, 2)) for f in (torch_native.l1_distance, eager.l1_distance))
    assert mine.equal(theirs)
    g = torch.randn(mine.shape, generator=torch.Generator().manual_seed(5))
    for a, b in zip(*(torch.autograd.grad(d, (q, k), g) for d in (mine, theirs)), strict=True):
        torch.testing.assert_close(a, b)
    # An expanded gradient, as sum().backward() makes it.
    assert (
        torch.autograd.grad(torch_native.l1_distance(q.transpose(1, 2), k.transpose(1, 2)).sum(), q)[0].isfinite().all()
    )


def test_signed_codes_are_related_by_their_difference() -> None:
    q, k = codes(2, 3, 8, 16, window=30) - 15, codes(2, 3, 8, 16, seed=1, window=30) - 15
    assert torch_native.l1_distance(q, k).equal(eager.l1_distance(q, k))


@pytest.mark.parametrize("offset", [None, -0.2])
@pytest.mark.parametrize(("low", "high"), [(0, 15), (-20, 20)])
@pytest.mark.parametrize("name", ["lsq_value", "lsq_codes"])
def test_quantizers_equal_eager_in_every_bit(name: str, low: int, high: int, offset: float | None) -> None:
    x = torch.randn(64, 37, 48, generator=torch.Generator().manual_seed(0)).transpose(0, 1)
    g = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    results = []
    for module in (lsq_native, lsq_eager):
        leaves = [leaf(x), leaf(torch.tensor(0.17)), *([] if offset is None else [leaf(torch.tensor(offset))])]
        shift = leaves[2] if offset is not None else None
        y = getattr(module, name)(leaves[0], leaves[1], shift, low, high, 0.01)
        results.append((y, torch.autograd.grad(y, leaves, g)))
    (mine, my_grads), (theirs, their_grads) = results
    assert mine.equal(theirs)
    assert my_grads[0].equal(their_grads[0])
    for a, b in zip(my_grads[1:], their_grads[1:], strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_weights_have_a_step_a_row() -> None:
    results = []
    for module in (lsq_native, lsq_eager):
        leaves = [leaf(X), leaf(ROW_STEPS)]
        y = module.lsq_value(leaves[0], leaves[1], None, -31, 31, 0.1)
        results.append((y, torch.autograd.grad(y, leaves, torch.ones_like(X))))
    (mine, my_grads), (theirs, their_grads) = results
    assert mine.equal(theirs)
    torch.testing.assert_close(my_grads, their_grads)


@pytest.mark.parametrize("row_scale", ["exact", "pow2"])
@pytest.mark.parametrize("with_delay", [False, True])
def test_fused_attention_equals_the_composed_one(row_scale: Any, with_delay: bool) -> None:
    delay = torch.arange(9).expand(3, 7, 9) if with_delay else None
    made = attention_native.attention(QUERIES, KEYS, VALUES, TAU, row_scale, delay)
    torch.testing.assert_close(made, attention_eager.attention(QUERIES, KEYS, VALUES, TAU, row_scale, delay))


def test_attention_that_needs_a_gradient_has_one() -> None:
    grads = []
    for module in (attention_native, attention_eager):
        leaves = [leaf(QUERIES), leaf(KEYS), leaf(VALUES), leaf(TAU)]
        grads.append(torch.autograd.grad(module.attention(*leaves, "pow2").square().sum(), leaves))
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-4)


@needs_library
@pytest.mark.parametrize("row_scale", ["exact", "pow2"])
def test_the_operator_itself_has_the_gradients_of_the_composed_one(row_scale: Any) -> None:
    grads = []
    for fused in (True, False):
        leaves = [leaf(x) for x in (QUERIES, KEYS, VALUES, TAU, torch.arange(9.0).expand(3, 7, 9))]
        arguments = (*leaves[:4], row_scale, leaves[4])
        made = torch.ops.lapis.attention(*arguments)[0] if fused else attention_eager.attention(*arguments)
        grads.append(torch.autograd.grad(made.square().sum(), leaves))
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-3)


@needs_library
def test_compiled_and_exported_graphs_hold_the_operators() -> None:
    class Block(torch.nn.Module):
        def forward(self, x: Tensor, step: Tensor) -> Tensor:
            z = lsq_native.lsq_codes(x, step, None, 0, 15, 1.0)
            return torch_native.l1_distance(z, z).exp_()

    x, step = torch.rand(2, 3, 5, 8) * 4, torch.tensor(0.25)
    program = torch.export.export(Block(), (x, step))
    targets = {str(node.target) for node in program.graph.nodes}
    assert {"lapis.lsq_codes.default", "lapis.l1_distance.default"} <= targets
    assert program.module()(x, step).equal(Block()(x, step))
    compiled = torch.compile(Block(), backend="aot_eager", fullgraph=True)
    assert compiled(x, step).equal(Block()(x, step))
    leaves = (leaf(x), leaf(step))
    made, wanted = (torch.autograd.grad(f(*leaves).log().sum(), leaves) for f in (compiled, Block()))
    torch.testing.assert_close(made, wanted)


def test_autocast_leaves_distances_in_float32() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = leaf(QUERIES.bfloat16())
        made = torch_native.l1_distance(half, KEYS.bfloat16())
        assert made.dtype == torch.float32
        assert made.equal(eager.l1_distance(QUERIES, KEYS))
        (grad,) = torch.autograd.grad(made.sum(), half)
    assert grad.dtype == torch.bfloat16


def test_other_devices_and_precisions_take_the_eager_way() -> None:
    q, k = torch.empty(2, 5, 8, device="meta"), torch.empty(2, 7, 8, device="meta")
    assert torch_native.l1_distance(q, k).shape == (2, 5, 7)
    wide = QUERIES.double().requires_grad_()
    assert torch_native.l1_distance(wide, KEYS.double()).dtype == torch.float64
    # Real numbers are no codes; double precision goes by the eager version, which takes them.
    assert torch_native.l1_distance(wide + 0.5, KEYS.double()).isfinite().all()


def test_without_the_library_every_operator_answers_the_same() -> None:
    arguments = (QUERIES, KEYS, VALUES, TAU)
    made = attention_native.attention(*arguments), lsq_native.lsq_value(X, ROW_STEPS, None, -31, 31, 1.0)
    with native.force(native.NONE):
        plain = attention_native.attention(*arguments), lsq_native.lsq_value(X, ROW_STEPS, None, -31, 31, 1.0)
    torch.testing.assert_close(made, plain)


@needs_library
def test_values_that_are_no_codes_are_refused() -> None:
    with pytest.raises(LapisError, match="codes must be integers"):
        torch_native.l1_distance(QUERIES + 0.5, KEYS)


def test_the_public_operations_are_one_graph() -> None:
    compiled = torch.compile(lambda q, k: l1_distance(q, k), backend="eager", fullgraph=True)
    assert compiled(QUERIES, KEYS).equal(l1_distance(QUERIES, KEYS))
