"""Learned step size quantizers for activations and weights, and linear layers with them.

A step is stored as its logarithm: it stays positive, and an optimizer's update acts relative to its size, which spans
two orders of magnitude between an activation and a 6-bit weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lapis.config import FLOAT_WEIGHTS, Coding, LapisConfig
from lapis.errors import LapisError
from lapis.ops.lsq.eager import plain_codes
from lapis.ops.lsq.torch_native import lsq_codes, lsq_value
from lapis.trace import Point, Trace

# Values used to find a step from data; more would only change its third digit.
CALIBRATION_SAMPLE = 1 << 15
# How many steps below zero a silent value may lie to get a gradient, where silent values get one.
SILENT_WIDTH = 4
# Clipping points tried, as a share of the largest magnitude seen.
CANDIDATES = torch.linspace(0.02, 1.0, 80)


class Calibrated(nn.Module):
    """A module that knows whether its steps or time constants have been found, and saves that in its file."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = nn.Buffer(torch.zeros((), dtype=torch.bool))
        # The same fact for Python, so that a forward pass never waits for a tensor and compilers see a constant.
        self.is_ready = False

    def mark_ready(self, ready: bool = True) -> None:
        self.ready.fill_(ready)
        self.is_ready = ready

    def check_ready(self) -> None:
        """Refuse to compute before the steps or time constants have been found."""
        # transformers sets the tensor and calls no hook of torch.
        self.is_ready = self.is_ready or bool(self.ready)
        if not self.is_ready:
            raise LapisError(
                f"{type(self).__name__} has no parameters yet; call lapis.nn.calibrate(model, images) before the "
                "network is used, or load a trained network"
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self.is_ready = bool(self.ready)


class Quantizer(Calibrated):
    """The base of activation and weight quantizers: a step, found by `lapis.nn.calibrate` unless it was loaded."""

    def __init__(self, step_shape: tuple[int, ...], low: int, high: int) -> None:
        super().__init__()
        self.low, self.high = low, high
        self.log_step = nn.Parameter(torch.zeros(step_shape))

    @property
    def step(self) -> Tensor:
        return self.log_step.exp()


# What is told of every batch that a quantizer gets.
Observer = Callable[["ActivationQuantizer", Tensor], None]


class ActivationQuantizer(Quantizer):
    """z = clamp(floor((x - o)/s + 1/2), low, T), or 0 where |z| < min_code; one step (and offset) per measuring point.

    low is 0, or -T where `signed`; o is learned where `offset` and absent otherwise. An observer, where there is
    one, sees what comes in, except in a compiled block; where a block is computed again (`recomputed`) it sees
    it again.

    Two helps in the training of unsigned values, both 0 in a network that is used: `negative` times the value that a
    signed code would have had is what a negative value still gives; and a value up to SILENT_WIDTH steps below zero
    gets a gradient, at most `silent_gradient` times that of one that spikes.
    """

    def __init__(self, window: int, coding: Coding, min_code: int = 1) -> None:
        super().__init__((), -window if coding == "signed" else 0, window)
        self.coding, self.min_code = coding, min_code
        self.observer: Observer | None = None
        self.negative = self.silent_gradient = 0.0
        self.offset = nn.Parameter(torch.zeros(())) if coding == "offset" else None

    def forward(self, x: Tensor) -> Tensor:
        """The real value z s + o that the spikes of x stand for."""
        x = self._prepare(x)
        low = -self.high if self.training and self.negative else self.low
        value = lsq_value(x, self.step, self.offset, low, self.high, self._grad_scale(x), self.min_code)
        if low != self.low:
            value = torch.where(value < 0, value * self.negative, value)
        return self._with_silent_gradient(value, x, 1.0)

    def codes(self, x: Tensor) -> Tensor:
        """z as integer-valued floats, differentiable."""
        x = self._prepare(x)
        codes = lsq_codes(x, self.step, self.offset, self.low, self.high, self._grad_scale(x), self.min_code)
        return self._with_silent_gradient(codes, x, self.step.detach())

    def value(self, codes: Tensor) -> Tensor:
        """z s + o of codes that were found before: the bits that `forward` gives."""
        value = codes * self.step
        return value if self.offset is None else value + self.offset

    @torch.no_grad()
    def calibrate(self, x: Tensor) -> None:
        """Find the step (and offset) with the least squared error on x."""
        sample = _sample(x)
        if self.offset is None:
            step, offset = _best_step(sample, self.low, self.high), 0.0
        else:
            step, offset = _best_range(sample, self.high)
            self.offset.fill_(offset)
        self.log_step.fill_(math.log(step))
        self.mark_ready()

    def _with_silent_gradient(self, result: Tensor, x: Tensor, unit: Tensor | float) -> Tensor:
        """The result, and a gradient for silent values of x; `unit` is what a gradient of x is divided by."""
        if not (self.training and self.silent_gradient):
            return result
        below = x.detach() / (SILENT_WIDTH * self.step.detach())
        weight = torch.where(below <= 0, (1 + below).clamp_min(0) * self.silent_gradient, 0.0) / unit
        return result + weight * (x - x.detach())

    def _prepare(self, x: Tensor) -> Tensor:
        x = x.float()
        if self.observer is not None and not torch.compiler.is_compiling():
            self.observer(self, x)
        self.check_ready()
        return x

    def _grad_scale(self, x: Tensor) -> float:
        """1/sqrt(n T), n the features of one sample that the step serves."""
        return 1.0 / math.sqrt(x.numel() / x.shape[0] * self.high) if x.numel() else 1.0

    def extra_repr(self) -> str:
        return f"{self.low}..{self.high}, {self.coding}" + f", min_code {self.min_code}" * (self.min_code > 1)


def activation_quantizer(config: LapisConfig, point: Point, block: int) -> ActivationQuantizer:
    """The quantizer of a measuring point, as a configuration describes it."""
    return ActivationQuantizer(config.window, config.coding_of(point), config.min_code_of(point, block))


def quantized(
    quantizer: ActivationQuantizer | None, x: Tensor, trace: Trace | None, block: int, point: Point
) -> Tensor:
    """The value that the spikes of x stand for, or x itself without a quantizer; a trace gets the codes."""
    if quantizer is None:
        return x
    if trace is None:
        value: Tensor = quantizer(x)
        return value
    codes = quantizer.codes(x)
    trace.note(block, point, as_integers(codes))
    return quantizer.value(codes)


def required(quantizer: ActivationQuantizer | None) -> ActivationQuantizer:
    """The quantizer of a point that must spike."""
    if quantizer is None:
        raise LapisError("a measuring point has no quantizer; use a network with quantize=True and readout='spikes'")
    return quantizer


def as_integers(codes: Tensor) -> npt.NDArray[np.int8]:
    """Integer-valued codes as a trace keeps them."""
    integers: npt.NDArray[np.int8] = codes.detach().to(torch.int8).cpu().numpy()
    return integers


class WeightQuantizer(Quantizer):
    """w = s_o clamp(floor(w/s_o + 1/2), -m, m), m = 2**(bits-1) - 1: symmetric, one step per output channel."""

    def __init__(self, channels: int, bits: int) -> None:
        largest = 2 ** (bits - 1) - 1
        super().__init__((channels, 1), -largest, largest)

    def forward(self, weight: Tensor) -> Tensor:
        self.check_ready()
        scale = 1.0 / math.sqrt(weight.shape[1] * self.high)
        return lsq_value(weight.float(), self.step, None, self.low, self.high, scale)

    @torch.no_grad()
    def codes(self, weight: Tensor) -> Tensor:
        """The integer weights, int8."""
        self.check_ready()
        return lsq_codes(weight.float(), self.step, None, self.low, self.high, 1.0).to(torch.int8)

    @torch.no_grad()
    def calibrate(self, weight: Tensor) -> None:
        """Find the step of each row with the least squared error."""
        largest = weight.abs().amax(dim=1, keepdim=True).clamp_min(1e-8)
        best_error = torch.full_like(largest, math.inf)
        best = largest / self.high
        for share in CANDIDATES:
            step = largest * share / self.high
            codes = plain_codes(weight, step, None, self.low, self.high)
            error = (codes * step - weight).square().sum(dim=1, keepdim=True)
            best = torch.where(error < best_error, step, best)
            best_error = torch.minimum(error, best_error)
        self.log_step.copy_(best.log())
        self.mark_ready()


class Linear(nn.Linear):
    """y = x W^T + b, with W on a learned integer grid where `bits` is below 32."""

    def __init__(self, inputs: int, outputs: int, bits: int) -> None:
        super().__init__(inputs, outputs)
        self.quantizer = None if bits == FLOAT_WEIGHTS else WeightQuantizer(outputs, bits)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight if self.quantizer is None else self.quantizer(self.weight)
        return F.linear(x, weight, self.bias)


def _sample(x: Tensor) -> Tensor:
    flat = x.detach().reshape(-1).float()
    # On the CPU, where the candidates are: a step is found once, and is then the same for every device.
    stride = max(1, flat.numel() // CALIBRATION_SAMPLE)
    # An odd stride visits every channel of an even-width activation.
    return flat[:: stride | 1].cpu()


def _best_step(x: Tensor, low: int, high: int) -> float:
    top = float(x.max() if low == 0 else x.abs().max())
    if top <= 0:  # no positive value: with any step there are no spikes
        return 1.0 / high
    steps = (CANDIDATES * top / high).view(-1, 1)
    codes = plain_codes(x, steps, None, low, high)
    error = codes.mul_(steps).sub_(x).square_().mean(dim=1)
    return float(steps[error.argmin()])


def _best_range(x: Tensor, high: int) -> tuple[float, float]:
    """(step, offset) of the range [offset, offset + high step] with the least squared error."""
    x = x[:: max(1, x.numel() // 4096)]
    ends = torch.tensor([0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08])
    lows, highs = torch.quantile(x, ends), torch.quantile(x, 1 - ends)
    offset, top = (grid.reshape(-1, 1) for grid in torch.meshgrid(lows, highs, indexing="ij"))
    steps = ((top - offset) / high).clamp_min(1e-8)
    codes = plain_codes(x, steps, offset, 0, high)
    best = int(codes.mul_(steps).add_(offset).sub_(x).square_().mean(dim=1).argmin())
    return float(steps[best]), float(offset[best])
