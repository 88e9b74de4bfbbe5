"""Counts of operations: for a dense network from its shape, for a spiking one from the spikes that it fired.

L blocks, N tokens, D width, H heads, R MLP ratio. Counts are per image unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Literal, get_args

from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.trace import POINTS, Point, Tally

# The six operators of a block that spikes drive.
Operator = Literal["qkv", "relation", "value", "proj", "fc1", "fc2"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)
LINEAR: tuple[Operator, ...] = ("qkv", "proj", "fc1", "fc2")

# The measuring points whose spikes each operator receives.
INPUTS: dict[Operator, tuple[Point, ...]] = {
    "qkv": ("attention_in",),
    "relation": ("q", "k"),
    "value": ("v",),
    "proj": ("readout",),
    "fc1": ("mlp_in",),
    "fc2": ("mlp_hidden",),
}

# The points that spike in each window of a block; a window waits until the previous one has ended.
WINDOWS: tuple[tuple[Point, ...], ...] = (
    ("attention_in",),
    ("q", "k", "v"),
    ("readout",),
    ("mlp_in",),
    ("mlp_hidden",),
)


def window_steps(config: LapisConfig) -> int:
    """The latency of one image in steps of all windows, 5 L T; a window ends with the latest deadline in it."""
    windows = [points for points in WINDOWS if set(points) <= set(needed_points(config))]
    latest = (
        min(config.min_code_of(at, block) for at in points) for block in range(config.depth) for points in windows
    )
    return sum(config.window - min_code + 1 for min_code in latest)


def code_bits(config: LapisConfig, point: Point) -> int:
    """The width of an integer that holds every code of a measuring point."""
    return (config.window - config.low(point)).bit_length()


def dense_block(config: LapisConfig) -> dict[Operator, int]:
    """Multiply-accumulates of one dense block: 3ND^2, N^2 D, N^2 D, ND^2, RND^2, RND^2."""
    n, d, hidden = config.tokens, config.width, config.hidden
    return {
        "qkv": 3 * n * d * d,
        "relation": n * n * d,
        "value": n * n * d,
        "proj": n * d * d,
        "fc1": n * d * hidden,
        "fc2": n * hidden * d,
    }


def patch_embedding(config: LapisConfig) -> int:
    """Multiply-accumulates of the patch embedding: one dot product per patch and channel."""
    return config.grid**2 * config.image_channels * config.patch_size**2 * config.width


def head(config: LapisConfig) -> int:
    """Multiply-accumulates of the classifier, on one pooled token."""
    return config.width * config.classes


def dense_model(config: LapisConfig) -> int:
    """Multiply-accumulates of the dense network: 12 L N D^2 + 2 L N^2 D + patch + head when R = 4."""
    return config.depth * sum(dense_block(config).values()) + patch_embedding(config) + head(config)


def pairs(config: LapisConfig) -> int:
    """Query-key pairs of one block, H N^2: affinity lookups, and divisions where rows are scaled exactly."""
    return config.heads * config.tokens**2


def neurons(config: LapisConfig, point: Point) -> int:
    """Values coded at a measuring point of one block."""
    return config.tokens * (config.hidden if point == "mlp_hidden" else config.width)


def fan_out(config: LapisConfig, operator: Operator) -> int:
    """How many targets one spike reaches in `operator`."""
    return dense_block(config)[operator] // neurons(config, INPUTS[operator][0])


def deliveries(config: LapisConfig, tally: Tally) -> dict[tuple[int, Operator], int]:
    """Spikes delivered to each operator of each block, over all images of the tally: fired spikes times fan-out.

    A q spike reaches the N keys of its head and channel, a k spike the N queries: N (fired q + fired k) together.
    """
    check_tally(config, tally)
    return {
        (block, operator): sum(tally.fired[block, point] for point in INPUTS[operator]) * fan_out(config, operator)
        for block in range(config.depth)
        for operator in OPERATORS
        if all((block, point) in tally.fired for point in INPUTS[operator])
    }


def needed_points(config: LapisConfig) -> tuple[Point, ...]:
    """The measuring points that fire in this network: none in a dense network, and not the readout if it stays real."""
    if not config.quantize:
        return ()
    return tuple(point for point in POINTS if point != "readout" or config.readout == "spikes")


def check_points(config: LapisConfig, found: Container[tuple[int, Point]]) -> None:
    """Raise an error if a point is missing where this network fires."""
    needed = needed_points(config)
    for block in range(config.depth):
        missing = [point for point in needed if (block, point) not in found]
        if missing:
            raise LapisError(
                f"block {block} has no activity for {', '.join(missing)}; this network of {config.depth} blocks fires "
                f"at {', '.join(needed)}"
            )


def check_tally(config: LapisConfig, tally: Tally) -> None:
    """Raise an error if the tally is not of a network of this shape."""
    if tally.images < 1:
        raise LapisError("the tally holds no images; measure at least one")
    check_points(config, tally.fired)
    for (block, point), seen in tally.neurons.items():
        expected = tally.images * neurons(config, point)
        if not 0 <= block < config.depth:
            raise LapisError(f"the tally names block {block}, but depth={config.depth}; it is of another network")
        if seen != expected:
            raise LapisError(
                f"the tally saw {seen} neurons at point {point!r} of block {block}; {tally.images} images of this "
                f"configuration have {expected}. Give the configuration that was measured"
            )
