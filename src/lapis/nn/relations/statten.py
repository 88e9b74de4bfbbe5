"""The rule of STAtten: spiking self-attention over chunks of steps."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis.config import LapisConfig
from lapis.nn.relations.gained import Gained
from lapis.nn.relations.straight_through import on_and_off, thermometer
from lapis.relations.statten import StattenRule

CHUNKS = 3


class ChunkedSteps(Gained):
    """y_i = g_h sum_chunks (sum_n q_in) (sum_m sum_j k_jm^T v_jm) on rate trains, n and m the steps of a chunk.

    q_in is 1 where the train of q_i spikes in step n. A query meets the keys of all steps of its own chunk and of no
    other; a key and its value meet in the same step. The trains of T steps are cut into three chunks.
    """

    on_codes = True
    values_on_codes = True
    rule = StattenRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.chunk = -(-config.window // CHUNKS)
        self.signed_values = config.low("v") < 0

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries, keys = (thermometer(on_and_off(x, self.signed), self.window) for x in (q, k))
        # A value has a sign and is read, not compared: its train is the ON train minus the OFF train.
        values = thermometer(v.clamp_min(0), self.window)
        if self.signed_values:
            values = values - thermometer((-v).clamp_min(0), self.window)
        seen = keys.transpose(-1, -2) @ values  # (T, B, H, C, C)
        parts = zip(queries.split(self.chunk), seen.split(self.chunk), strict=True)
        return self.gain * torch.stack([asked.sum(dim=0) @ kept.sum(dim=0) for asked, kept in parts]).sum(dim=0)
