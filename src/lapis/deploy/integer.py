"""The integer model defines what a deployed network computes; every executor must give the same bits.

It takes the bytes of images and gives integer logits. Each function is one stage; docs/format.md numbers them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lapis.codes import pow2_exponent
from lapis.deploy import arithmetic
from lapis.deploy.arithmetic import Codes, Float32, Int32, Int64
from lapis.deploy.network import Network, check_images
from lapis.ops.integer_attention.reference import integer_attention
from lapis.preprocess import Pixels
from lapis.trace import Point, Trace, Watched

# Images per batch; more are not faster and need more memory.
BATCH = 16
# The measuring points behind the joint layer of a block, in its order.
QKV: tuple[Point, ...] = ("q", "k", "v")


def run(network: Network, images: Pixels) -> Int64:
    """Integer logits (B, classes) of images (B, S, S, 3)."""
    return np.concatenate([_run(network, batch, None) for batch in _batches(network, images)])


def watch(network: Network, images: Pixels) -> Watched:
    """Integer logits, and the codes at every measuring point."""
    logits, traces = [], []
    for batch in _batches(network, images):
        traces.append(Trace(network.config.window))
        logits.append(_run(network, batch, traces[-1]))
    return Watched(np.concatenate(logits), Trace.joined(traces))


def embed(network: Network, images: Pixels) -> Int32:
    """Patches to tokens in fixed point: (B, S, S, 3) -> (B, N, D)."""
    config, side = network.config, network.config.patch_size
    batch, grid = images.shape[0], config.grid
    patches = images.reshape(batch, grid, side, grid, side, 3).transpose(0, 1, 3, 2, 4, 5)
    total = arithmetic.exact_product(patches.reshape(batch, grid * grid, side * side * 3), network.patch_weight.T)
    tokens = np.zeros((batch, config.tokens, config.width), dtype=np.int64)
    tokens[:, :1] = network.position[:1]
    tokens[:, 1:] = arithmetic.round_shift(total, network.patch_shift) + network.position[1:]
    return arithmetic.saturate(tokens)


def attention(network: Network, index: int, stream: Int32, trace: Trace | None = None) -> Int32:
    """The stream (B, N, D) after the first half of a block."""
    block = network.blocks[index]
    codes = codes_at(network, index, "attention_in", block.attention_norm.pre(stream, network.eps))
    pres = zip(QKV, np.split(block.qkv.pre(codes), 3, axis=-1), strict=True)
    q, k, v = (codes_at(network, index, point, pre) for point, pre in pres)
    readout = codes_at(network, index, "readout", mixed(network, index, q, k, v))
    _note(trace, index, attention_in=codes, q=q, k=k, v=v, readout=readout)
    return arithmetic.add_to_stream(stream, block.proj.pre(readout))


def mixed(network: Network, index: int, q: Codes, k: Codes, v: Codes) -> Float32:
    """What the readout makes codes of (B, N, D): the row's power of two scales the sum, so no bits are lost."""
    readout = network.blocks[index].readout
    q, k, v = (split_heads(codes, network.config.heads) for codes in (q, k, v))
    total, mass = integer_attention(q, k, v, network.tables[index], network.delays[index], network.compared_by)
    scaled = np.ldexp(total.astype(np.float32), -pow2_exponent(mass)[..., None])
    return arithmetic.affine(join_heads(scaled), readout.scale, readout.shift)


def feed_forward(network: Network, index: int, stream: Int32, trace: Trace | None = None) -> Int32:
    """The stream (B, N, D) after the second half of a block."""
    block = network.blocks[index]
    codes = codes_at(network, index, "mlp_in", block.mlp_norm.pre(stream, network.eps))
    low, min_code = network.low("mlp_hidden"), network.min_code("mlp_hidden", index)
    hidden = arithmetic.ladder_codes(block.fc1.pre(codes), block.rise, block.fall, low, min_code)
    _note(trace, index, mlp_in=codes, mlp_hidden=hidden)
    return arithmetic.add_to_stream(stream, block.fc2.pre(hidden))


def classify(network: Network, stream: Int32) -> Int64:
    """Tokens (B, N, D) to integer logits (B, classes): the class token, or the rounded mean of the patches."""
    if network.config.mean_pooling:
        patches = stream.shape[1] - 1
        pooled = arithmetic.rounded_quotient(stream[:, 1:].sum(axis=1, dtype=np.int64), patches).astype(np.int32)
    else:
        pooled = stream[:, 0]
    token = arithmetic.pooled_token(arithmetic.standardise(pooled, network.eps))
    return arithmetic.exact_product(token, network.head_weight.T) + network.head_bias


def split_heads(codes: Codes, heads: int) -> Codes:
    """(B, N, D) -> (B, H, N, C)."""
    return np.asarray(codes.reshape(*codes.shape[:2], heads, -1).transpose(0, 2, 1, 3))


def join_heads(x: arithmetic.Array) -> arithmetic.Array:
    """(B, H, N, C) -> (B, N, H * C)."""
    return np.asarray(x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1))


def _batches(network: Network, images: Pixels) -> Iterator[Pixels]:
    check_images(images, network.config.image_size)
    return (images[start : start + BATCH] for start in range(0, len(images), BATCH))


def _run(network: Network, images: Pixels, trace: Trace | None) -> Int64:
    stream = embed(network, images)
    for index in range(network.config.depth):
        stream = attention(network, index, stream, trace)
        stream = feed_forward(network, index, stream, trace)
    return classify(network, stream)


def codes_at(network: Network, index: int, point: Point, pre: arithmetic.Float32) -> Codes:
    """The codes of a measuring point; a neuron that misses its deadline stays silent."""
    return arithmetic.floor_codes(pre, network.low(point), network.config.window, network.min_code(point, index))


def _note(trace: Trace | None, index: int, **codes: Codes) -> None:
    if trace is not None:
        for point, values in codes.items():
            trace.note(index, point, values)  # type: ignore[arg-type]
