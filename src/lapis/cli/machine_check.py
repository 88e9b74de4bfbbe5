"""Check a machine: the kernels that it has, and whether they give the right bits.

Torch is not needed; without it, only what is deployed is checked. A check that fails says what to do about it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lapis import models, native
from lapis._util.hints import install_command
from lapis._util.machine import processor
from lapis.data.packaged import packaged_images
from lapis.deploy import run
from lapis.models import DEFAULT_MODEL as MODEL
from lapis.runtime import Session

# Of float32 results near one, against float64.
TOLERANCE = 1e-4
State = Literal["ok", "missing", "failed"]


@dataclass(frozen=True)
class Check:
    """What was looked at, what was found, and what to do if it is not ok. Only `failed` fails the command."""

    name: str
    state: State
    found: str
    advice: str = ""


def checks() -> Iterator[Check]:
    """Every check in turn."""
    yield Check("processor", "ok", processor())
    built: State = "ok" if native.available() else "missing"
    yield Check("native kernels", built, native.describe(), "a C compiler, then make native; numpy works until then")
    has_torch = importlib.util.find_spec("torch") is not None
    if has_torch:
        yield from _torch_checks()
    else:
        yield Check("torch", "missing", "not installed", f"needed for training only: {install_command('train')}")
    network, session, image = models.load(MODEL).network, Session(MODEL), packaged_images().pixels[:1]
    pixels = session.read(image)
    # The integer model in numpy defines the answer.
    expected = run(network, pixels)
    found = session.watch_integers(image).logits
    yield _equal_bits(f"{session.executor} session", found, expected, "set LAPIS_ISA=scalar and report this")
    if has_torch:
        import torch

        from lapis.convert.torch_executor import TorchExecutor

        device = "cuda" if torch.cuda.is_available() else "cpu"
        found = TorchExecutor(network).to(device)(torch.from_numpy(pixels).to(device)).cpu().numpy()
        advice = "evaluate with --device cpu and report this"
        yield _equal_bits(f"torch executor on {device}", found, expected, advice)


def _equal_bits(who: str, found: Any, expected: Any, advice: str) -> Check:
    if np.array_equal(found, expected):
        return Check(f"self-test, {who}", "ok", "1 image, every bit of the logits equal")
    return Check(f"self-test, {who}", "failed", "1 image, every bit of the logits should be equal, and is not", advice)


def _torch_checks() -> Iterator[Check]:
    import torch

    from lapis.ops.gpu import choice

    yield Check("torch", "ok", torch.__version__)
    if not torch.cuda.is_available():
        yield Check("GPU", "missing", "torch finds none", "training is slow without one; deployed networks need none")
        return
    yield Check("GPU", "ok", first_gpu())
    reason = choice.missing()
    if reason is not None:
        yield Check("GPU kernels", "missing", reason, "eager runs instead, many times slower")
        return
    card = choice.card_of_device(torch.device("cuda", 0))
    yield Check("GPU kernels", "ok", f"{card.words}, thermometers up to {card.thermometer_levels} levels")
    yield _gpu_answers()


def first_gpu() -> str:
    """The name and architecture of the first of torch's GPUs, and how many there are."""
    try:
        import torch

        from lapis.ops.gpu import choice
    except (ImportError, OSError, RuntimeError) as error:
        return f"torch cannot be imported: {error}"
    if not torch.cuda.is_available():
        return "none"
    device, count = torch.device("cuda", 0), torch.cuda.device_count()
    memory = torch.cuda.get_device_properties(device).total_memory / 2**30
    return f"{count} x {torch.cuda.get_device_name(device)}, {choice.architecture(device)}, {memory:.0f} GB"


def _gpu_answers() -> Check:
    """Attention and its gradients on the GPU against float64 on the CPU, by both ways to find distances."""
    import torch

    from lapis.ops.attention import eager, torch_native
    from lapis.ops.gpu import choice

    source = torch.Generator().manual_seed(0)
    codes = [torch.randint(0, 16, (2, 3, 37, 64), generator=source) for _ in range(3)]
    inputs = [*codes, torch.tensor([20.0, 50.0, 90.0])]

    def answers(device: str, kind: torch.dtype, attention: Any, **options: Any) -> list[Any]:
        """The output and the gradients of all inputs, as float64 on the CPU."""
        leaves = [x.to(device, kind).requires_grad_() for x in inputs]
        made = attention(*leaves, "pow2", **options)
        made.square().sum().backward()
        return [x.detach().cpu().double() for x in (made, *(leaf.grad for leaf in leaves))]

    exact, worst = answers("cpu", torch.float64, eager.attention), 0.0
    for way in (choice.WORDS, choice.THERMOMETER):
        with choice.force(way):
            made = answers("cuda", torch.float32, torch_native.attention, codes=(0, 15))
        worst = max(worst, *(float((x - y).abs().max() / y.abs().max()) for x, y in zip(made, exact, strict=True)))
    state: State = "ok" if worst < TOLERANCE else "failed"
    return Check("GPU answers", state, f"largest relative error {worst:.1e}", "set LAPIS_GPU=eager and report this")
