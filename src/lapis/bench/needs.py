"""A calculation, not a measurement: the GPU memory and the hours that a recipe needs.

Memory: parameters with gradients and two moments, their copies in bf16, the activations of one GPU's share of the
batch, one block's activations more for what the backward pass holds at once, and an allowance for the driver. Hours:
the products of the dense layers, the attention of `lapis.bench.roofline`, and the bytes that all other operations move.
"""

from __future__ import annotations

from dataclasses import dataclass

from lapis.bench.activations import Saved, block_bytes, calculated, linear_weights
from lapis.bench.roofline import FLASH_REACHED, GPUS, REACHED, Gpu, roofline
from lapis.bench.sizes import Size
from lapis.config import LapisConfig
from lapis.energy.counts import dense_block, head, patch_embedding
from lapis.errors import LapisError
from lapis.train.recipe import Recipe

# Training images of each dataset.
IMAGES = {"imagenet": 1_281_167, "cifar10": 50_000, "cifar100": 50_000}
# The driver, its libraries and their scratch memory: an allowance, not a calculation.
DRIVER_GB = 1.5
# Parameter, gradient and AdamW's two moments, in float32; several GPUs add a second gradient, which is what they send.
BYTES_PER_PARAMETER, BYTES_SENT = 16, 4
# Activations are written once and read once; their gradients too.
PASSES = 4
# A step is one forward pass and a backward pass of twice its work; computing again adds a forward pass.
FORWARDS, FORWARDS_AGAIN = 3, 4


@dataclass(frozen=True)
class Needs:
    """GB of one GPU and hours of the whole run, without and with `optim.recompute`; calculated."""

    gpu: str
    gpus: int
    gb: float
    hours: float
    recompute_gb: float
    recompute_hours: float


def needs(recipe: Recipe, gpus: int) -> list[Needs]:
    """What a recipe needs on each kind of GPU, its batch divided among `gpus` of them."""
    if recipe.distill.teacher or recipe.data.dataset not in IMAGES:
        raise LapisError(
            f"{recipe.name} is not calculated: it trains on {recipe.data.dataset}"
            f"{' with a teacher' if recipe.distill.teacher else ''}; use one of the recipes of ImageNet"
        )
    if recipe.optim.batch % (gpus * recipe.optim.accumulate):
        raise LapisError(f"a batch of {recipe.optim.batch} does not split over {gpus} GPUs; choose another --gpus")
    sizes = [memory_gb(recipe, gpus, again) for again in (False, True)]
    found = []
    for gpu in GPUS:
        hours = [training_hours(recipe, gpu, gpus, again) for again in (False, True)]
        found.append(Needs(gpu.name, gpus, sizes[0], hours[0], sizes[1], hours[1]))
    return found


def memory_gb(recipe: Recipe, gpus: int, recompute: bool) -> float:
    """Memory of one GPU, in 10**9 bytes."""
    config, optim = recipe.model, recipe.optim
    images = optim.batch // (gpus * optim.accumulate)
    saved: Saved = calculated(config, optim.precision, recompute)
    fixed = parameters(config) * (BYTES_PER_PARAMETER + (BYTES_SENT if gpus > 1 else 0)) + saved.fixed
    working = block_bytes(config, optim.precision)
    return (fixed + images * (saved.per_image + working)) / 1e9 + DRIVER_GB


def training_hours(recipe: Recipe, gpu: Gpu, gpus: int, recompute: bool) -> float:
    """Hours of all epochs."""
    seconds = seconds_per_image(recipe, gpu, recompute)
    return IMAGES[recipe.data.dataset] * recipe.optim.epochs * seconds / gpus / 3600


def seconds_per_image(recipe: Recipe, gpu: Gpu, recompute: bool) -> float:
    """One image through forward and backward pass: products, attention, and what moves memory."""
    config, precision = recipe.model, recipe.optim.precision
    forwards = FORWARDS_AGAIN if recompute else FORWARDS
    block = dense_block(config)
    linear = block["qkv"] + block["proj"] + block["fc1"] + block["fc2"]
    multiplications = config.depth * linear + patch_embedding(config) + head(config)
    products = forwards * 2 * multiplications / (gpu.bf16_tflops * 1e12 * FLASH_REACHED)
    times = {row.work: row.microseconds for row in roofline(_layer(config)) if row.gpu == gpu.name}
    layer = times["lapis backward"] + (forwards - 2) * times["lapis forward"]
    moved = (PASSES + forwards - FORWARDS) * config.depth * block_bytes(config, precision)
    return products + config.depth * layer / 1e6 / LAYER_BATCH + moved / (gpu.tb_per_s * 1e12 * REACHED)


# Enough images that rounding to microseconds does not matter.
LAYER_BATCH = 128


def _layer(config: LapisConfig) -> Size:
    return Size(LAYER_BATCH, config.heads, config.tokens, config.head_width, config.window)


def parameters(config: LapisConfig) -> int:
    """Weights and biases of all layers; norms, steps and taus are too few to count."""
    biases = config.depth * (5 + config.mlp_ratio) * config.width
    outside = (config.patch_size**2 * config.image_channels + config.tokens + config.classes) * config.width
    return config.depth * linear_weights(config) + biases + outside
