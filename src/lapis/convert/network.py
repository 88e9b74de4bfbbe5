"""The deployed network: frozen arrays, and the integer model that defines what every executor must answer.

Shapes: N tokens, D width, H heads, C = D / H, T window, L blocks. Codes are integers low..T, low = 0, or -T for signed
points. The residual stream is int32 with `fraction_bits` bits behind the point.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lapis.codes import pow2_exponent
from lapis.config import FLOAT_WEIGHTS, LapisConfig, Mode
from lapis.convert import arithmetic, leak
from lapis.convert.arithmetic import Array, Codes, Float32, Int32, Int64
from lapis.errors import LapisError
from lapis.positions import offset_count, relative_offsets
from lapis.preprocess import Pixels, Preprocess
from lapis.trace import Point, Trace

# Images that go through the network together; more gains nothing and costs memory.
BATCH = 16
# The residual stream's precision: 8 bits leave whole codes undecided, 20 leave a range of only +-64.
FRACTION_BITS = range(8, 21)
DEFAULT_FRACTION_BITS = 16
# An affine result beyond this is no activation but a damaged file.
SANE = 1e30
DELTA_LIMIT = 1 << 30
MAX_PATCH_SHIFT = 30
# Leak steps that a position may add; tables of affinities grow with them.
LONGEST_DELAY = (1 << 14) - 1
MAX_HEAD_EXPONENT = 40


class Watched(NamedTuple):
    """Logits, and the codes at every measuring point."""

    logits: Float32
    trace: Trace


class _Frozen:
    """A record of arrays that nobody can write to."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                view = value.view()
                view.setflags(write=False)
                object.__setattr__(self, field.name, view)


@dataclass(frozen=True)
class Norm(_Frozen):
    """LayerNorm and its quantizer: code = clamp(floor(fl(fl(u gain) + shift))), u the standardised stream; (D,) each.

    gain = gamma / s and shift = (beta - o) / s + 1/2.
    """

    gain: Float32
    shift: Float32

    def pre(self, stream: Int32, eps: float) -> Float32:
        return np.asarray(arithmetic.standardise(stream, eps) * self.gain + self.shift, dtype=np.float32)


@dataclass(frozen=True)
class Layer(_Frozen):
    """A linear layer on codes: pre = fl(fl(fl(sum_i w_oi z_i) scale_o) + shift_o); weight (O, I), scale and shift (O,).

    Integer weights sum exactly. Float weights (FP32 models) are summed in float64 and rounded once to float32.
    """

    weight: Array
    scale: Float32
    shift: Float32

    @property
    def exact(self) -> bool:
        return np.issubdtype(self.weight.dtype, np.integer)

    def total(self, codes: Codes) -> Float32:
        """sum_i w_oi z_i: (..., I) -> (..., O), integer-valued where the weights are."""
        if self.exact:
            return np.asarray(codes.astype(np.float32) @ self.weight.astype(np.float32).T)
        return np.asarray(codes.astype(np.float64) @ self.weight.astype(np.float64).T).astype(np.float32)

    def pre(self, codes: Codes) -> Float32:
        return arithmetic.affine(self.total(codes), self.scale, self.shift)


@dataclass(frozen=True)
class Leak(_Frozen):
    """beta_h = mantissa_h 2**-(32 + exponent_h), and the delay of every offset (E, H) where positions are relative."""

    mantissa: npt.NDArray[np.uint32]
    exponent: Int32
    delay: npt.NDArray[np.uint16] | None = None


@dataclass(frozen=True)
class Readout(_Frozen):
    """The mixed values as spikes: pre = fl(fl(fl(acc) 2**-k scale) + shift); scale = s_v / s_r, 0-dim."""

    scale: Float32
    shift: Float32


@dataclass(frozen=True)
class Block(_Frozen):
    """One transformer block; rise and fall (levels,) are the comparison ladder of GELU and its quantizer."""

    attention_norm: Norm
    qkv: Layer
    leak: Leak
    readout: Readout
    proj: Layer
    mlp_norm: Norm
    fc1: Layer
    rise: Float32
    fall: Float32
    fc2: Layer


@dataclass(frozen=True)
class Network(_Frozen):
    """A converted LapisViT: images (B, S, S, 3) of bytes -> logits (B, classes). No torch, nothing to train.

    patch_weight (D, P*P*3) int16 in the image's own order (row, column, colour); position (N, D) or, where positions
    are relative, (2, D): class token, patches. head_weight (classes, D) int16, logits = integers 2**-(10 + exponent).
    """

    config: LapisConfig
    preprocess: Preprocess
    class_names: tuple[str, ...]
    fraction_bits: int
    patch_weight: npt.NDArray[np.int16]
    patch_shift: npt.NDArray[np.uint8]
    position: Int32
    blocks: tuple[Block, ...]
    head_weight: npt.NDArray[np.int16]
    head_bias: Int64
    head_exponent: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_network(self)

    @property
    def exact(self) -> bool:
        """Whether every sum is one of integers, so that all executors agree bit for bit."""
        return self.config.weight_bits != FLOAT_WEIGHTS

    @property
    def eps(self) -> float:
        """LayerNorm's epsilon in units of the stream."""
        return float(arithmetic.NORM_EPS * 4.0**self.fraction_bits)

    def low(self, point: Point) -> int:
        """The least code at a measuring point."""
        return -self.config.window if point_mode(self.config, point) == "signed" else 0

    def forward(self, images: Pixels) -> Float32:
        """Logits (B, classes)."""
        return self._collect(images, None)

    def watch(self, images: Pixels) -> Watched:
        """Logits and the integer codes at every measuring point."""
        traces: list[Trace] = []
        logits = self._collect(images, traces)
        whole = Trace(self.config.window)
        for key in traces[0]:
            whole.note(*key, np.concatenate([trace[key] for trace in traces]))
        return Watched(logits, whole)

    @cached_property
    def delays(self) -> tuple[npt.NDArray[np.int64] | None, ...]:
        """(H, N, N) of every block, None where positions are absolute."""
        index = relative_offsets(self.config.grid) if self.config.relative_position else None
        return tuple(
            None
            if index is None or block.leak.delay is None
            else block.leak.delay.astype(np.int64)[index].transpose(2, 0, 1)
            for block in self.blocks
        )

    @cached_property
    def leaks(self) -> tuple[tuple[npt.NDArray[np.uint32], Int64], ...]:
        """Every membrane value (H, S) and exponent (H, S) that a block's leak can reach."""
        sizes = [self.distances(index) for index in range(self.config.depth)]
        mantissa = np.concatenate([block.leak.mantissa for block in self.blocks])
        exponent = np.concatenate([block.leak.exponent for block in self.blocks])
        # One walk for all blocks, as long as the longest needs.
        us, es = leak.leak_table(mantissa, exponent, max(sizes))
        us = us.reshape(self.config.depth, self.config.heads, -1)
        es = es.reshape(self.config.depth, self.config.heads, -1)
        return tuple((us[index, :, :size], es[index, :, :size]) for index, size in enumerate(sizes))

    def distances(self, block: int) -> int:
        """How many distances there are in a block, 0 included: its longest delay and C T, twice with signed codes."""
        delay = self.blocks[block].leak.delay
        longest = 0 if delay is None else int(delay.max())
        config = self.config
        return config.head_width * (config.window - self.low("q")) + longest + 1

    def embed(self, images: Pixels) -> Int32:
        """Patches to tokens in fixed point: (B, S, S, 3) -> (B, N, D)."""
        config, side = self.config, self.config.patch_size
        batch, grid = images.shape[0], config.grid
        patches = images.reshape(batch, grid, side, grid, side, 3).transpose(0, 1, 3, 2, 4, 5)
        total = arithmetic.exact_product(patches.reshape(batch, grid * grid, side * side * 3), self.patch_weight.T)
        tokens = np.zeros((batch, config.tokens, config.width), dtype=np.int64)
        tokens[:, 1:] = arithmetic.round_shift(total, self.patch_shift)
        tokens[:, :1] += self.position[:1]
        tokens[:, 1:] += self.position[1:]
        return np.clip(tokens, -arithmetic.STREAM_LIMIT, arithmetic.STREAM_LIMIT - 1).astype(np.int32)

    def classify(self, stream: Int32) -> Int64:
        """Tokens (B, N, D) to integer logits (B, classes): the class token, or the rounded mean of the patches."""
        if self.config.mean_pooling:
            patches = stream.shape[1] - 1
            pooled = (2 * stream[:, 1:].sum(axis=1, dtype=np.int64) + patches) // (2 * patches)
        else:
            pooled = stream[:, 0]
        unit = arithmetic.standardise(pooled.astype(np.int32), self.eps) * np.float32(1 << arithmetic.POOLED_BITS)
        token = np.clip(np.floor(unit + np.float32(0.5)), arithmetic.INT16.min, arithmetic.INT16.max)
        return arithmetic.exact_product(token, self.head_weight.T) + self.head_bias

    def to_logits(self, scores: Int64) -> Float32:
        """Integer logits as the real numbers that they stand for."""
        return arithmetic.to_logits(scores, self.head_exponent)

    def attend(self, index: int, q: Codes, k: Codes, v: Codes) -> tuple[Int64, Int64]:
        """acc_ic = sum_j A_ij v_jc (B, N, D) and Z_i = sum_j A_ij (B, H, N), A the affinities at the row's gain."""
        us, es = self.leaks[index]
        q, k, v = (self._split_heads(codes) for codes in (q, k, v))
        distance = l1_distance(q, k)
        delay = self.delays[index]
        if delay is not None:
            distance += delay
        head = np.arange(self.config.heads)[:, None, None]
        gain = es[head, distance.min(axis=-1, keepdims=True)]
        affinity = leak.read(us[head, distance], es[head, distance], gain)
        return _join_heads(arithmetic.exact_product(affinity, v)), affinity.sum(axis=-1)

    def read_out(self, index: int, total: Int64, mass: Int64) -> Codes:
        """The readout's codes (B, N, D): the row's power of two acts on the sum, so nothing is cut off."""
        readout = self.blocks[index].readout
        exponent = np.repeat(pow2_exponent(mass).transpose(0, 2, 1), self.config.head_width, axis=-1)
        scaled = np.ldexp(total.astype(np.float32), -exponent)
        return arithmetic.floor_codes(
            arithmetic.affine(scaled, readout.scale, readout.shift), self.low("readout"), self.config.window
        )

    def _collect(self, images: Pixels, traces: list[Trace] | None) -> Float32:
        check_images(images, self.config.image_size)
        logits = []
        for start in range(0, images.shape[0], BATCH):
            trace = None if traces is None else Trace(self.config.window)
            logits.append(self.to_logits(self._run(images[start : start + BATCH], trace)))
            if traces is not None and trace is not None:
                traces.append(trace)
        return np.concatenate(logits)

    def _run(self, images: Pixels, trace: Trace | None) -> Int64:
        stream = self.embed(images)
        for index in range(self.config.depth):
            stream = self.attention(index, stream, trace)
            stream = self.feed_forward(index, stream, trace)
        return self.classify(stream)

    def attention(self, index: int, stream: Int32, trace: Trace | None = None) -> Int32:
        """The stream behind the first half of a block."""
        block, window = self.blocks[index], self.config.window
        codes = arithmetic.floor_codes(block.attention_norm.pre(stream, self.eps), self.low("attention_in"), window)
        q_pre, k_pre, v_pre = np.split(block.qkv.pre(codes), 3, axis=-1)
        q, k = (arithmetic.floor_codes(pre, self.low("q"), window) for pre in (q_pre, k_pre))
        v = arithmetic.floor_codes(v_pre, self.low("v"), window)
        readout = self.read_out(index, *self.attend(index, q, k, v))
        _note(trace, index, attention_in=codes, q=q, k=k, v=v, readout=readout)
        return arithmetic.add_to_stream(stream, block.proj.pre(readout))

    def feed_forward(self, index: int, stream: Int32, trace: Trace | None = None) -> Int32:
        """The stream behind the second half of a block."""
        block = self.blocks[index]
        codes = arithmetic.floor_codes(block.mlp_norm.pre(stream, self.eps), self.low("mlp_in"), self.config.window)
        hidden = arithmetic.ladder_codes(block.fc1.pre(codes), block.rise, block.fall, self.low("mlp_hidden"))
        _note(trace, index, mlp_in=codes, mlp_hidden=hidden)
        return arithmetic.add_to_stream(stream, block.fc2.pre(hidden))

    def _split_heads(self, codes: Codes) -> Codes:
        """(B, N, D) -> (B, H, N, C)."""
        return codes.reshape(*codes.shape[:2], self.config.heads, -1).transpose(0, 2, 1, 3)


def l1_distance(q: Codes, k: Codes) -> Int64:
    """sum_c |q_ic - k_jc|, signed codes too: (..., N, C), (..., M, C) -> (..., N, M)."""
    distance = np.zeros((*q.shape[:-1], k.shape[-2]), dtype=np.int16)
    q16, k16 = q.astype(np.int16), k.astype(np.int16)
    total = np.zeros(distance.shape, dtype=np.int64)
    # An int16 holds 260 channels of the largest difference, 126.
    for start in range(0, q.shape[-1], 256):
        distance[...] = 0
        for channel in range(start, min(start + 256, q.shape[-1])):
            distance += np.abs(q16[..., :, None, channel] - k16[..., None, :, channel])
        total += distance
    return total


def point_mode(config: LapisConfig, point: Point) -> Mode:
    """The activation mode at a measuring point; q and k share theirs."""
    mode: Mode = getattr(config.modes, "qk" if point in ("q", "k") else point)
    return mode


def check_images(images: Pixels, size: int) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (size, size, 3) or not len(images):
        raise LapisError(
            f"images of shape {images.shape} and dtype {images.dtype} were given; "
            f"this network takes bytes (uint8) of shape (batch, {size}, {size}, 3), at least one image"
        )


def check_convertible(config: LapisConfig) -> None:
    """Refuse a network that has no spiking form, and say which field to train differently."""
    needed = {"quantize": True, "relation": "laplacian", "row_scale": "pow2", "readout": "spikes"}
    for name, value in needed.items():
        if getattr(config, name) != value:
            raise LapisError(
                f"{name}={getattr(config, name)!r} has no spiking form; fine-tune with {name}={value!r}, then convert"
            )
    if config.width > arithmetic.MAX_WIDTH:
        raise LapisError(f"width={config.width} is too wide; sums of squares are exact up to {arithmetic.MAX_WIDTH}")
    largest = config.tokens * leak.AFFINITY_MAX * config.window
    if largest >= 1 << 31:
        raise LapisError(
            f"{config.tokens} tokens and a window of {config.window} could overflow a 32-bit accumulator; "
            f"use at most {(1 << 31) // (leak.AFFINITY_MAX * config.window)} tokens"
        )


def check_network(network: Network) -> None:
    """Every bound that the arithmetic relies on; what passes cannot overflow, divide by zero or become NaN."""
    config = network.config
    check_convertible(config)
    if network.fraction_bits not in FRACTION_BITS:
        raise LapisError(f"fraction_bits={network.fraction_bits} is outside 8..20")
    if network.preprocess.size != config.image_size:
        raise LapisError(f"preprocessing makes {network.preprocess.size} pixels, the network takes {config.image_size}")
    if len(network.class_names) not in (0, config.classes):
        raise LapisError(f"{len(network.class_names)} class names were given for {config.classes} classes")
    if not 0 <= network.head_exponent <= MAX_HEAD_EXPONENT:
        raise LapisError(f"head_exponent={network.head_exponent} is outside 0..{MAX_HEAD_EXPONENT}")
    if len(network.blocks) != config.depth:
        raise LapisError(f"{len(network.blocks)} blocks were given for a depth of {config.depth}")
    for name, array, (kind, shape) in named_arrays(network):
        if array.dtype != kind or array.shape != shape:
            raise LapisError(
                f"{name} has dtype {array.dtype} and shape {array.shape}; this configuration needs {kind} {shape}"
            )
        if np.issubdtype(kind, np.floating) and not np.isfinite(array).all():
            raise LapisError(f"{name} holds NaN or infinity")
    _check_ends(network)
    for index, block in enumerate(network.blocks):
        _check_block(network, f"blocks.{index}", block)


def array_kinds(config: LapisConfig) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """The dtype and shape of every array of a network, by name; those of a block are named 'block.'."""
    d, heads, hidden = config.width, config.heads, config.hidden
    weight = np.float32 if config.weight_bits == FLOAT_WEIGHTS else np.int8
    levels = config.window * (2 if config.modes.mlp_hidden == "signed" else 1)
    kinds: dict[str, tuple[type, tuple[int, ...]]] = {
        "patch_weight": (np.int16, (d, config.patch_size**2 * 3)),
        "patch_shift": (np.uint8, (d,)),
        "position": (np.int32, (2 if config.relative_position else config.tokens, d)),
        "head_weight": (np.int16, (config.classes, d)),
        "head_bias": (np.int64, (config.classes,)),
        "block.leak.mantissa": (np.uint32, (heads,)),
        "block.leak.exponent": (np.int32, (heads,)),
        "block.readout.scale": (np.float32, ()),
        "block.readout.shift": (np.float32, ()),
        "block.rise": (np.float32, (levels,)),
        "block.fall": (np.float32, (levels,)),
    }
    if config.relative_position:
        kinds["block.leak.delay"] = (np.uint16, (offset_count(config.grid), heads))
    for name in ("attention_norm", "mlp_norm"):
        kinds[f"block.{name}.gain"] = kinds[f"block.{name}.shift"] = (np.float32, (d,))
    for name, (outputs, inputs) in {"qkv": (3 * d, d), "proj": (d, d), "fc1": (hidden, d), "fc2": (d, hidden)}.items():
        kinds[f"block.{name}.weight"] = (weight, (outputs, inputs))
        kinds[f"block.{name}.scale"] = kinds[f"block.{name}.shift"] = (np.float32, (outputs,))
    return {name: (np.dtype(kind), shape) for name, (kind, shape) in kinds.items()}


def array_of(owner: Network | Block, name: str) -> Array:
    """The array that a dotted name of `array_kinds` stands for."""
    value: Any = owner
    for part in name.removeprefix("block.").split("."):
        value = getattr(value, part)
    return np.asarray(value)


def named_arrays(network: Network) -> Iterator[tuple[str, Array, tuple[np.dtype[Any], tuple[int, ...]]]]:
    """Every array with its full name and what it should be."""
    for name, kind in array_kinds(network.config).items():
        if not name.startswith("block."):
            yield name, array_of(network, name), kind
            continue
        for index, block in enumerate(network.blocks):
            yield f"blocks.{index}.{name.removeprefix('block.')}", array_of(block, name), kind


def _check_ends(network: Network) -> None:
    if int(network.patch_shift.max()) > MAX_PATCH_SHIFT:
        raise LapisError(f"patch_shift holds {int(network.patch_shift.max())}; shifts lie in 0..{MAX_PATCH_SHIFT}")
    if 255 * int(np.abs(network.patch_weight.astype(np.int64)).sum(axis=1).max()) >= 1 << 31:
        raise LapisError("patch_weight could overflow a 32-bit accumulator on a white image")
    if int(np.abs(network.position.astype(np.int64)).max()) > arithmetic.STREAM_LIMIT:
        raise LapisError(f"position holds values beyond the residual stream's limit {arithmetic.STREAM_LIMIT}")
    if not -(1 << 52) < int(network.head_bias.min()) <= int(network.head_bias.max()) < 1 << 52:
        raise LapisError("head_bias holds values beyond 2**52")


def _check_block(network: Network, where: str, block: Block) -> None:
    window, bits = network.config.window, network.config.weight_bits
    for name in ("attention_norm", "mlp_norm"):
        norm: Norm = getattr(block, name)
        # A standardised channel is at most sqrt(D).
        if float(np.abs(norm.gain).max()) * network.config.width**0.5 + float(np.abs(norm.shift).max()) > SANE:
            raise LapisError(f"{where}.{name} reaches beyond {SANE:g}")
    for name in ("qkv", "proj", "fc1", "fc2"):
        _check_layer(f"{where}.{name}", getattr(block, name), window, bits, adds=name in ("proj", "fc2"))
    if not (block.leak.mantissa >= 1 << 31).all():
        raise LapisError(f"{where}.leak.mantissa must have its highest bit set")
    if not ((block.leak.exponent >= 0) & (block.leak.exponent < 1 << 20)).all():
        raise LapisError(f"{where}.leak.exponent is outside 0..2**20")
    if block.leak.delay is not None and int(block.leak.delay.max()) > LONGEST_DELAY:
        raise LapisError(f"{where}.leak.delay has {int(block.leak.delay.max())} steps; a file holds {LONGEST_DELAY}")
    if not 0 < float(block.readout.scale) < SANE or not abs(float(block.readout.shift)) < SANE:
        raise LapisError(f"{where}.readout needs a positive scale, and both below {SANE:g}")
    # Compared, not subtracted: the difference of two finite levels may be infinite.
    rise, fall = block.rise, block.fall
    if (rise[1:] < rise[:-1]).any() or (fall[1:] > fall[:-1]).any() or (fall > rise).any():
        raise LapisError(f"{where}: rise must not fall, fall must not rise, and none may cross")


def _check_layer(name: str, layer: Layer, window: int, bits: int, adds: bool) -> None:
    reach = np.abs(layer.weight.astype(np.float64)).sum(axis=1) * window
    if layer.exact:
        largest = 2 ** (bits - 1) - 1
        if int(layer.weight.min()) < -largest or int(layer.weight.max()) > largest:
            raise LapisError(f"{name}.weight has values outside -{largest}..{largest}, the range of {bits} bits")
        if float(reach.max()) >= arithmetic.EXACT_FLOAT32:
            raise LapisError(f"{name} could sum to {int(reach.max())}; sums stay below 2**24 to be exact in float32")
    if not adds and not (layer.scale > 0).all():
        raise LapisError(f"{name}.scale must be positive: a neuron's threshold falls as its input grows")
    if float((reach * np.abs(layer.scale) + np.abs(layer.shift)).max()) >= (DELTA_LIMIT if adds else SANE):
        raise LapisError(f"{name} reaches beyond {DELTA_LIMIT if adds else SANE:g}")


def _note(trace: Trace | None, index: int, **codes: Codes) -> None:
    if trace is not None:
        for point, seen in codes.items():
            trace.note(index, point, seen)  # type: ignore[arg-type]


def _join_heads(x: Int64) -> Int64:
    """(B, H, N, C) -> (B, N, H * C)."""
    batch, heads, tokens, channels = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, tokens, heads * channels)
