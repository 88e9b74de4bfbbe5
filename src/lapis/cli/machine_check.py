"""Check a machine: the kernels that it has, whether they give the right bits, and how fast they are.

Torch is not needed; without it, only what is deployed is checked. A check that fails says what to do about it.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lapis import models, native
from lapis._util.hints import install_command
from lapis._util.machine import processor
from lapis.data.cifar_sample import load_sample
from lapis.deploy import run
from lapis.models import DEFAULT_MODEL as MODEL
from lapis.runtime import Session

IMAGES = 1
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


def checks(seconds: float) -> Iterator[Check]:
    """Every check in turn; the test of speed takes this many seconds."""
    yield Check("processor", "ok", processor())
    yield _native_kernels()
    has_torch = importlib.util.find_spec("torch") is not None
    yield from (
        _torch_checks()
        if has_torch
        else [Check("torch", "missing", "not installed", f"needed for training only: {install_command('train')}")]
    )
    yield _deployed_bits()
    if has_torch:
        yield _executor_bits()
    yield _deployed_speed(seconds)


def _native_kernels() -> Check:
    if native.available():
        return Check("native kernels", "ok", native.describe())
    return Check(
        "native kernels", "missing", native.describe(), "a C compiler, then make native; numpy works until then"
    )


def _torch_checks() -> Iterator[Check]:
    import torch

    from lapis.ops.gpu import choice

    yield Check("torch", "ok", torch.__version__)
    if not torch.cuda.is_available():
        yield Check("GPU", "missing", "torch finds none", "training is slow without one; deployed networks need none")
        reason = choice.missing()
        found = "installed" if reason is None else reason
        yield Check("GPU kernels", "missing", f"nothing to run on; triton: {found}")
        return
    for index in range(torch.cuda.device_count()):
        device = torch.device("cuda", index)
        memory = torch.cuda.get_device_properties(device).total_memory / 2**30
        name = torch.cuda.get_device_name(device)
        yield Check(f"GPU {index}", "ok", f"{name}, {choice.architecture(device)}, {memory:.0f} GB")
    reason = choice.missing()
    if reason is not None:
        yield Check("GPU kernels", "missing", reason, "eager runs instead, many times slower")
        return
    card = choice.card_of_device(torch.device("cuda", 0))
    yield Check("GPU kernels", "ok", f"{card.words}, thermometers up to {card.thermometer_levels} levels")
    yield _gpu_answers()


def _gpu_answers() -> Check:
    """Attention and its gradients on the GPU against float64 on the CPU, by both ways to find distances."""
    import torch

    from lapis.ops.attention import eager, torch_native
    from lapis.ops.gpu import choice

    source = torch.Generator().manual_seed(0)
    codes: list[Any] = [torch.randint(0, 16, (2, 3, 37, 64), generator=source).float() for _ in range(3)]
    exact = [x.double().requires_grad_() for x in (*codes, torch.tensor([20.0, 50.0, 90.0]))]
    wanted = eager.attention(exact[0], exact[1], exact[2], exact[3], "pow2")
    wanted.square().sum().backward()
    worst = 0.0
    for way in (choice.WORDS, choice.THERMOMETER):
        leaves = [x.detach().float().cuda().requires_grad_() for x in exact]
        with choice.force(way):
            made = torch_native.attention(leaves[0], leaves[1], leaves[2], leaves[3], "pow2", codes=(0, 15))
        made.square().sum().backward()
        pairs = [(made, wanted), *((mine.grad, theirs.grad) for mine, theirs in zip(leaves, exact, strict=True))]
        for mine, theirs in pairs:
            assert mine is not None
            assert theirs is not None
            worst = max(worst, float((mine.cpu().double() - theirs).abs().max() / theirs.abs().max()))
    state: State = "ok" if worst < TOLERANCE else "failed"
    return Check("GPU answers", state, f"largest relative error {worst:.1e}", "set LAPIS_GPU=eager and report this")


def _deployed_bits() -> Check:
    """The engine of this machine against the integer model in numpy, which defines the answer."""
    network, session = models.load(MODEL).network, Session(MODEL)
    images = load_sample().images[:IMAGES]
    same = np.array_equal(session.watch_integers(images).logits, run(network, session.read(images)))
    return _equal_bits(f"{session.executor} session", same, "set LAPIS_ISA=scalar and report this")


def _executor_bits() -> Check:
    """The deployed arithmetic in torch, on the GPU if there is one, against the integer model."""
    import torch

    from lapis.convert.torch_executor import TorchExecutor

    network = models.load(MODEL).network
    pixels = Session(MODEL).read(load_sample().images[:IMAGES])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    made = TorchExecutor(network).to(device)(torch.from_numpy(pixels).to(device))
    same = np.array_equal(made.cpu().numpy(), run(network, pixels))
    return _equal_bits(f"torch executor on {device}", same, "evaluate with --device cpu and report this")


def _equal_bits(who: str, same: bool, advice: str) -> Check:
    found = f"{IMAGES} image, every bit of the logits " + ("equal" if same else "should be equal, and is not")
    return Check(f"self-test, {who}", "ok" if same else "failed", found, "" if same else advice)


def _deployed_speed(seconds: float) -> Check:
    session, image = Session(MODEL), load_sample().images[:1]
    rate = _per_second(lambda: session.run(image), seconds)
    return Check("speed, one image at a time", "ok", f"{rate:.0f} images/s with {MODEL}, 1 thread ({session.executor})")


def _per_second(work: Callable[[], Any], seconds: float) -> float:
    """Calls per second, after one that is not counted."""
    work()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds or count == 0:
        work()
        count += 1
    return count / (time.perf_counter() - start)
