"""Time the kernels and torch on the same tasks: distance, gradient, attention, quantizer, training step.

python -m benchmarks.kernels --size paper --rounds 25
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import native_ops
from benchmarks.common import (
    Several,
    deliver,
    machine,
    main,
    output_options,
    quartiles,
    ratio_quartiles,
    report,
    require_kernels,
    rounds_option,
    take_turns,
)
from benchmarks.sizes import Size
from benchmarks.synthetic import tables_of
from lapis import native
from lapis.config import preset
from lapis.errors import LapisError
from lapis.nn import LapisViT, calibrate
from lapis.ops.attention import reference as attention_reference
from lapis.ops.distance import eager, reference, torch_native
from lapis.ops.integer_attention import reference as integer_reference
from lapis.ops.lsq import eager as lsq_eager
from lapis.ops.lsq import torch_native as lsq_native

# The allowed error of fp32 results near one; the tests are much stricter.
TOLERANCE = 1e-4
# The paper's small model on 16 images; the tiny one in training at 96 pixels; the smallest size that runs everything.
SIZES = {"paper": Size(16, 6, 197, 64), "train": Size(64, 3, 37, 64), "small": Size(2, 2, 17, 16)}
# A call is repeated within a round until it has run this long, so that the clock's resolution does not matter.
SHORTEST_ROUND_S = 0.01


@dataclass(frozen=True)
class Task:
    """One comparison: how many times longer each of `calls` takes than the first, which is ours.

    `check` raises an error if our answer is wrong. `targets` are the ratios to reach, by the name of a call.
    """

    name: str
    shape: str
    calls: Mapping[str, Callable[[], Any]]
    check: Callable[[], None]
    targets: Mapping[str, float]


@dataclass(frozen=True)
class Measurement:
    """One contender of one task. `times_ours` is how many times longer it takes than ours (median over rounds).

    `spread` is the distance between the quartiles of its time, divided by the median.
    """

    task: str
    shape: str
    threads: int
    contender: str
    median_ms: float
    spread: float
    times_ours: float
    times_ours_low: float
    times_ours_high: float
    target: float | None


def measure(task: Task, threads: int, rounds: int) -> list[Measurement]:
    """Check the answer, then time every contender once per round, in turns; their warnings are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task.check()
        turns = {name: partial(_seconds, call, _repeats(call)) for name, call in task.calls.items()}
        times = take_turns(turns, rounds)
    ours = next(iter(times.values()))
    return [_measurement(task, threads, name, seen, ours) for name, seen in times.items()]


def _measurement(task: Task, threads: int, name: str, seconds: Sequence[float], ours: Sequence[float]) -> Measurement:
    low, middle, high = quartiles(seconds)
    ratio_low, ratio, ratio_high = ratio_quartiles(seconds, ours)
    return Measurement(
        task=task.name,
        shape=task.shape,
        threads=threads,
        contender=name,
        median_ms=round(middle * 1e3, 4),
        spread=round((high - low) / middle, 3),
        times_ours=round(ratio, 3),
        times_ours_low=round(ratio_low, 3),
        times_ours_high=round(ratio_high, 3),
        target=task.targets.get(name),
    )


def _repeats(call: Callable[[], Any]) -> int:
    call()
    once = _seconds(call, 1)
    return max(1, int(SHORTEST_ROUND_S / max(once, 1e-9)))


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def compare_kernels(sizes: Sequence[str], threads: Sequence[int], rounds: int, step: bool) -> list[Measurement]:
    """Time every task at these sizes and numbers of threads; `step` adds a training step per number of threads."""
    rows: list[Measurement] = []
    for count in threads:
        with thread_budget(count):
            for position, name in enumerate(sizes):
                for task in tasks(SIZES[name], step and position == 0, count):
                    rows += measure(task, count, rounds)
                    report(f"timed {task.name}, {task.shape}, {count} threads")
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
            "lapis u8 codes": lambda: native_ops.l1_distance(q, k, threads),
            "lapis fp32 codes": lambda: torch_native.l1_distance(q_real, k_real),
            "torch.cdist p=1": lambda: torch.cdist(q_real, k_real, p=1.0),
            "fp32 batched matmul": lambda: q_real @ k_real.transpose(-1, -2),
        },
        lambda: _require(
            (native_ops.l1_distance(q[:1], k[:1]) == reference.l1_distance(q[:1], k[:1])).all(), "distance"
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
        return native_ops.attention(q, k, values, tau, "pow2", threads=threads)

    def integers() -> Any:
        return native_ops.integer_attention(q, k, v, tables, threads=threads)

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
    calibrate(model, images)
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


@click.command()
@click.option(
    "--size", "sizes", type=Several(click.Choice(list(SIZES))), default="paper,train", show_default=True,
    help="Sizes of the arrays.",
)  # fmt: skip
@click.option("--threads", type=Several(click.IntRange(1)), default="1,2", show_default=True, help="Threads.")
@rounds_option(15)
@click.option("--step/--no-step", default=True, show_default=True, help="Include a training step of lapis_tiny.")
@click.option("--isa", help="The instruction set to use. Default: the best one of this machine.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True,
    help="cuda times attention on a GPU (NVIDIA or AMD).",
)  # fmt: skip
@output_options
def command(
    sizes: tuple[str, ...], threads: tuple[int, ...], rounds: int, step: bool, isa: str | None, device: str,
    as_json: bool, out: Path | None,
) -> None:  # fmt: skip
    """Time the kernels and the same work in torch.

    Distance, its gradient, fused attention, the quantizer and a training step; every answer is checked before it is
    timed. Targets are for size paper with AVX-512 VNNI. On a GPU: attention, forward and with its gradients, beside
    torch.cdist, flash attention in bf16 and torch.compile; --threads, --step and --isa do not matter there.

    \b
    Example:
      python -m benchmarks.kernels --size paper --rounds 25
    """
    if device == "cuda":
        from benchmarks.gpu import gpu_tasks
        from lapis.train.distributed import choose_device

        card = choose_device(device)
        facts = machine() | {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(card)}
        found = [row for name in sizes for task in gpu_tasks(SIZES[name], card) for row in measure(task, 1, rounds)]
        deliver("kernels-cuda", facts, found, as_json, out)
        return
    require_kernels()
    with native.force(isa or native.isa()):
        facts = machine() | {"torch": torch.__version__}
        deliver("kernels", facts, compare_kernels(sizes, threads, rounds, step), as_json, out)


if __name__ == "__main__":
    sys.exit(main(command))
