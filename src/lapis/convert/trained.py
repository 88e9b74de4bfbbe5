"""The trained network as an executor: as it is, and stage by stage on what the integer model saw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lapis.convert.deployed import Deployed, as_deployed
from lapis.convert.from_model import from_model
from lapis.convert.network import DEFAULT_FRACTION_BITS, Network
from lapis.convert.verify import Executor
from lapis.nn import LapisViT, load_network
from lapis.nn.quantizer import ActivationQuantizer
from lapis.preprocess import Pixels, Preprocess
from lapis.trace import Trace


def convert_checkpoint(path: Path, fraction_bits: int = DEFAULT_FRACTION_BITS) -> tuple[Network, LapisViT]:
    """The deployed form of a training checkpoint, and the trained network itself."""
    model, about = load_network(path)
    names = about.get("class_names", [])
    if not isinstance(names, list) or len(names) != model.config.classes:
        names = []
    network = from_model(model, preprocess_of(about, model.config.image_size), [str(n) for n in names], fraction_bits)
    return network, model


def preprocess_of(about: dict[str, Any], size: int) -> Preprocess:
    """How a checkpoint says that its images are prepared; for one that does not, ImageNet's rule."""
    said = about.get("preprocess")
    return Preprocess(size) if said is None else Preprocess.from_dict(said)


def trained_executor(model: LapisViT, preprocess: Preprocess) -> Executor:
    """The trained network as evaluation runs it: in torch, in the deployed arithmetic where it has one."""
    evaluated = as_deployed(model, preprocess)
    return Executor(_watcher(evaluated, preprocess), "none" if evaluated is model else "equal")


def float_executor(model: LapisViT, preprocess: Preprocess) -> Executor:
    """As training runs it, in FP32. One code on the other side of a tie changes all that follows: no promise."""
    return Executor(_watcher(model, preprocess), "none")


def _watcher(model: LapisViT | Deployed, preprocess: Preprocess) -> Callable[[Pixels], tuple[Any, Trace]]:
    def run(images: Pixels) -> tuple[Any, Trace]:
        logits, trace = model.watch(to_tensor(images, preprocess))
        return logits.numpy(), trace

    return run


def stagewise_executor(model: LapisViT, network: Network) -> Executor:
    """Each stage of the trained network on what the integer model gave the stage before: only ties may differ."""

    def run(images: Pixels) -> tuple[Any, Trace]:
        return _stagewise(model, network, images)

    return Executor(run, "ties")


def to_tensor(images: Pixels, preprocess: Preprocess) -> Tensor:
    """Bytes (B, S, S, 3) as the normalised (B, 3, S, S) that a network trains on."""
    return torch.from_numpy(np.ascontiguousarray(preprocess.normalise(images).transpose(0, 3, 1, 2)))


@torch.no_grad()
def _stagewise(model: LapisViT, network: Network, images: Pixels) -> tuple[Any, Trace]:
    model.eval()
    codes, answered = Trace(network.config.window), Trace(network.config.window)
    stream, unit = network.embed(images), 2.0**network.fraction_bits
    block: Any
    for index, block in enumerate(model.blocks):
        attn, mlp = block.attn, block.mlp
        answered.note(index, "attention_in", attn.input.integers(block.norm1(_real(stream, unit))))
        stream = network.attention(index, stream, codes)
        qkv = attn.qkv(_value(attn.input, codes[index, "attention_in"]))
        q, k, v = qkv.chunk(3, dim=-1)
        answered.note(index, "q", attn.qk.integers(q))
        answered.note(index, "k", attn.qk.integers(k))
        answered.note(index, "v", attn.v.integers(v))
        seen = [
            _value(attn.qk, codes[index, "q"]),
            _value(attn.qk, codes[index, "k"]),
            _value(attn.v, codes[index, "v"]),
        ]
        q, k, v = (x.view(*x.shape[:2], attn.heads, -1).transpose(1, 2).contiguous() for x in seen)
        mixed = attn._mix(torch.stack([q, k]), v).transpose(1, 2).flatten(2)
        answered.note(index, "readout", attn.readout.integers(mixed))
        answered.note(index, "mlp_in", mlp.input.integers(block.norm2(_real(stream, unit))))
        stream = network.feed_forward(index, stream, codes)
        hidden = F.gelu(mlp.fc1(_value(mlp.input, codes[index, "mlp_in"])))
        answered.note(index, "mlp_hidden", mlp.hidden.integers(hidden))
    return model.head(model._pool(_real(stream, unit))).numpy(), answered


def _real(stream: Any, unit: float) -> Tensor:
    return torch.from_numpy((stream / unit).astype(np.float32))


def _value(quantizer: ActivationQuantizer, codes: Any) -> Tensor:
    """What codes stand for, as the trained network has it: z s + o."""
    value = torch.from_numpy(codes.astype(np.float32)) * quantizer.step
    return value if quantizer.offset is None else value + quantizer.offset
