"""Rules without a row scale, on spike trains: Spikformer, alpha-XNOR, Spike-driven Transformer, QKFormer and STAtten.

A power of two per head gives their readout the size that softmax attention has.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lapis import LapisConfig
from lapis.nn import Calibrated, Mixer, Pairwise
from lapis.ops import l1_distance
from lapis_zoo.rules import EsdsaRule, QkFormerRule, SdsaRule, SsaRule, StattenRule, XnorRule, early_blocks
from lapis_zoo.steps import gate, on_and_off, thermometer

SMALLEST = 1e-6
CHUNKS = 3


class Gained(Mixer, Calibrated):
    """A mixer with a gain g_h = 2**e_h.

    e_h is found from data before training, unless loaded, and not trained: to the nearest power of two, the readout of
    each head gets the standard deviation that softmax attention of the same q, k and v has before any quantizer. Other
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
    def init_from_data(self, q: Tensor, k: Tensor, v: Tensor, readout: Tensor) -> None:
        self.init_thresholds(q, k, v)
        self.log2_gain.zero_()
        self.log2_gain.copy_((_deviation(readout) / _deviation(self.mix(q, k, v))).log2().round())
        self.mark_ready()

    def init_thresholds(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Find all other parameters from data; this base class has none."""


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


class SpikingSelfAttention(GainedPairs):
    """W_ij = g_h sum_c min(q_ic, k_jc) = g_h (|q_i| + |k_j| - D_ij) / 2, D the l1 distance, |q| the sum of magnitudes.

    The minimum of two codes is the number of steps in which both of their rate trains spike: Spikformer's q k^T, summed
    over steps. Signed codes count as ON and OFF channels.
    """

    on_codes = True
    rule = SsaRule

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        both: Tensor = (magnitudes(q, k) - l1_distance(q, k)) / 2
        return both


def magnitudes(q: Tensor, k: Tensor) -> Tensor:
    """|q_i| + |k_j| (B, H, N, N)."""
    return q.abs().sum(dim=-1).unsqueeze(-1) + k.abs().sum(dim=-1).unsqueeze(-2)


class AlphaXnor(GainedPairs):
    """W_ij = g_h (a_h T C + (1 - a_h)/2 (|q_i| + |k_j|) - (1 + a_h)/2 D_ij), D the l1 distance, a_h learned in 0..1.

    This is the sum over steps and channels of q k + a (1 - q)(1 - k) on rate trains: spikes in common count one,
    silence in common a. With signed codes C counts ON and OFF channels.
    """

    on_codes = True
    rule = XnorRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.trains = config.head_width * (2 if self.signed else 1)
        self.logit = nn.Parameter(torch.zeros(config.heads))

    @property
    def alpha(self) -> Tensor:
        """The weight of silence in common, (H, 1, 1)."""
        return torch.sigmoid(self.logit).view(-1, 1, 1)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        alpha = self.alpha
        most = alpha * (self.window * self.trains)
        scores: Tensor = most + (1 - alpha) / 2 * magnitudes(q, k) - (1 + alpha) / 2 * l1_distance(q, k)
        return scores


class LinearProduct(GainedPairs):
    """y_i = g_h q_i (sum_j k_j^T v_j) on codes, in that order: the weights W_ij = g_h q_i . k_j are never stored."""

    on_codes = True
    rule = EsdsaRule

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-1, -2)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.gain * (q @ (k.transpose(-1, -2) @ v))


class SpikeDriven(Gained):
    """y_ic = g_h q_ic [sum_j min(k_jc, v_jc) >= theta_c], with a learned threshold per channel.

    The sum counts the spikes that the rate trains of keys and values have in common. theta starts at the mean of the
    sums in that data, so that about half of the channels are open. A signed channel is an ON and an OFF one.
    """

    on_codes = True
    values_on_codes = True
    rule = SdsaRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        trains = config.head_width * (2 if self.signed else 1)
        self.log_threshold = nn.Parameter(torch.zeros(config.heads, 1, trains))

    def coincidences(self, k: Tensor, v: Tensor) -> Tensor:
        """sum_j min(k_jc, v_jc): (B, H, N, C) twice -> (B, H, 1, C), with ON and OFF channels where k is signed."""
        keys, values = on_and_off(k, self.signed), on_and_off(v, self.signed)
        # Without OFF keys only the ON neurons of values have a partner.
        return torch.minimum(keys, values.clamp_min(0)).sum(dim=-2, keepdim=True)

    def gates(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return gate(self.coincidences(k, v), self.log_threshold.exp())

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        opened = on_and_off(q, self.signed) * self.gates(q, k, v)
        if self.signed:
            on, off = opened.chunk(2, dim=-1)
            opened = on - off
        return self.gain * opened

    @torch.no_grad()
    def init_thresholds(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        self.log_threshold.copy_(self.coincidences(k, v).mean(dim=0).clamp_min(1).log())


class QkToken(Gained):
    """y_i = g_h k_i [|q_i| >= theta_h]: a token passes its key if its query has enough spikes; no token sees another.

    theta starts at the mean of |q_i|, the sum of magnitudes, in that data.
    """

    on_codes = True
    rule = QkFormerRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.log_threshold = nn.Parameter(torch.zeros(config.heads, 1, 1))

    def gates(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return gate(_sums(q), self.log_threshold.exp())

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.gain * self.gates(q, k, v) * k

    @torch.no_grad()
    def init_thresholds(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        self.log_threshold.copy_(_sums(q).mean(dim=(0, 2), keepdim=True)[0].clamp_min(1).log())


class QkFormer(SpikingSelfAttention):
    """`QkToken` in the first 30 % of the blocks, `SpikingSelfAttention` after them."""

    rule = QkFormerRule

    @classmethod
    def for_block(cls, config: LapisConfig, block: int) -> Mixer:
        return QkToken(config) if block < early_blocks(config.depth) else cls(config)


def _sums(codes: Tensor) -> Tensor:
    return codes.abs().sum(dim=-1, keepdim=True)


class ChunkedSteps(Gained):
    """y_i = g_h sum_chunks (sum_n q_in) (sum_m sum_j k_jm^T v_jm) on rate trains, n and m the steps of a chunk.

    q_in is 1 where the train of q_i spikes in step n. A query is paired with the keys of all steps of its own chunk
    and of no other; a key and its value in the same step. The trains of T steps are cut into three chunks.
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
