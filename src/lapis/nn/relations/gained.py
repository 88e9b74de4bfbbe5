"""Rules without a row scale: a power of two per head gives their readout the size that softmax attention has."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis.config import LapisConfig
from lapis.nn.calibrated import Calibrated
from lapis.nn.relations.base import Mixer, Pairwise

SMALLEST = 1e-6


class Gained(Mixer, Calibrated):
    """A mixer with a gain g_h = 2**e_h.

    e_h is found from the first data, unless loaded, and not trained: to the nearest power of two, the readout of each
    head gets the standard deviation that softmax attention of the same q, k and v has before any quantizer. Other
    systems write a constant such as 0.125 here.
    """

    log2_gain: Tensor
    # Whether queries and keys have an ON and an OFF neuron each.
    signed: bool

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.signed, self.window = config.low("q") < 0, config.window
        self.register_buffer("log2_gain", torch.zeros(config.heads))

    @property
    def gain(self) -> Tensor:
        """(H, 1, 1)."""
        return self.log2_gain.exp2().view(-1, 1, 1)

    @torch.no_grad()
    def meet(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        self.calibrate(q, k, v)
        self.log2_gain.zero_()
        self.log2_gain.copy_((_deviation(readout) / _deviation(self.mix(q, k, v))).log2().round())
        self.mark_ready()

    def calibrate(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Find all other parameters from the first data; this base class has none."""


class GainedPairs(Gained, Pairwise):
    """W_ij = g_h S_ij, with scores S of a subclass."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """S (B, H, N, N)."""
        raise NotImplementedError

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        return self.gain * self.scores(q, k)


def _deviation(x: Tensor) -> Tensor:
    """The standard deviation of (B, H, N, C) for each head (H,)."""
    return x.float().std(dim=(0, 2, 3), correction=0).clamp_min(SMALLEST)
