"""The deployed network: its frozen arrays, and checks of every bound that its arithmetic relies on.

Shapes: N tokens, D width, H heads, C = D / H, T window, L blocks. Codes are integers low..T, low = 0, or -T for signed
points. The residual stream is int32 with `fraction_bits` fractional bits. `lapis.deploy.integer` defines what a
network computes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis._util.locks import blas_section, cached
from lapis.config import DEPLOYED, FLOAT_WEIGHTS, NORM_EPS, LapisConfig
from lapis.deploy import arithmetic, leak
from lapis.deploy.arithmetic import Array, Codes, Float32, Int32, Int64
from lapis.errors import LapisError
from lapis.ops.integer_attention.reference import AFFINITY_MAX, AffinityTables
from lapis.positions import offset_count, relative_offsets
from lapis.preprocess import Pixels, Preprocess
from lapis.relations import rule_of
from lapis.trace import POINTS, Point

# The residual stream's precision: with 8 bits, rounding changes codes; with 20, the range is only +-64.
FRACTION_BITS = range(8, 21)
DEFAULT_FRACTION_BITS = 16
# An affine result beyond this is not an activation: the file is damaged.
MAX_MAGNITUDE = 1e30
DELTA_LIMIT = 1 << 30
MAX_PATCH_SHIFT = 30
# Leak steps that a position may add; tables of affinities grow with them.
LONGEST_DELAY = (1 << 14) - 1
MAX_HEAD_EXPONENT = 40
MAX_CLASS_NAME = 256
# The largest distance between codes. Membranes are computed step by step, as many as there are distances.
MAX_CODE_DISTANCE = 1 << 14
# Entries of tables that any network may ask for, and further ones per byte of its arrays: what is built when a file is
# opened stays in proportion to the file.
FREE_ENTRIES, ENTRIES_PER_BYTE = 1 << 24, 4
# The slice is the first of CIFAR-10's 10,000 test images, numbered as there.
TEST_IMAGES = 10_000


class _Frozen:
    """A record of read-only arrays."""

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
        with blas_section:
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
class Affinities(_Frozen):
    """A = mantissa 2**-(32 + exponent) at every distance, (H, S) each, never rising: a relation stored as a table."""

    mantissa: npt.NDArray[np.uint32]
    exponent: Int32


@dataclass(frozen=True)
class Shifts(_Frozen):
    """A = 2**-halvings at every distance, (H, S), 0 at the distance 0 and never falling: affinities that only shift."""

    halvings: npt.NDArray[np.uint16]

    def affinities(self) -> Affinities:
        """The same as mantissas and exponents."""
        return Affinities(
            np.full(self.halvings.shape, leak.START_MANTISSA, dtype=np.uint32),
            self.halvings.astype(np.int32) + leak.START_EXPONENT,
        )


@dataclass(frozen=True)
class Readout(_Frozen):
    """The mixed values as spikes: pre = fl(fl(fl(acc) 2**-k scale) + shift); scale = s_v / s_r, 0-dim."""

    scale: Float32
    shift: Float32


@dataclass(frozen=True)
class Block(_Frozen):
    """One transformer block; rise and fall (levels,) are the comparison ladder of GELU and its quantizer.

    Affinities are a leak, a table of them by distance, or a table of shifts.
    """

    attention_norm: Norm
    qkv: Layer
    leak: Leak | None
    readout: Readout
    proj: Layer
    mlp_norm: Norm
    fc1: Layer
    rise: Float32
    fall: Float32
    fc2: Layer
    affinity: Affinities | None = None
    shift: Shifts | None = None

    @property
    def by_distance(self) -> Affinities | None:
        """The affinities that are stored by distance, None where they leak."""
        return self.affinity if self.shift is None else self.shift.affinities()

    def membranes(self) -> Iterator[tuple[npt.NDArray[np.uint64], Int64]]:
        """The membranes (H,) of a unit affinity at the distances 0, 1, 2, ... in turn."""
        if self.leak is not None:
            return leak.trajectory(self.leak.mantissa, self.leak.exponent)
        stored = self.by_distance
        assert stored is not None
        return zip(stored.mantissa.T.astype(np.uint64), stored.exponent.T.astype(np.int64), strict=True)


@dataclass(frozen=True)
class Network(_Frozen):
    """A converted LapisViT: images (B, S, S, 3) of bytes -> logits (B, classes). It needs no torch.

    patch_weight (D, P*P*3) int16 in the image's own order (row, column, colour); position (N, D) or, where positions
    are relative, (2, D): class token, patches. head_weight (classes, D) int16, logits = integers 2**-(10 + exponent).
    trained_slice: the numbers of the packaged test images that it was trained on, ascending; none for most networks.
    activity, where it was measured, is the share of neurons that fired at a point in each block; it changes no answer,
    and the engine takes from it which layers to drive by events.
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
    trained_slice: tuple[int, ...] = ()
    activity: Mapping[Point, tuple[float, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_network(self)

    @property
    def exact(self) -> bool:
        """Whether all sums are of integers, so that all executors agree bit for bit."""
        return self.config.weight_bits != FLOAT_WEIGHTS

    @property
    def eps(self) -> float:
        """LayerNorm's epsilon in units of the stream."""
        return float(NORM_EPS * 4.0**self.fraction_bits)

    def low(self, point: Point) -> int:
        """The lowest code at a measuring point."""
        return self.config.low(point)

    def min_code(self, point: Point, block: int) -> int:
        """The minimum code that fires at a measuring point of a block."""
        return self.config.min_code_of(point, block)

    def real_logits(self, logits: Int64) -> Float32:
        """Integer logits as the real numbers that they stand for."""
        return arithmetic.real_logits(logits, self.head_exponent)

    @cached
    def delays(self) -> tuple[npt.NDArray[np.int64] | None, ...]:
        """(H, N, N) of every block, None where positions are absolute."""
        index = relative_offsets(self.config.grid) if self.config.relative_position else None
        return tuple(
            None
            if index is None or block.leak is None or block.leak.delay is None
            else block.leak.delay.astype(np.int64)[index].transpose(2, 0, 1)
            for block in self.blocks
        )

    @cached
    def tables(self) -> tuple[AffinityTables, ...]:
        """The affinity tables of every block, by distance."""
        membranes, bits = self.membranes_by_distance(), self.config.affinity_bits
        return tuple(leak.affinity_tables(membranes, bits, allowed_work(self.config)))

    def membranes_by_distance(self) -> list[tuple[npt.NDArray[np.uint32], Int64]]:
        """u and e (H, S) of every block, by distance."""
        stored = [one for block in self.blocks if (one := block.by_distance) is not None]
        if stored:
            return [(one.mantissa, one.exponent.astype(np.int64)) for one in stored]
        sizes = [self.distances(index) for index in range(self.config.depth)]
        leaks = [block.leak for block in self.blocks if block.leak is not None]
        mantissa = np.concatenate([one.mantissa for one in leaks])
        exponent = np.concatenate([one.exponent for one in leaks])
        # All heads leak together, for as many steps as the longest needs: this takes a tenth of the time.
        us, es = leak.leak_table(mantissa, exponent, max(sizes))
        us = us.reshape(self.config.depth, self.config.heads, -1)
        es = es.reshape(self.config.depth, self.config.heads, -1)
        return [(us[index, :, :size], es[index, :, :size]) for index, size in enumerate(sizes)]

    def distances(self, block: int) -> int:
        """The number of distances in a block, 0 included: C T (2 C T with signed codes) and the longest delay."""
        delays = self.delays[block]
        return code_distances(self.config) + (0 if delays is None else int(delays.max()))


def code_distances(config: LapisConfig) -> int:
    """The number of l1 distances that the codes of a query and a key can have, 0 included."""
    return config.head_width * (config.window - config.low("q")) + 1


def allowed_work(config: LapisConfig) -> int:
    """Entries that the tables of a network may have in all; see docs/format.md, Work and memory."""
    sizes = (
        math.prod(shape) * kind.itemsize * (config.depth if name.startswith("block.") else 1)
        for name, (kind, shape) in array_kinds(config).items()
    )
    return FREE_ENTRIES + ENTRIES_PER_BYTE * sum(sizes)


def check_images(images: Pixels, size: int) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (size, size, 3) or not len(images):
        raise LapisError(
            f"images of shape {images.shape} and dtype {images.dtype} were given; "
            f"this network takes bytes (uint8) of shape (batch, {size}, {size}, 3), at least one image"
        )


def check_deployable(config: LapisConfig) -> None:
    """Raise an error for a network without a spiking form, naming the field to change in training."""
    for name, value in DEPLOYED.items():
        if getattr(config, name) != value:
            raise LapisError(
                f"{name}={getattr(config, name)!r} has no spiking form; fine-tune with {name}={value!r}, then convert"
            )
    if config.image_channels not in (1, 3):
        raise LapisError(
            f"image_channels={config.image_channels} has no spiking form: deployed networks take bytes of red, green "
            "and blue; use 3 channels, or 1 for grey"
        )
    if config.mean_pool and not config.relative_position:
        raise LapisError("mean_pool=True has no packed form in style vit; train with mean_pool=False, then convert")
    refusal = rule_of(config.relation).refusal(config)
    if refusal is not None:
        raise LapisError(refusal)
    if config.width > arithmetic.MAX_WIDTH:
        raise LapisError(f"width={config.width} is too wide; sums of squares are exact up to {arithmetic.MAX_WIDTH}")
    largest = config.tokens * AFFINITY_MAX * config.window
    if largest >= 1 << 31:
        raise LapisError(
            f"{config.tokens} tokens and a window of {config.window} could overflow a 32-bit accumulator; "
            f"use at most {(1 << 31) // (AFFINITY_MAX * config.window)} tokens"
        )


def check_work(config: LapisConfig) -> None:
    """Raise an error for a network whose tables would be out of proportion to its size, before any is built."""
    reach = code_distances(config) - 1
    if reach > MAX_CODE_DISTANCE:
        raise LapisError(
            f"queries and keys of {config.head_width} channels can be {reach} steps apart, at most "
            f"{MAX_CODE_DISTANCE} are possible; use more heads or a smaller window"
        )
    delays = LONGEST_DELAY if config.relative_position else 0
    asked = {"membranes": config.depth * config.heads * (reach + 1 + delays)}
    if config.relative_position:
        asked["delays of pairs"] = config.depth * config.heads * config.tokens**2
    allowed = allowed_work(config)
    for what, entries in asked.items():
        if entries > allowed:
            raise LapisError(
                f"{entries} {what} for {config.depth} blocks of {config.heads} heads and {config.tokens} tokens are "
                f"out of proportion to the network's size; it may have at most {allowed}"
            )


def check_packed(config: LapisConfig) -> None:
    """Raise an error for a configuration that no deployed network has."""
    check_deployable(config)
    check_work(config)
    if config != config.packed():
        changed = [
            name for name, value in dataclasses.asdict(config.packed()).items()
            if dataclasses.asdict(config)[name] != value
        ]  # fmt: skip
        raise LapisError(f"a packed network has no {changed[0]}={getattr(config, changed[0])!r}; convert it first")


def check_network(network: Network) -> None:
    """Check every bound that the arithmetic relies on, so that nothing overflows, divides by zero or becomes NaN."""
    config = network.config
    check_packed(config)
    if network.fraction_bits not in FRACTION_BITS:
        raise LapisError(f"fraction_bits={network.fraction_bits} is outside 8..20")
    if network.preprocess.size != config.image_size:
        raise LapisError(f"preprocessing makes {network.preprocess.size} pixels, the network takes {config.image_size}")
    if len(network.class_names) not in (0, config.classes):
        raise LapisError(f"{len(network.class_names)} class names were given for {config.classes} classes")
    check_class_names(network.class_names)
    check_trained_slice(network.trained_slice)
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
    check_activity(network.activity, config.depth)
    _check_ends(network)
    for index, block in enumerate(network.blocks):
        _check_block(network, f"blocks.{index}", block)


def check_class_names(names: Sequence[Any]) -> None:
    """Raise an error for names that no file may hold."""
    if not all(isinstance(name, str) and len(name) <= MAX_CLASS_NAME for name in names):
        raise LapisError(f"class_names must be a list of words of at most {MAX_CLASS_NAME} letters")
    # JSON can contain half of a surrogate pair, which is not a character and cannot be printed.
    if any("\ud800" <= letter <= "\udfff" for name in names for letter in name):
        raise LapisError("class_names hold half of a surrogate pair, which is not a character")


def check_trained_slice(numbers: Sequence[int]) -> None:
    """Check that these can be the numbers of packaged images: integers, each larger than the one before."""
    if not all(type(number) is int and 0 <= number < TEST_IMAGES for number in numbers):
        raise LapisError(f"trained_slice must hold the numbers of test images, integers in 0..{TEST_IMAGES - 1}")
    if any(one >= other for one, other in itertools.pairwise(numbers)):
        raise LapisError("trained_slice must be ascending, each number once")


def check_activity(activity: Mapping[Any, Any], depth: int) -> None:
    """Raise an error unless known points have one share of neurons per block."""
    for point, shares in activity.items():
        if point not in POINTS:
            raise LapisError(f"activity names {point!r}; the measuring points are {', '.join(POINTS)}")
        numbers = all(isinstance(share, (int, float)) and not isinstance(share, bool) for share in shares)
        if len(shares) != depth or not numbers or not all(0 <= share <= 1 for share in shares):
            raise LapisError(f"activity of {point} must be {depth} shares of neurons from 0 to 1, one per block")


def array_kinds(config: LapisConfig) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """The dtype and shape of every array of a network, by name; those of a block are named 'block.'."""
    d, heads, hidden = config.width, config.heads, config.hidden
    weight = np.float32 if config.weight_bits == FLOAT_WEIGHTS else np.int8
    levels = config.window - config.low("mlp_hidden")
    kinds: dict[str, tuple[type, tuple[int, ...]]] = {
        "patch_weight": (np.int16, (d, config.patch_size**2 * 3)),
        "patch_shift": (np.uint8, (d,)),
        "position": (np.int32, (2 if config.relative_position else config.tokens, d)),
        "head_weight": (np.int16, (config.classes, d)),
        "head_bias": (np.int64, (config.classes,)),
        "block.readout.scale": (np.float32, ()),
        "block.readout.shift": (np.float32, ()),
        "block.rise": (np.float32, (levels,)),
        "block.fall": (np.float32, (levels,)),
    }
    by_distance = (heads, code_distances(config))
    stored: dict[str, dict[str, tuple[type, tuple[int, ...]]]] = {
        "leak": {"block.leak.mantissa": (np.uint32, (heads,)), "block.leak.exponent": (np.int32, (heads,))},
        "table": {
            "block.affinity.mantissa": (np.uint32, by_distance),
            "block.affinity.exponent": (np.int32, by_distance),
        },
        "shift": {"block.shift.halvings": (np.uint16, by_distance)},
    }
    kinds |= stored[rule_of(config.relation).stored or "leak"]
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
    """Every array with its full name, and the dtype and shape that it must have."""
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
        if float(np.abs(norm.gain).max()) * network.config.width**0.5 + float(np.abs(norm.shift).max()) > MAX_MAGNITUDE:
            raise LapisError(f"{where}.{name} reaches beyond {MAX_MAGNITUDE:g}")
    for name in ("qkv", "proj", "fc1", "fc2"):
        _check_layer(f"{where}.{name}", getattr(block, name), window, bits, adds=name in ("proj", "fc2"))
    if block.leak is not None:
        _check_leak(f"{where}.leak", block.leak)
    if block.affinity is not None:
        _check_affinities(f"{where}.affinity", block.affinity)
    if block.shift is not None:
        _check_shifts(f"{where}.shift", block.shift)
    if not 0 < float(block.readout.scale) < MAX_MAGNITUDE or not abs(float(block.readout.shift)) < MAX_MAGNITUDE:
        raise LapisError(f"{where}.readout needs a positive scale, and both below {MAX_MAGNITUDE:g}")
    # Compared, not subtracted: the difference of two finite levels may be infinite.
    rise, fall = block.rise, block.fall
    if (rise[1:] < rise[:-1]).any() or (fall[1:] > fall[:-1]).any() or (fall > rise).any():
        raise LapisError(f"{where}: rise must not fall, fall must not rise, and none may cross")


def _check_leak(name: str, stored: Leak) -> None:
    if not (stored.mantissa >= 1 << 31).all():
        raise LapisError(f"{name}.mantissa must have its highest bit set")
    if not ((stored.exponent >= 0) & (stored.exponent < leak.MAX_EXPONENT)).all():
        raise LapisError(f"{name}.exponent is outside 0..2**20")
    if stored.delay is not None and int(stored.delay.max()) > LONGEST_DELAY:
        raise LapisError(f"{name}.delay has {int(stored.delay.max())} steps; a file holds {LONGEST_DELAY}")


def _check_affinities(name: str, stored: Affinities) -> None:
    u, e = stored.mantissa, stored.exponent.astype(np.int64)
    if not (u >= 1 << 31).all():
        raise LapisError(f"{name}.mantissa must have its highest bit set")
    if not (np.abs(e) <= leak.MAX_EXPONENT).all():
        raise LapisError(f"{name}.exponent is outside -2**20..2**20")
    if ((e[:, 1:] < e[:, :-1]) | ((e[:, 1:] == e[:, :-1]) & (u[:, 1:] > u[:, :-1]))).any():
        raise LapisError(f"{name} rises with the distance; the nearest key of a row must have its largest affinity")


def _check_shifts(name: str, stored: Shifts) -> None:
    if stored.halvings[:, 0].any():
        raise LapisError(f"{name}.halvings starts at {int(stored.halvings[:, 0].max())}; it is 0 at the distance 0")
    if (stored.halvings[:, 1:] < stored.halvings[:, :-1]).any():
        raise LapisError(f"{name}.halvings falls with the distance; the nearest key must have the largest affinity")


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
    if float((reach * np.abs(layer.scale) + np.abs(layer.shift)).max()) >= (DELTA_LIMIT if adds else MAX_MAGNITUDE):
        raise LapisError(f"{name} reaches beyond {DELTA_LIMIT if adds else MAX_MAGNITUDE:g}")
