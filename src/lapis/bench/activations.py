"""The memory that a network's activations take between forward and backward pass on a GPU, per image.

`calculated` adds up what the modules of a block keep. `counted` asks torch: the network runs on tensors that have
shapes but no numbers, and every tensor that autograd saves is counted once. Neither needs a GPU.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call

from lapis.config import FLOAT_WEIGHTS, LapisConfig
from lapis.errors import LapisError
from lapis.nn import LapisViT
from lapis.nn.calibrated import Calibrated
from lapis.ops.gpu.choice import shapes_only
from lapis.relations import rule_of
from lapis.train.recipe import Precision

FLOAT = 4
# What the dense parts keep an activation in.
BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2}


class Saved(NamedTuple):
    """Bytes that one image adds, and bytes that are kept whatever the batch is."""

    per_image: int
    fixed: int


def calculated(config: LapisConfig, precision: Precision, recompute: bool = False) -> Saved:
    """What a Laplacian network keeps: with `recompute` the tokens before each block, else all of `block_bytes`."""
    tokens = FLOAT * config.tokens * config.width
    blocks = config.depth * (tokens if recompute else block_bytes(config, precision))
    images = BYTES[precision] * config.image_channels * config.image_size**2
    # A class token is a part of the tokens after the last block, which are all kept; a mean is a token of its own.
    pooled = FLOAT * config.width if config.mean_pooling else tokens
    last = pooled + 2 * FLOAT + BYTES[precision] * config.width  # the last norm, and the head
    delays = config.relative_position and not recompute
    fixed = config.depth * FLOAT * config.heads * config.tokens**2 if delays else 0
    return Saved(blocks + last + images, fixed + _weight_copies(config, precision, recompute))


def block_bytes(config: LapisConfig, precision: Precision) -> int:
    """What one block keeps of one image.

    Per token and channel: the inputs of both norms and of the quantizers before qkv and fc1 (4 float32), q, k and v
    before their quantizers (3) and after (3), the readout (1). The inputs of qkv, proj and fc1 and, R times, those of
    GELU and fc2, in the precision of the dense parts; R times the input of the hidden quantizer. Each scaled residual
    keeps what it scales. Per token: four numbers of two norms; per head, what the attention kernel keeps of a row.
    """
    if not config.quantize or rule_of(config.relation).stored != "leak":
        raise LapisError(
            f"the calculation is for networks that the fused attention serves, with relation=laplacian; this one has "
            f"relation={config.relation}, quantize={config.quantize}"
        )
    short, ratio = BYTES[precision], config.mlp_ratio
    per_value = (4 + 3 + 3 + 1) * FLOAT + 3 * short + ratio * (2 * short + FLOAT)
    if short == FLOAT and config.readout == "real":
        per_value -= short  # proj takes the readout itself
    if config.scales_layers:
        per_value += 2 * short
    return config.tokens * (config.width * per_value + 4 * FLOAT + 2 * FLOAT * config.heads)


def counted(config: LapisConfig, precision: Precision, recompute: bool = False) -> Saved:
    """What autograd saves when the network runs as on a GPU: from a batch of one and one of two."""
    with torch.device("meta"):
        model = LapisViT(config)
    model.train()
    model.recompute = recompute
    for module in model.modules():
        if isinstance(module, Calibrated):
            module.is_ready = True
    one, two = (_saved_bytes(model, batch, precision) for batch in (1, 2))
    return Saved(two - one, 2 * one - two)


def _saved_bytes(model: LapisViT, batch: int, precision: Precision) -> int:
    """Bytes of all storages that are saved, without those of parameters."""
    config, seen = model.config, dict[int, int]()
    kept: list[Tensor] = []  # a storage that is freed could give its address to another

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage._cdata] = storage.nbytes()
        kept.append(tensor)
        return tensor

    named = (*model.named_parameters(), *model.named_buffers())
    with FakeTensorMode(), shapes_only():
        state = {
            name: torch.empty(x.shape, dtype=x.dtype, requires_grad=isinstance(x, nn.Parameter)) for name, x in named
        }
        images = torch.empty(batch, config.image_channels, config.image_size, config.image_size)
        half = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
        with half, saved_tensors_hooks(note, lambda tensor: tensor):
            functional_call(model, state, (images,))
        for tensor in state.values():
            seen.pop(tensor.untyped_storage()._cdata, None)
    return sum(seen.values())


def _weight_copies(config: LapisConfig, precision: Precision, recompute: bool) -> int:
    """Weights as the products take them, where that is not as they are stored: in bf16, or on an integer grid.

    With `recompute` the copies of a block live while that block is computed.
    """
    short, own = BYTES[precision], config.weight_bits != FLOAT_WEIGHTS
    outside = config.patch_size**2 * config.image_channels * config.width + config.classes * config.width
    inside = 0 if recompute else config.depth * linear_weights(config)
    return (inside if own or short < FLOAT else 0) * short + (outside * short if short < FLOAT else 0)


def linear_weights(config: LapisConfig) -> int:
    """Weights of one block: qkv, proj, fc1 and fc2."""
    return (4 + 2 * config.mlp_ratio) * config.width**2
