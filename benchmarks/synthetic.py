"""Networks of any size with random weights, for measuring size and speed. Their answers have no meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from lapis.config import AFFINITY_BITS, LapisConfig
from lapis.deploy import arithmetic, integer
from lapis.deploy.arithmetic import Float32
from lapis.deploy.leak import affinity_tables, leak_factor, leak_table, membranes
from lapis.deploy.network import (
    DEFAULT_FRACTION_BITS,
    Affinities,
    Block,
    Layer,
    Leak,
    Network,
    Norm,
    Readout,
)
from lapis.deploy.schema import code_distances
from lapis.deploy.thresholds import LADDERS, Grid
from lapis.errors import LapisError
from lapis.ops.integer_attention.reference import AffinityTables
from lapis.positions import offset_count
from lapis.preprocess import Pixels, Preprocess
from lapis.relations import rule_of
from lapis.trace import Point


def tables_of(tau: npt.ArrayLike, size: int, bits: int = AFFINITY_BITS) -> AffinityTables:
    """The affinity tables of heads tau (H,) for distances 0..size-1."""
    return affinity_tables([leak_table(*leak_factor(tau), size)], bits)[0]


def random_network(config: LapisConfig, seed: int = 0) -> Network:
    """A network of `config` whose activations use the codes about as a trained network does."""
    generator = np.random.default_rng(seed)
    d, fraction = config.width, DEFAULT_FRACTION_BITS
    return Network(
        config=config,
        preprocess=Preprocess(config.image_size),
        class_names=(),
        fraction_bits=fraction,
        patch_weight=generator.integers(-3000, 3001, (d, config.patch_size**2 * 3), dtype=np.int16),
        patch_shift=np.full(d, 8, dtype=np.uint8),
        position=generator.integers(
            -(1 << fraction), 1 << fraction, (2 if config.relative_position else config.tokens, d), dtype=np.int32
        ),
        blocks=tuple(_block(config, generator) for _ in range(config.depth)),
        head_weight=generator.integers(-32767, 32768, (config.classes, d), dtype=np.int16),
        head_bias=np.zeros(config.classes, dtype=np.int64),
        head_exponent=16,
    )


def _block(config: LapisConfig, generator: np.random.Generator) -> Block:
    d, window, hidden = config.width, config.window, config.hidden
    grid = Grid(4.0 / window, 0.0, config.low("mlp_hidden"), window)
    rise, fall = LADDERS[config.activation](grid)
    # A typical spread of distances; products of codes are larger by about a third of the window.
    spread = window * config.head_width**0.5 * (window / 3 if rule_of(config.relation).compared_by == "dot" else 1)
    mantissa, exponent = leak_factor(np.linspace(0.3, 0.6, config.heads) * spread)
    stored = rule_of(config.relation).stored
    delay = None
    if config.relative_position:
        delay = generator.integers(0, 8 * window, (offset_count(config.grid), config.heads), dtype=np.uint16)
    return Block(
        attention_norm=_norm(d, window),
        qkv=random_layer(config, generator, 3 * d, d, window / 3),
        leak=Leak(mantissa, exponent, delay) if stored == "leak" else None,
        readout=Readout(np.array(2.0, dtype=np.float32), np.array(0.5, dtype=np.float32)),
        proj=random_layer(config, generator, d, d, 0.05 * (1 << DEFAULT_FRACTION_BITS)),
        mlp_norm=_norm(d, window),
        fc1=random_layer(config, generator, hidden, d, 1.0),
        rise=rise,
        fall=fall,
        fc2=random_layer(config, generator, d, hidden, 0.05 * (1 << DEFAULT_FRACTION_BITS)),
        affinity=_affinities(config) if stored == "table" else None,
    )


def _affinities(config: LapisConfig) -> Affinities:
    """A = 1 / (1 + D / scale)**(1 + head): as heads differ, so do the powers of two that a row passes through."""
    distance = np.arange(code_distances(config)) / (config.window * config.head_width**0.5)
    return Affinities(*membranes(-np.log2(1 + distance) * np.arange(1, config.heads + 1)[:, None]))


def _norm(width: int, window: int) -> Norm:
    return Norm(np.full(width, window / 3, dtype=np.float32), np.full(width, 0.5, dtype=np.float32))


def random_layer(
    config: LapisConfig, generator: np.random.Generator, outputs: int, inputs: int, spread: float
) -> Layer:
    """Outputs of about `spread` in size, from codes of about a third of the window."""
    largest = 2 ** (config.weight_bits - 1) - 1
    weight = generator.integers(-largest, largest + 1, (outputs, inputs), dtype=np.int8)
    scale = spread / (largest / 3**0.5 * inputs**0.5 * config.window / 3)
    return Layer(weight, np.full(outputs, scale, dtype=np.float32), np.full(outputs, 0.5, dtype=np.float32))


def with_activity(network: Network, activity: Mapping[Point, float], images: Pixels) -> Network:
    """The network with its quantizers moved until these shares of neurons fire on `images`, and that recorded.

    Unsigned neurons get a lower offset, signed ones a coarser step. Points that are not named stay as they are.
    """
    if network.low("mlp_hidden") and "mlp_hidden" in activity:
        raise LapisError("mlp_hidden is signed here, and its GELU cannot be silenced by an offset; use unsigned codes")
    stream = integer.embed(network, images)
    blocks: list[Block] = []
    for index, block in enumerate(network.blocks):
        # By itself, because every change of a network checks all its blocks again.
        alone = dataclasses.replace(network, config=network.config.of_block(index), blocks=(block,), activity={})
        alone = _silence_attention(alone, stream, activity)
        stream = integer.attention(alone, 0, stream)
        alone = _silence_mlp(alone, stream, activity)
        stream = integer.feed_forward(alone, 0, stream)
        blocks += alone.blocks
    shares = {point: (share,) * network.config.depth for point, share in activity.items()}
    return dataclasses.replace(network, blocks=tuple(blocks), activity=shares)


def _silence_attention(network: Network, stream: arithmetic.Int32, activity: Mapping[Point, float]) -> Network:
    block, width = network.blocks[0], network.config.width
    norm, qkv, readout = block.attention_norm, block.qkv, block.readout
    if "attention_in" in activity:
        gain, offset = _moved(network, "attention_in", norm.pre(stream, network.eps), activity)
        norm = Norm(norm.gain * gain, norm.shift + offset)
    codes = integer.codes_at(network, 0, "attention_in", norm.pre(stream, network.eps))
    scale, shift = qkv.scale.copy(), qkv.shift.copy()
    points: tuple[Point, ...] = ("q", "k", "v")
    for part, point in enumerate(points):
        if point in activity:
            own = slice(part * width, (part + 1) * width)
            gain, offset = _moved(network, point, qkv.pre(codes)[..., own], activity)
            scale[own] *= gain
            shift[own] += offset
    qkv = Layer(qkv.weight, scale, shift)
    if "readout" in activity:
        pres = np.split(qkv.pre(codes), 3, axis=-1)
        q, k, v = (integer.codes_at(network, 0, point, pre) for point, pre in zip(points, pres, strict=True))
        gain, offset = _moved(network, "readout", integer.mixed(network, 0, q, k, v), activity)
        readout = Readout(np.asarray(readout.scale * gain), np.asarray(readout.shift + offset))
    return _with_block(network, dataclasses.replace(block, attention_norm=norm, qkv=qkv, readout=readout))


def _silence_mlp(network: Network, stream: arithmetic.Int32, activity: Mapping[Point, float]) -> Network:
    block = network.blocks[0]
    norm, fc1 = block.mlp_norm, block.fc1
    if "mlp_in" in activity:
        gain, offset = _moved(network, "mlp_in", norm.pre(stream, network.eps), activity)
        norm = Norm(norm.gain * gain, norm.shift + offset)
    if "mlp_hidden" in activity:
        codes = integer.codes_at(network, 0, "mlp_in", norm.pre(stream, network.eps))
        level = block.rise[network.min_code("mlp_hidden", 0) - 1]
        offset = np.float32(level - np.quantile(fc1.pre(codes), 1 - activity["mlp_hidden"]))
        fc1 = Layer(fc1.weight, fc1.scale, fc1.shift + offset)
    return _with_block(network, dataclasses.replace(block, mlp_norm=norm, fc1=fc1))


def _moved(
    network: Network, point: Point, pre: Float32, activity: Mapping[Point, float]
) -> tuple[np.float32, np.float32]:
    """The factor and the offset of pre - 1/2 after which the wanted share of neurons fires."""
    share, min_code = activity[point], network.min_code(point, 0)
    if network.low(point):
        return np.float32((min_code - 0.5) / np.quantile(np.abs(pre - 0.5), 1 - share)), np.float32(0)
    return np.float32(1), np.float32(min_code - np.quantile(pre, 1 - share))


def _with_block(network: Network, block: Block) -> Network:
    return dataclasses.replace(network, blocks=(block,))
