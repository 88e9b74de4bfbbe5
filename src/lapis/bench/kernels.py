"""Time the kernels and torch on the same tasks: distance, gradient, attention, quantizer, training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lapis import native
from lapis.bench.machine import thread_count
from lapis.bench.runner import Measurement, Task, measure
from lapis.bench.sizes import KERNEL_SIZES, Size
from lapis.config import preset
from lapis.deploy.leak import tables_of
from lapis.errors import LapisError
from lapis.nn.model import LapisViT
from lapis.ops.attention import native as attention_native
from lapis.ops.attention import reference as attention_reference
from lapis.ops.integer_attention import native as integer_native
from lapis.ops.integer_attention import reference as integer_reference
from lapis.ops.l1_distance import eager, reference, torch_native
from lapis.ops.l1_distance import native as l1_native
from lapis.ops.lsq import eager as lsq_eager
from lapis.ops.lsq import torch_native as lsq_native

# The allowed error of fp32 results near one; the tests are much stricter.
TOLERANCE = 1e-4


def compare_kernels(
    sizes: Sequence[str], threads: Sequence[int], rounds: int, step: bool, report: Callable[[str], None]
) -> list[Measurement]:
    """Time every task at these sizes and numbers of threads; `step` adds a training step per number of threads."""
    rows: list[Measurement] = []
    for count in threads:
        with thread_budget(count):
            for position, name in enumerate(sizes):
                for task in tasks(KERNEL_SIZES[name], step and position == 0, count):
                    rows += measure(task, count, rounds)
                    report(f"timed {task.name}, {task.shape}, {thread_count(count)}")
    return rows


def tasks(size: Size, step: bool, threads: int) -> Iterator[Task]:
    """Every comparison at one size; `step` adds a training step of lapis_tiny, batch 64 at 96 pixels."""
    rng = np.random.default_rng(0)
    shape = (size.batch, size.heads, size.tokens, size.channels)
    q, k, v = (rng.integers(0, size.window + 1, shape, dtype=np.uint8) for _ in range(3))
    yield _distance(size, q, k, threads)
    yield _distance_training(size, q, k)
    yield _attention(size, q, k, v, threads)
    yield _quantizer(size)
    if step:
        yield _training_step()


def _distance(size: Size, q: Any, k: Any, threads: int) -> Task:
    q_real, k_real = torch.from_numpy(q).float(), torch.from_numpy(k).float()
    return Task(
        "distance",
        str(size),
        {
            "lapis u8 codes": lambda: l1_native.l1_distance(q, k, threads),
            "lapis fp32 codes": lambda: torch_native.l1_distance(q_real, k_real),
            "torch.cdist p=1": lambda: torch.cdist(q_real, k_real, p=1.0),
            "fp32 batched matmul": lambda: q_real @ k_real.transpose(-1, -2),
        },
        lambda: _require(
            (l1_native.l1_distance(q[:1], k[:1]) == reference.l1_distance(q[:1], k[:1])).all(), "distance"
        ),
        {"torch.cdist p=1": 30.0, "fp32 batched matmul": 2.0},
    )


def _distance_training(size: Size, q: Any, k: Any) -> Task:
    q_real, k_real = (torch.from_numpy(x).float().requires_grad_() for x in (q, k))
    shape = (*q.shape[:-1], k.shape[-2])
    grad = torch.randn(shape, generator=torch.Generator().manual_seed(0))

    def both_ways(relate: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(relate(q_real, k_real), (q_real, k_real), grad)

    def check() -> None:
        for found, expected in zip(both_ways(torch_native.l1_distance), both_ways(eager.l1_distance), strict=True):
            _require(
                bool((found - expected).abs().max() <= TOLERANCE * expected.abs().max()), "gradient of the distance"
            )

    return Task(
        "distance forward and backward",
        str(size),
        {
            "lapis": lambda: both_ways(torch_native.l1_distance),
            "torch.cdist p=1": lambda: both_ways(eager.l1_distance),
            "fp32 batched matmul": lambda: both_ways(lambda a, b: a @ b.transpose(-1, -2)),
        },
        check,
        {"torch.cdist p=1": 15.0},
    )


def _attention(size: Size, q: Any, k: Any, v: Any, threads: int) -> Task:
    tau = np.full(size.heads, size.window * size.channels**0.5 / 3)
    tables = tables_of(tau, size.channels * size.window + 1)
    values = v.astype(np.float32)
    q_real, k_real, v_real = (torch.from_numpy(x).float() for x in (q, k, v))

    def fused() -> Any:
        return attention_native.attention(q, k, values, tau, "pow2", threads=threads)

    def integers() -> Any:
        return integer_native.integer_attention(q, k, v, tables, threads=threads)

    def check() -> None:
        expected = attention_reference.attention(q[:1], k[:1], v[:1], tau, "pow2")
        _require(bool(np.abs(fused()[:1] - expected).max() <= TOLERANCE * np.abs(expected).max()), "fused attention")
        exact = integer_reference.integer_attention(q[:1], k[:1], v[:1], tables)
        _require(all((a[:1] == b).all() for a, b in zip(integers(), exact, strict=True)), "integer attention")

    return Task(
        "fused attention",
        str(size),
        {
            "lapis u16": integers,
            "lapis fp32": fused,
            "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(q_real, k_real, v_real),
        },
        check,
        {"scaled_dot_product_attention": 1.8},
    )


def _quantizer(size: Size) -> Task:
    shape = (size.batch, size.tokens, size.heads * size.channels)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    grad = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    step = torch.tensor(0.1, requires_grad=True)

    def both_ways(module: Any) -> tuple[Tensor, ...]:
        value = module.lsq_value(x, step, None, 0, size.window, 1.0)
        return value, *torch.autograd.grad(value, (x, step), grad)

    def check() -> None:
        found, expected = both_ways(lsq_native), both_ways(lsq_eager)
        _require(found[0].equal(expected[0]) and found[1].equal(expected[1]), "quantizer")

    return Task(
        "quantizer forward and backward",
        f"{size.batch}x{size.tokens}x{size.heads * size.channels}",
        {"lapis": lambda: both_ways(lsq_native), "torch eager": lambda: both_ways(lsq_eager)},
        check,
        {},
    )


def _training_step() -> Task:
    images = torch.randn(64, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(64) % 10
    steps = {relation: _stepper(relation, images, labels) for relation in ("laplacian", "dot")}

    def in_plain_torch() -> float:
        with native.force(native.NONE):
            return steps["dot"]()

    return Task(
        "training step of lapis_tiny",
        "batch 64, 96 px",
        {
            "lapis": steps["laplacian"],
            "relation dot, lapis quantizers": steps["dot"],
            "relation dot, plain torch": in_plain_torch,
        },
        lambda: _require(np.isfinite(steps["laplacian"]()), "training step"),
        {"relation dot, plain torch": 1 / 1.15},
    )


def _stepper(relation: Any, images: Tensor, labels: Tensor) -> Callable[[], float]:
    torch.manual_seed(0)
    model = LapisViT(preset("lapis_tiny", image_size=96, classes=10, relation=relation))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


@contextmanager
def thread_budget(threads: int) -> Iterator[None]:
    """Give torch, and through it the kernels, this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise LapisError(f"the {what} is wrong on {native.describe()}; nothing was timed. Please report this")
