"""When a call is served by Triton: on GPUs, where Triton is installed and eager was not asked for.

The environment variable `LAPIS_GPU` is read when a kernel is first needed: `eager` turns Triton off, `words` and
`thermometer` force one way to find distances. With `TRITON_INTERPRET=1` and one of these two, Triton's interpreter
runs the kernels on CPU tensors, slowly; this is how they are tested without a GPU.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lapis.errors import LapisError

EAGER, WORDS, THERMOMETER = "eager", "words", "thermometer"
CHOICES = (EAGER, WORDS, THERMOMETER)
_forced: list[str] = []


# How four byte differences are found and summed; "plain" is ordinary arithmetic, which every device can run.
Words = Literal["vabsdiff4", "min_dp4a", "v_sad_u8", "plain"]
# How a product of float32 matrices is taken on matrix units: three products of shorter numbers, or on ordinary cores.
Dot = Literal["tf32x3", "bf16x3", "ieee"]


@dataclass(frozen=True)
class Card:
    """GPUs of one kind: how they find distances, the threads in step, and the levels up to which matrix units are used.

    Ordinary cores take four channels at a time, packed as bytes into a word. Matrix units multiply thermometers,
    min(a, b) = sum_t [a >= t] [b >= t], one product for each of T levels (2 T for signed codes): faster for few levels.
    The levels come from instructions counted in compiled kernels (docs/gpu.md); no card was at hand.
    """

    architectures: tuple[str, ...]
    words: Words
    dot: Dot
    lanes: int
    thermometer_levels: int


CARDS = (
    Card(("sm_80", "sm_86", "sm_87", "sm_89"), "vabsdiff4", "tf32x3", 32, 10),
    Card(("sm_90",), "vabsdiff4", "tf32x3", 32, 12),
    Card(("sm_100", "sm_103"), "vabsdiff4", "tf32x3", 32, 11),
    Card(("sm_120", "sm_121"), "min_dp4a", "tf32x3", 32, 15),
    Card(("gfx90a", "gfx942", "gfx950"), "v_sad_u8", "bf16x3", 64, 0),
)
# What is not in the table runs plain arithmetic, which is right everywhere.
OTHER = Card((), "plain", "ieee", 32, 0)


def card_of(architecture: str) -> Card:
    """The row of an architecture such as `sm_90` or `gfx942:sramecc+:xnack-`."""
    name = architecture.split(":")[0]
    return next((card for card in CARDS if name in card.architectures), OTHER)


@contextmanager
def force(choice: str) -> Iterator[None]:
    """Use one of `CHOICES` for the calls inside."""
    _forced.append(_checked(choice))
    try:
        yield
    finally:
        _forced.pop()


def requested() -> str:
    """What was asked for: one of `CHOICES`, or "" to let the table decide."""
    return _forced[-1] if _forced else _checked(os.environ.get("LAPIS_GPU", ""))


def missing() -> str | None:
    """Why Triton's kernels cannot run here, or None."""
    if requested() == EAGER:
        return "LAPIS_GPU=eager turns them off"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: pip install triton"
    return None


def interpreted() -> bool:
    """Whether kernels run on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1" and requested() in (WORDS, THERMOMETER)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def runs_on(device_type: str) -> bool:
    """Whether the kernels serve tensors of this kind of device ("cuda" is torch's name for ROCm too)."""
    return (device_type == "cuda" or (device_type == "cpu" and interpreted())) and missing() is None


def served_by_triton(*tensors: Tensor) -> bool:
    """Whether Triton runs on these: all on one GPU, in at most single precision (the kernels compute in float32)."""
    first = tensors[0].device
    return all(t.device == first and t.dtype != torch.float64 for t in tensors) and runs_on(first.type)


def architecture(device: torch.device) -> str:
    """`sm_90`, `gfx942`, or `cpu` for the interpreter."""
    if device.type != "cuda":
        return device.type
    if torch.version.hip is not None:
        return str(torch.cuda.get_device_properties(device).gcnArchName).split(":")[0]
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


@functools.cache
def card_of_device(device: torch.device) -> Card:
    """The row of the table for a device."""
    return OTHER if device.type != "cuda" else card_of(architecture(device))


def levels_by_thermometer(device: torch.device, levels: int) -> int:
    """How many levels a thermometer product takes for codes of so many; 0 where byte differences are used."""
    choice = requested()
    if choice:
        return levels if choice == THERMOMETER else 0
    return levels if levels <= card_of_device(device).thermometer_levels else 0


def _checked(choice: str) -> str:
    if choice and choice not in CHOICES:
        raise LapisError(f"LAPIS_GPU={choice!r} is not known; use {', '.join(CHOICES)}, or leave it unset")
    return choice
