"""The deployed network: its frozen arrays, and checks of every bound that its arithmetic relies on.

Shapes: N tokens, D width, H heads, C = D / H, T window, L blocks. Codes are integers low..T, low = 0, or -T for signed
points. The residual stream is int32 with `fraction_bits` fractional bits. `lapis.deploy.schema` lists every field, and
`lapis.deploy.integer` defines what a network computes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from lapis._util.locks import blas_section, cached
from lapis.config import DEPLOYED, FLOAT_WEIGHTS, NORM_EPS, LapisConfig
from lapis.deploy import arithmetic, leak, schema
from lapis.deploy.arithmetic import Array, Codes, Float32, Int32, Int64
from lapis.deploy.schema import DELTA_LIMIT, MAX_MAGNITUDE, allowed_work, code_distances
from lapis.errors import LapisError
from lapis.ops.integer_attention.reference import AffinityTables, check_accumulator
from lapis.positions import relative_offsets
from lapis.preprocess import Pixels, Preprocess
from lapis.relations import Comparison, rule_of
from lapis.trace import POINTS, Point

DEFAULT_FRACTION_BITS = 16


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
    """A linear layer on codes: pre = fl(fl(fl(sum_i w_oi z_i) scale_o) + shift_o); weight (O, I), the others (O,)."""

    weight: npt.NDArray[np.int8]
    scale: Float32
    shift: Float32

    def total(self, codes: Codes) -> Float32:
        """sum_i w_oi z_i: (..., I) -> (..., O), exact integers."""
        with blas_section:
            return np.asarray(codes.astype(np.float32) @ self.weight.astype(np.float32).T)

    def pre(self, codes: Codes) -> Float32:
        return arithmetic.affine(self.total(codes), self.scale, self.shift)

    def rows(self, part: slice) -> Layer:
        """Some of its outputs as a layer."""
        return Layer(self.weight[part], self.scale[part], self.shift[part])


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
class Readout(_Frozen):
    """The mixed values as spikes: pre = fl(fl(fl(acc) 2**-k scale) + shift); scale = s_v / s_r, 0-dim."""

    scale: Float32
    shift: Float32


@dataclass(frozen=True)
class Block(_Frozen):
    """One transformer block; rise and fall (levels,) are the comparison ladder of GELU and its quantizer.

    Affinities are a leak, or a table of them by distance.
    """

    attention_norm: Norm
    qkv: Layer
    readout: Readout
    proj: Layer
    mlp_norm: Norm
    fc1: Layer
    rise: Float32
    fall: Float32
    fc2: Layer
    leak: Leak | None = None
    affinity: Affinities | None = None

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Block:
        """The block of these arrays, by their names in the schema without `blocks.`."""
        kinds = get_type_hints(cls)
        parts: dict[str, Any] = {}
        for name, array in arrays.items():
            part, _, rest = name.partition(".")
            parts[part] = {**parts.get(part, {}), rest: array} if rest else array
        for name, part in parts.items():
            if isinstance(part, dict):
                record, *_ = get_args(kinds[name]) or (kinds[name],)
                parts[name] = record(**part)
        return cls(**parts)


@dataclass(frozen=True)
class Network(_Frozen):
    """A converted LapisViT: images (B, S, S, 3) of bytes -> logits (B, classes). It needs no torch.

    patch_weight (D, P*P*3) int16 in the image's own order (row, column, colour); position (N, D) or, where positions
    are relative, (2, D): class token, patches. head_weight (classes, D) int16, logits = integers 2**-(10 + exponent).
    activity, where it was measured, is the share of values that spiked at a point in each block; it changes no answer,
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
    activity: Mapping[Point, tuple[float, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_network(self)

    @property
    def eps(self) -> float:
        """LayerNorm's epsilon in units of the stream."""
        return float(NORM_EPS * 4.0**self.fraction_bits)

    @property
    def compared_by(self) -> Comparison:
        """What codes of queries and keys are compared by."""
        return rule_of(self.config.relation).compared_by

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
        if self.compared_by == "dot":
            return tuple(leak.first_row(us, es, bits) for us, es in membranes)
        return tuple(leak.affinity_tables(membranes, bits, allowed_work(self.config)))

    def membranes_by_distance(self) -> list[tuple[npt.NDArray[np.uint32], Int64]]:
        """u and e (H, S) of every block, by distance; for dot products they end where affinities do."""
        stored = [one for block in self.blocks if (one := block.affinity) is not None]
        if stored:
            return [(one.mantissa, one.exponent.astype(np.int64)) for one in stored]
        sizes = [self.distances(index) for index in range(self.config.depth)]
        leaks = [block.leak for block in self.blocks if block.leak is not None]
        mantissa = np.concatenate([one.mantissa for one in leaks])
        exponent = np.concatenate([one.exponent for one in leaks])
        # All heads leak together, for as many steps as the longest needs: this takes a tenth of the time.
        bits = self.config.affinity_bits if self.compared_by == "dot" else None
        us, es = leak.leak_table(mantissa, exponent, max(sizes), bits)
        us = us.reshape(self.config.depth, self.config.heads, -1)
        es = es.reshape(self.config.depth, self.config.heads, -1)
        return [(us[index, :, :size], es[index, :, :size]) for index, size in enumerate(sizes)]

    def distances(self, block: int) -> int:
        """The number of distances in a block, 0 included: C T (2 C T with signed codes) and the longest delay."""
        delays = self.delays[block]
        return code_distances(self.config) + (0 if delays is None else int(delays.max()))


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
    if config.weight_bits == FLOAT_WEIGHTS:
        raise LapisError("weight_bits=32 has no spiking form; fine-tune with weight_bits=6, then convert")
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
    for field in schema.fields_of("config").values():
        if field.kind == "integer" and getattr(config, field.name) > field.high:
            raise LapisError(
                f"{field.name}={getattr(config, field.name)} is beyond {field.high}, the largest of a deployed network"
            )
    check_accumulator(config.tokens, config.window)


def check_work(config: LapisConfig) -> None:
    """Raise an error for a network whose tables would be out of proportion to its size, before any is built."""
    reach = code_distances(config) - 1
    most = schema.MAX_DOT_DISTANCE if config.relation == "dot" else schema.MAX_CODE_DISTANCE
    if reach > most:
        raise LapisError(
            f"queries and keys of {config.head_width} channels can be {reach} steps apart, at most {most} are "
            "possible; use more heads or a smaller window"
        )
    delays = schema.LONGEST_DELAY if config.relative_position else 0
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
    for field in dataclasses.fields(config):
        if (value := getattr(config, field.name)) != getattr(config.packed(), field.name):
            raise LapisError(f"a packed network has no {field.name}={value!r}; convert it first")


def check_network(network: Network) -> None:
    """Check every bound that the arithmetic relies on, so that nothing overflows, divides by zero or becomes NaN."""
    config = network.config
    check_packed(config)
    for field in schema.fields_of("").values():
        if field.kind == "integer" and field.name != "version":
            field.check(getattr(network, field.name))
    if network.preprocess.size != config.image_size:
        raise LapisError(f"preprocessing makes {network.preprocess.size} pixels, the network takes {config.image_size}")
    if len(network.class_names) not in (0, config.classes):
        raise LapisError(f"{len(network.class_names)} class names were given for {config.classes} classes")
    check_class_names(network.class_names)
    if len(network.blocks) != config.depth:
        raise LapisError(f"{len(network.blocks)} blocks were given for a depth of {config.depth}")
    for name, array, tensor in named_arrays(network):
        _check_array(name, array, tensor, config)
    check_activity(network.activity, config.depth)
    if 255 * int(np.abs(network.patch_weight.astype(np.int64)).sum(axis=1).max()) >= 1 << 31:
        raise LapisError("patch_weight could overflow a 32-bit accumulator on a white image")
    for index, block in enumerate(network.blocks):
        _check_block(network, f"blocks.{index}", block)


def _check_array(name: str, array: Array, tensor: schema.Tensor, config: LapisConfig) -> None:
    """Check one array against its row of the schema: type, shape and range."""
    shape = tensor.shape_in(config)
    if array.dtype != tensor.dtype or array.shape != shape:
        raise LapisError(
            f"{name} has dtype {array.dtype} and shape {array.shape}; this configuration needs {tensor.dtype} {shape}"
        )
    if tensor.kind is np.float32 and not np.isfinite(array).all():
        raise LapisError(f"{name} holds NaN or infinity")
    if tensor.low is not None and tensor.high is not None:
        least, most = int(array.min()), int(array.max())
        if least < tensor.low or most > tensor.high:
            raise LapisError(f"{name} holds {least}..{most}; its values lie in {tensor.low}..{tensor.high}")


def check_class_names(names: Sequence[Any]) -> None:
    """Raise an error for names that no file may hold."""
    if not all(isinstance(name, str) and len(name) <= schema.MAX_CLASS_NAME for name in names):
        raise LapisError(f"class_names must be a list of words of at most {schema.MAX_CLASS_NAME} letters")
    # JSON can contain half of a surrogate pair, which is not a character and cannot be printed.
    if any("\ud800" <= letter <= "\udfff" for name in names for letter in name):
        raise LapisError("class_names hold half of a surrogate pair, which is not a character")


def check_activity(activity: Mapping[Any, Any], depth: int) -> None:
    """Raise an error unless known points have one share of neurons per block."""
    for point, shares in activity.items():
        if point not in POINTS:
            raise LapisError(f"activity names {point!r}; the measuring points are {', '.join(POINTS)}")
        listed = shares if isinstance(shares, (list, tuple)) else ()
        numbers = [share for share in listed if isinstance(share, (int, float)) and not isinstance(share, bool)]
        if len(listed) != depth or len(numbers) != depth or not all(0 <= share <= 1 for share in numbers):
            raise LapisError(f"activity of {point} must be {depth} shares of neurons from 0 to 1, one per block")


def array_of(owner: Network | Block, name: str) -> Array:
    """The array that a name of the schema stands for, of a network or of one of its blocks."""
    value: Any = owner
    for part in name.removeprefix("blocks.").split("."):
        value = getattr(value, part)
    return np.asarray(value)


def named_arrays(network: Network) -> Iterator[tuple[str, Array, schema.Tensor]]:
    """Every array with its full name and its row of the schema."""
    for tensor in schema.tensors(network.config):
        if not tensor.of_block:
            yield tensor.name, array_of(network, tensor.name), tensor
            continue
        for index, block in enumerate(network.blocks):
            yield tensor.name.replace("blocks", f"blocks.{index}", 1), array_of(block, tensor.name), tensor


def _check_block(network: Network, where: str, block: Block) -> None:
    window, bits = network.config.window, network.config.weight_bits
    for name in ("attention_norm", "mlp_norm"):
        norm: Norm = getattr(block, name)
        # A standardised channel is at most sqrt(D).
        if float(np.abs(norm.gain).max()) * network.config.width**0.5 + float(np.abs(norm.shift).max()) > MAX_MAGNITUDE:
            raise LapisError(f"{where}.{name} reaches beyond {MAX_MAGNITUDE:g}")
    for name in ("qkv", "proj", "fc1", "fc2"):
        _check_layer(f"{where}.{name}", getattr(block, name), window, bits, adds=name in ("proj", "fc2"))
    if block.affinity is not None:
        u, e = block.affinity.mantissa, block.affinity.exponent
        if ((e[:, 1:] < e[:, :-1]) | ((e[:, 1:] == e[:, :-1]) & (u[:, 1:] > u[:, :-1]))).any():
            raise LapisError(
                f"{where}.affinity rises with the distance; the nearest key must have the largest affinity"
            )
    if not 0 < float(block.readout.scale) < MAX_MAGNITUDE or not abs(float(block.readout.shift)) < MAX_MAGNITUDE:
        raise LapisError(f"{where}.readout needs a positive scale, and both below {MAX_MAGNITUDE:g}")
    # Compared, not subtracted: the difference of two finite levels may be infinite.
    rise, fall = block.rise, block.fall
    if (rise[1:] < rise[:-1]).any() or (fall[1:] > fall[:-1]).any() or (fall > rise).any():
        raise LapisError(f"{where}: rise must not fall, fall must not rise, and none may cross")


def _check_layer(name: str, layer: Layer, window: int, bits: int, adds: bool) -> None:
    reach, largest = np.abs(layer.weight.astype(np.float64)).sum(axis=1) * window, 2 ** (bits - 1) - 1
    if int(layer.weight.min()) < -largest or int(layer.weight.max()) > largest:
        raise LapisError(f"{name}.weight has values outside -{largest}..{largest}, the range of {bits} bits")
    if float(reach.max()) >= arithmetic.EXACT_FLOAT32:
        raise LapisError(f"{name} could sum to {int(reach.max())}; sums stay below 2**24 to be exact in float32")
    if not adds and not (layer.scale > 0).all():
        raise LapisError(f"{name}.scale must be positive: a neuron's threshold falls as its input grows")
    if float((reach * np.abs(layer.scale) + np.abs(layer.shift)).max()) >= (DELTA_LIMIT if adds else MAX_MAGNITUDE):
        raise LapisError(f"{name} reaches beyond {DELTA_LIMIT if adds else MAX_MAGNITUDE:g}")
