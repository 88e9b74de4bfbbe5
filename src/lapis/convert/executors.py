"""Executors for `verify`: every way to run a network, as a function from bytes to integer logits and a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lapis.codes import round_half_up
from lapis.convert.torch_executor import DeployedEvaluator, TorchExecutor
from lapis.convert.verification import Executor
from lapis.deploy import arithmetic, integer
from lapis.deploy.arithmetic import Int64
from lapis.deploy.network import Network
from lapis.nn import LapisViT
from lapis.nn.attention import join_heads
from lapis.nn.pixels import normalise
from lapis.nn.quantizer import ActivationQuantizer, as_integers, required
from lapis.preprocess import Pixels
from lapis.trace import Point, Trace, Watched


def trained_executor(model: LapisViT, network: Network) -> Executor:
    """The trained network as evaluation runs it: in torch, in the deployed arithmetic where it has one."""
    runner = DeployedEvaluator(model, network.preprocess).runner
    if not isinstance(runner, TorchExecutor):
        return float_executor(model, network)

    def run(images: Pixels) -> Watched:
        logits, trace = runner.watch(torch.from_numpy(images))
        return Watched(logits.cpu().numpy(), trace)

    return Executor(run, "equal")


def float_executor(model: LapisViT, network: Network) -> Executor:
    """As in training, in FP32. One code that rounds differently changes all later ones, so nothing is required."""

    def run(images: Pixels) -> Watched:
        logits, trace = model.watch(normalise(torch.from_numpy(images), network.preprocess))
        return Watched(_integer_logits(logits, network), trace)

    return Executor(run, "none")


def stagewise_executor(model: LapisViT, network: Network) -> Executor:
    """Each stage of the trained network on the integer model's result of the stage before: only ties may differ."""

    @torch.no_grad()
    def run(images: Pixels) -> Watched:
        model.eval()
        codes, answered = Trace(network.config.window), Trace(network.config.window)
        stream, unit = integer.embed(network, images), 2.0**network.fraction_bits
        for index, block in enumerate(model.blocks):
            attn, mlp = block.attn, block.mlp
            _note(answered, index, "attention_in", attn.input, block.norm1(_real(stream, unit)))
            stream = integer.attention(network, index, stream, codes)
            q, k, v = attn.qkv(_value(required(attn.input), codes[index, "attention_in"])).chunk(3, dim=-1)
            _note(answered, index, "q", attn.qk, q)
            _note(answered, index, "k", attn.qk, k)
            _note(answered, index, "v", attn.v, v)
            qk = [by_head(codes[index, point], attn.heads) for point in ("q", "k")]
            values = required(attn.v).value(by_head(codes[index, "v"], attn.heads))
            _note(answered, index, "readout", attn.readout, join_heads(attn.mix(torch.stack(qk), values)))
            _note(answered, index, "mlp_in", mlp.input, block.norm2(_real(stream, unit)))
            stream = integer.feed_forward(network, index, stream, codes)
            hidden = mlp.activation(mlp.fc1(_value(required(mlp.input), codes[index, "mlp_in"])))
            _note(answered, index, "mlp_hidden", mlp.hidden, hidden)
        return Watched(_integer_logits(model.head(model.pool(_real(stream, unit))), network), answered)

    return Executor(run, "ties")


def _note(trace: Trace, index: int, point: Point, quantizer: ActivationQuantizer | None, x: Tensor) -> None:
    trace.note(index, point, as_integers(required(quantizer).codes(x)))


def _integer_logits(logits: Tensor, network: Network) -> Int64:
    """Real logits as the nearest integers of the deployed network's scale."""
    scaled = np.ldexp(logits.double().cpu().numpy(), arithmetic.POOLED_BITS + network.head_exponent)
    return round_half_up(scaled).astype(np.int64)


def _real(stream: Any, unit: float) -> Tensor:
    return torch.from_numpy((stream / unit).astype(np.float32))


def _value(quantizer: ActivationQuantizer, codes: Any) -> Tensor:
    return quantizer.value(torch.from_numpy(codes.astype(np.float32)))


def by_head(codes: Any, heads: int) -> Tensor:
    """The codes (B, N, D) of a trace as a relation takes them (B, H, N, C)."""
    return torch.from_numpy(np.ascontiguousarray(integer.split_heads(codes, heads), dtype=np.float32))
