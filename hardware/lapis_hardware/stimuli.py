"""Codes with which the lanes are measured: rows of real images, or the same thinned to another activity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.codes import pow2_exponent
from lapis.deploy import Network, leak
from lapis.trace import Trace

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
INT8_MAX = 127
# The seed of all that is random here, so that every number is repeatable.
SEED = 20


@dataclass(frozen=True)
class Stimuli:
    """R query rows, each of another head, of C channels and N keys.

    q (R, C), k and v (R, N, C) are codes; q_real, k_real and v_real the numbers behind them, in units of codes.
    mantissa and exponent (R, S) are the membranes of each row's head; its affinities have `bits`. factor is the
    leak of the first.
    """

    window: int
    bits: int
    q: Int64
    k: Int64
    v: Int64
    q_real: Float64
    k_real: Float64
    v_real: Float64
    mantissa: Int64
    exponent: Int64
    factor: tuple[int, int]

    @property
    def distance(self) -> Int64:
        """(R, N)."""
        return np.asarray(np.abs(self.q[:, None] - self.k).sum(axis=-1))

    @property
    def gain(self) -> Int64:
        """The exponent (R,) of each row's nearest key."""
        return np.asarray(self.exponent[np.arange(len(self.q)), self.distance.min(axis=1)])

    @property
    def affinity(self) -> Int64:
        """(R, N)."""
        row = np.arange(len(self.q))[:, None]
        mantissa, exponent = self.mantissa[row, self.distance], self.exponent[row, self.distance]
        return leak.read(mantissa, exponent, self.gain[:, None], self.bits)

    @property
    def mass(self) -> Int64:
        return np.asarray(self.affinity.sum(axis=1))

    @property
    def scale(self) -> Int64:
        return np.asarray(pow2_exponent(self.mass)).astype(np.int64)

    @property
    def sums(self) -> Int64:
        """(R, C)."""
        return np.asarray(np.einsum("rn,rnc->rc", self.affinity, self.v))

    @property
    def activity(self) -> dict[str, float]:
        """The share of codes that are not zero."""
        return {name: float((getattr(self, name) != 0).mean()) for name in ("q", "k", "v")}

    def unsigned(self) -> Stimuli:
        """The positive parts, as a network without OFF neurons has them."""
        names = ("q", "k", "v", "q_real", "k_real", "v_real")
        return replace(self, **{name: np.maximum(getattr(self, name), 0) for name in names})

    def thinned(self, activity: float) -> Stimuli:
        """Codes silenced at random until no more than a share of them fires."""
        random = np.random.default_rng(SEED)
        changed: dict[str, Any] = {}
        for name in ("q", "k", "v"):
            codes = getattr(self, name)
            share = float((codes != 0).mean())
            silent = random.random(codes.shape) >= activity / max(share, activity)
            changed[name] = np.where(silent, 0, codes)
            changed[f"{name}_real"] = np.where(silent, 0.0, getattr(self, f"{name}_real"))
        return replace(self, **changed)


def stimuli_of(network: Network, trace: Trace, images: int, count: int = 8) -> Stimuli:
    """`count` query rows, spread over blocks, heads, images and tokens."""
    config = network.config
    membranes = network.membranes_by_distance()
    parts: list[tuple[npt.NDArray[np.float64], ...]] = []
    us, es = [], []
    for i in range(count):
        block, head, image = i * config.depth // count, i % config.heads, i % images
        token = (1 + i * (config.tokens - 1) // count) % config.tokens
        channels = slice(head * config.head_width, (head + 1) * config.head_width)
        codes = [np.asarray(trace[block, point])[image][:, channels].astype(np.float64) for point in ("q", "k", "v")]
        # A code is the floor of these numbers, so the numbers themselves lie half a code lower.
        pre = network.blocks[block].qkv.pre(np.asarray(trace[block, "attention_in"])[image]).astype(np.float64) - 0.5
        real = [x[:, channels] for x in np.split(pre, 3, axis=1)]
        parts.append((codes[0][token], codes[1], codes[2], real[0][token], real[1], real[2]))
        us.append(membranes[block][0][head].astype(np.int64))
        es.append(membranes[block][1][head].astype(np.int64))
    columns = [np.stack(column) for column in zip(*parts, strict=True)]
    q, k, v = (x.astype(np.int64) for x in columns[:3])
    return Stimuli(
        window=config.window,
        bits=config.affinity_bits,
        q=q,
        k=k,
        v=v,
        q_real=columns[3],
        k_real=columns[4],
        v_real=columns[5],
        mantissa=np.stack(us),
        exponent=np.stack(es),
        factor=_factor(network),
    )


def int8(real: Float64, window: int) -> Int64:
    """The same numbers as an int8 network has them: the window is 127."""
    return np.clip(np.floor(real * (INT8_MAX / window) + 0.5), -INT8_MAX, INT8_MAX).astype(np.int64)


def _factor(network: Network) -> tuple[int, int]:
    """The leak of the first head, nothing where affinities are stored."""
    first = network.blocks[0].leak
    return (0, 0) if first is None else (int(first.mantissa[0]), int(first.exponent[0]))
