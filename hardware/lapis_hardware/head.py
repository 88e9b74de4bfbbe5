"""The numbers that make the modules one head of a network: parameters, membranes by distance, thresholds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lapis import LapisError
from lapis.codes import pow2_exponent
from lapis.deploy import Network, leak
from lapis.deploy.thresholds import readout_thresholds

Int64 = npt.NDArray[np.int64]
# Above this the adder tree of one lane takes synthesis minutes instead of seconds.
MOST_CHANNELS = 256


@dataclass(frozen=True)
class Head:
    """Head `head` of block `block`: `parameters` by their names in the modules, and the contents of its tables.

    mantissa and exponent (S,): the membrane at each distance. thresholds (scales, levels): the least sum of each code.
    factor: the leak as (B, b), None where the relation is stored as a table.
    """

    block: int
    head: int
    parameters: dict[str, int]
    mantissa: Int64
    exponent: Int64
    thresholds: Int64
    min_code_readout: int
    factor: tuple[int, int] | None

    @property
    def signed_codes(self) -> bool:
        return self.parameters["SIGNED_CODES"] == 1

    def without_off_neurons(self) -> Head:
        """The same head for codes 0..T, as the paper has them: fewer bits, and distances half as far."""
        p = self.parameters
        window, channels = p["WINDOW"], p["CHANNELS"]
        distances = channels * window + 1
        smaller = {
            "SIGNED_CODES": 0, "CODE_BITS": window.bit_length(), "OPERAND_BITS": channels * window.bit_length(),
            "WIRES": channels, "DISTANCES": distances, "DISTANCE_BITS": (distances - 1).bit_length(),
            "SIGNED_VALUES": 0, "VALUE_BITS": window.bit_length(),
        }  # fmt: skip
        return replace(
            self, parameters=p | smaller, mantissa=self.mantissa[:distances], exponent=self.exponent[:distances]
        )


def check_circuit(network: Network) -> None:
    """Refuse a network that the modules cannot take, with what is possible."""
    config = network.config
    if config.relative_position:
        raise LapisError(
            "style='beit' adds a delay to every pair, for which the score lanes have no port; "
            "use a network of style 'vit'"
        )
    if config.head_width > MOST_CHANNELS:
        raise LapisError(
            f"a head of {config.head_width} channels is too wide for one lane; use more heads, so that each has at "
            f"most {MOST_CHANNELS} channels"
        )


def head_of(network: Network, block: int = 0, head: int = 0) -> Head:
    """The circuit of one head; widths hold for every head of the network, so that only tables differ."""
    check_circuit(network)
    config = network.config
    if not (0 <= block < config.depth and 0 <= head < config.heads):
        raise LapisError(
            f"there is no head {head} in block {block}; use blocks 0 to {config.depth - 1} and heads 0 to "
            f"{config.heads - 1}"
        )
    return next(one for one in heads_of(network) if (one.block, one.head) == (block, head))


def heads_of(network: Network) -> Iterator[Head]:
    """The circuits of all heads, block by block."""
    check_circuit(network)
    membranes = network.membranes_by_distance()
    lowest = min(int(es.min()) for _, es in membranes)
    highest = max(int(es.max()) for _, es in membranes)
    bits = network.config.affinity_bits
    scales = _scales(network.config.tokens, bits)
    for index, (block, (us, es)) in enumerate(zip(network.blocks, membranes, strict=True)):
        thresholds = readout_thresholds(block.readout, network.low("readout"), network.config.window, scales)
        for head in range(network.config.heads):
            own = block.leak
            yield Head(
                block=index,
                head=head,
                parameters=_parameters(network, us.shape[1], highest - lowest, scales),
                mantissa=us[head].astype(np.int64) >> (leak.MANTISSA_BITS - bits - 1),
                exponent=es[head] - lowest,
                thresholds=thresholds,
                min_code_readout=network.min_code("readout", index),
                factor=None if own is None else (int(own.mantissa[head]), int(own.exponent[head])),
            )


def _scales(tokens: int, bits: int) -> range:
    """The powers of two that a row sum may round to: its nearest key alone, or all keys at the largest affinity."""
    ends = np.array([1 << (bits - 1), tokens * ((1 << bits) - 1)])
    low, high = pow2_exponent(ends)
    return range(int(low), int(high) + 1)


def _parameters(network: Network, distances: int, exponents: int, scales: range) -> dict[str, int]:
    config = network.config
    channels, window, keys = config.head_width, config.window, config.tokens
    bits = config.affinity_bits
    mass = keys * ((1 << bits) - 1)
    signed = {point: int(network.low(point) < 0) for point in ("q", "v", "readout")}
    return {
        "CHANNELS": channels,
        "KEYS": keys,
        "WINDOW": window,
        "SIGNED_CODES": signed["q"],
        "CODE_BITS": (window - network.low("q")).bit_length(),
        "OPERAND_BITS": channels * (window - network.low("q")).bit_length(),
        "WIRES": channels * (1 + signed["q"]),
        "DISTANCES": distances,
        "DISTANCE_BITS": (distances - 1).bit_length(),
        "AFFINITY_BITS": bits,
        "MANTISSA_BITS": bits + 1,
        "EXPONENT_BITS": max(1, exponents.bit_length()),
        "SIGNED_VALUES": signed["v"],
        "VALUE_BITS": window.bit_length() + signed["v"],
        "SUM_BITS": (mass * window + 1).bit_length() + 1,
        "MASS_BITS": mass.bit_length(),
        "SIGNED_READOUT": signed["readout"],
        "READOUT_BITS": window.bit_length() + signed["readout"],
        "LOWEST_SCALE": scales.start,
        "SCALES": len(scales),
        "SCALE_BITS": mass.bit_length().bit_length(),
        "INDEX_BITS": max(1, (keys - 1).bit_length()),
        "STEP_BITS": window.bit_length(),
        "LEAK": int(network.blocks[0].leak is not None),
    }
