"""Networks of any size with random weights, for measuring size and speed. Their answers have no meaning."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lapis.config import FLOAT_WEIGHTS, LapisConfig
from lapis.deploy.arithmetic import Float32
from lapis.deploy.ladder import LADDERS, Grid
from lapis.deploy.leak import leak_factor
from lapis.deploy.network import DEFAULT_FRACTION_BITS, Block, Layer, Leak, Network, Norm, Readout
from lapis.positions import offset_count
from lapis.preprocess import Preprocess


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
    mantissa, exponent = leak_factor(np.linspace(0.3, 0.6, config.heads) * window * config.head_width**0.5)
    delay = None
    if config.relative_position:
        delay = generator.integers(0, 8 * window, (offset_count(config.grid), config.heads), dtype=np.uint16)
    return Block(
        attention_norm=_norm(d, window),
        qkv=_layer(config, generator, 3 * d, d, window / 3),
        leak=Leak(mantissa, exponent, delay),
        readout=Readout(np.array(2.0, dtype=np.float32), np.array(0.5, dtype=np.float32)),
        proj=_layer(config, generator, d, d, 0.05 * (1 << DEFAULT_FRACTION_BITS)),
        mlp_norm=_norm(d, window),
        fc1=_layer(config, generator, hidden, d, 1.0),
        rise=rise,
        fall=fall,
        fc2=_layer(config, generator, d, hidden, 0.05 * (1 << DEFAULT_FRACTION_BITS)),
    )


def _norm(width: int, window: int) -> Norm:
    return Norm(np.full(width, window / 3, dtype=np.float32), np.full(width, 0.5, dtype=np.float32))


def _layer(config: LapisConfig, generator: np.random.Generator, outputs: int, inputs: int, spread: float) -> Layer:
    """Outputs of about `spread` in size, from codes of about a third of the window."""
    weight: npt.NDArray[np.int8] | Float32
    if config.weight_bits == FLOAT_WEIGHTS:
        weight = generator.standard_normal((outputs, inputs), dtype=np.float32)
        size = 1.0
    else:
        largest = 2 ** (config.weight_bits - 1) - 1
        weight = generator.integers(-largest, largest + 1, (outputs, inputs), dtype=np.int8)
        size = largest / 3**0.5
    scale = spread / (size * inputs**0.5 * config.window / 3)
    return Layer(weight, np.full(outputs, scale, dtype=np.float32), np.full(outputs, 0.5, dtype=np.float32))
