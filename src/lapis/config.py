"""The configuration of a Lapis network, its presets and the rules that it must follow.

A network is built from its configuration alone, and every packed model holds one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from lapis.codes import check_window
from lapis.errors import LapisError
from lapis.relations import rule_of

Style = Literal["vit", "beit"]
RowScale = Literal["exact", "pow2"]
Readout = Literal["real", "spikes"]
Coding = Literal["unsigned", "offset", "signed"]
Activation = Literal["gelu", "relu"]

FLOAT_WEIGHTS = 32
DEPLOYED_BITS = 6
# The most bits of the affinity of a row's nearest key: 15 fit int16, the widest factor that the kernels multiply.
AFFINITY_BITS = 15
# What it has if no other width is asked for, at a third of a head's energy. It costs no accuracy that was seen at 65
# tokens, and some at 197, where 15 are kept (docs/results.md).
DEPLOYED_AFFINITY_BITS = 5
# What a network must be to have a spiking form, besides its relation; its weights may have any width.
DEPLOYED: dict[str, Any] = {"quantize": True, "row_scale": "pow2", "readout": "spikes"}
# What the plain transformer is, from which the weights may come.
DENSE: dict[str, Any] = {"quantize": False, "relation": "dot", "row_scale": "exact", "readout": "real"}
# What only training knows of, with the values that a packed network has.
TRAINING_ONLY: dict[str, Any] = {"image_channels": 3, "layer_scale": False, "mean_pool": False}
# LayerNorm's epsilon, in every network and every executor.
NORM_EPS = 1e-6
WEIGHT_BITS = (2, 3, 4, 5, 6, 7, 8, FLOAT_WEIGHTS)


@dataclass(frozen=True)
class CodingByPoint:
    """How negative values are coded at each measuring point. q and k share one quantizer, so they share one coding.

    unsigned: z = clamp(floor(x/s + 1/2), 0, T), a negative value gives no spike (the paper).
    offset:   the same for x - o, with a learned shift o that is folded into the next bias.
    signed:   an ON and an OFF neuron for each value, of which at most one fires.
    """

    attention_in: Coding = "unsigned"
    qk: Coding = "unsigned"
    v: Coding = "unsigned"
    readout: Coding = "unsigned"
    mlp_in: Coding = "unsigned"
    mlp_hidden: Coding = "unsigned"

    @classmethod
    def all(cls, coding: Coding) -> CodingByPoint:
        """One coding at every point."""
        return cls(**{f.name: coding for f in dataclasses.fields(cls)})


@dataclass(frozen=True)
class MinCodeByPoint:
    """The minimum code z0 that fires at each measuring point: one for all blocks, or one per block.

    A neuron with 0 < |z| < z0 has not fired by step T - z0, its deadline, and stays silent. The window of that point
    then has T - z0 + 1 steps instead of T. With 1, every code but zero fires.
    """

    attention_in: int | tuple[int, ...] = 1
    qk: int | tuple[int, ...] = 1
    v: int | tuple[int, ...] = 1
    readout: int | tuple[int, ...] = 1
    mlp_in: int | tuple[int, ...] = 1
    mlp_hidden: int | tuple[int, ...] = 1

    def __post_init__(self) -> None:
        for point in dataclasses.fields(self):
            value = getattr(self, point.name)
            if isinstance(value, list):  # as JSON has it
                object.__setattr__(self, point.name, tuple(value))

    @classmethod
    def all(cls, min_code: int) -> MinCodeByPoint:
        """One minimum code at every point."""
        return cls(**{f.name: min_code for f in dataclasses.fields(cls)})


@dataclass(frozen=True)
class LapisConfig:
    """A Lapis vision transformer.

    L = depth, D = width, H = heads, C = width / heads, T = window, N = tokens, R = mlp_ratio.
    `quantize=False` with `relation="dot"` is the plain dense network that the weights came from.
    """

    style: Style = "vit"
    image_size: int = 224
    patch_size: int = 16
    classes: int = 1000
    width: int = 384
    depth: int = 12
    heads: int = 6
    mlp_ratio: int = 4
    window: int = 15
    relation: str = "laplacian"
    row_scale: RowScale = "exact"
    readout: Readout = "real"
    weight_bits: int = FLOAT_WEIGHTS
    activation: Activation = "gelu"
    coding: CodingByPoint = field(default_factory=CodingByPoint)
    min_code: MinCodeByPoint = field(default_factory=MinCodeByPoint)
    quantize: bool = True
    # The width of affinities where rows are scaled by powers of two, as they are when deployed.
    affinity_bits: int = DEPLOYED_AFFINITY_BITS
    image_channels: int = TRAINING_ONLY["image_channels"]
    # Layer scale in style vit, as in DeiT-III and DINOv2; style beit always has it.
    layer_scale: bool = TRAINING_ONLY["layer_scale"]
    # Answer from the mean of the patches in style vit, too; style beit always does.
    mean_pool: bool = TRAINING_ONLY["mean_pool"]

    def __post_init__(self) -> None:
        check_window(self.window)
        _check_choices(self)
        for name in ("image_size", "patch_size", "classes", "width", "depth", "heads", "mlp_ratio", "image_channels"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise LapisError(f"{name}={value!r} must be an integer of at least 1")
        if self.width % self.heads:
            # The search is bounded, because a file may claim any width before its limits are checked.
            divisors = [heads for heads in range(1, min(self.width, 64) + 1) if self.width % heads == 0]
            raise LapisError(f"heads={self.heads} does not divide width={self.width}; use {_either(divisors)}")
        if self.image_size % self.patch_size:
            near = self.patch_size * max(1, round(self.image_size / self.patch_size))
            raise LapisError(
                f"image_size={self.image_size} is not a multiple of patch_size={self.patch_size}; the nearest is {near}"
            )
        if self.weight_bits != FLOAT_WEIGHTS and not self.quantize:
            raise LapisError(f"weight_bits={self.weight_bits} with quantize=False; use 32 or turn quantizers on")
        if not self.quantize and rule_of(self.relation).needs_codes:
            raise LapisError(f"relation={self.relation!r} compares codes and needs quantize=True")
        if self.relative_position and not rule_of(self.relation).takes_positions:
            raise LapisError(
                f"relation={self.relation!r} has no place for the relative positions of style={self.style!r}; "
                "use style='vit'"
            )
        _check_min_code(self)
        bits = self.affinity_bits
        if type(bits) is not int or not 1 <= bits <= AFFINITY_BITS:
            raise LapisError(f"affinity_bits={bits!r} must be an integer from 1 to {AFFINITY_BITS}")

    @property
    def grid(self) -> int:
        """Patches along one side of the image."""
        return self.image_size // self.patch_size

    @property
    def tokens(self) -> int:
        """N: the patches and the class token."""
        return self.grid * self.grid + 1

    @property
    def head_width(self) -> int:
        """C: channels of one head."""
        return self.width // self.heads

    @property
    def hidden(self) -> int:
        """Neurons of the feed-forward layer, R * D."""
        return self.width * self.mlp_ratio

    @property
    def relative_position(self) -> bool:
        """Whether positions are relative, as in BEiT: one bias per offset, stored as an integer delay."""
        return self.style == "beit"

    @property
    def scales_layers(self) -> bool:
        """Whether a learned gain per channel stands before each residual addition."""
        return self.layer_scale or self.style == "beit"

    @property
    def mean_pooling(self) -> bool:
        """Whether the mean of the patches is classified, or the class token."""
        return self.mean_pool or self.style == "beit"

    def coding_of(self, point: str) -> Coding:
        """How negative values are coded at a measuring point. q and k share their coding."""
        coding: Coding = getattr(self.coding, _field_of(point))
        return coding

    def low(self, point: str) -> int:
        """The lowest code at a measuring point: -T where it is signed, else 0."""
        return -self.window if self.coding_of(point) == "signed" else 0

    def of_block(self, block: int) -> LapisConfig:
        """The configuration of a network that has only this block."""
        min_code = MinCodeByPoint(
            **{f.name: self.min_code_of(f.name, block) for f in dataclasses.fields(MinCodeByPoint)}
        )
        return dataclasses.replace(self, depth=1, min_code=min_code)

    def min_code_of(self, point: str, block: int) -> int:
        """The minimum code that fires at a measuring point of a block."""
        codes: int | tuple[int, ...] = getattr(self.min_code, _field_of(point))
        return codes if isinstance(codes, int) else codes[block]

    def dense(self) -> LapisConfig:
        """The plain transformer of the same shape: dot product, softmax, no quantizers."""
        return self.replace(**DENSE, weight_bits=FLOAT_WEIGHTS, affinity_bits=DEPLOYED_AFFINITY_BITS)

    def deployed(self, weight_bits: int = DEPLOYED_BITS) -> LapisConfig:
        """This network as it is deployed: power-of-two rows, a spiking readout, integer weights.

        A relation without a spiking form gives way to the paper's, the Laplacian.
        """
        relation = "laplacian" if rule_of(self.relation).stored is None else self.relation
        return self.replace(**DEPLOYED, relation=relation, weight_bits=weight_bits)

    def packed(self) -> LapisConfig:
        """This network as a packed file describes it, where what only training needs is folded into its numbers."""
        return self.replace(relation=rule_of(self.relation).packed_name, **TRAINING_ONLY)

    def replace(self, **changes: Any) -> LapisConfig:
        """A copy with some fields changed; the error for an unknown field names the nearest known one."""
        _refuse_unknown(changes, LapisConfig, "configuration field")
        for name, kind in (("coding", CodingByPoint), ("min_code", MinCodeByPoint)):
            if isinstance(changes.get(name), dict):
                _refuse_unknown(changes[name], kind, "measuring point")
                changes[name] = kind(**changes[name])
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> LapisConfig:
        """The inverse of `to_dict`, for files: every field is checked."""
        if not isinstance(fields, dict):
            raise LapisError(f"a configuration is a table of fields, not {type(fields).__name__}")
        try:
            return cls().replace(**fields)
        except (TypeError, AttributeError) as error:
            raise LapisError(f"its configuration has a field of the wrong type ({error})") from error


def preset(name: str, **changes: Any) -> LapisConfig:
    """A configuration by name, with some fields changed: `preset("lapis_tiny", classes=10, image_size=96)`."""
    if name not in PRESETS:
        raise LapisError(f"unknown preset {name!r}; {nearest(name, PRESETS)}use {_either(sorted(PRESETS))}")
    return PRESETS[name].replace(**changes)


def nearest(word: str, allowed: Iterable[str]) -> str:
    """'did you mean X? ' for an unknown word, or nothing when no allowed word is close."""
    import difflib  # only errors need it

    close = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}? " if close else ""


def _check_choices(config: LapisConfig) -> None:
    rule_of(config.relation)
    choices = {"style": Style, "row_scale": RowScale, "readout": Readout, "activation": Activation}
    for name, kind in choices.items():
        value, allowed = getattr(config, name), get_args(kind)
        if value not in allowed:
            raise LapisError(f"{name}={value!r} is unknown; use {_either(allowed)}")
    if not isinstance(config.weight_bits, int) or config.weight_bits not in WEIGHT_BITS:
        raise LapisError(
            f"weight_bits={config.weight_bits!r} is not available; use {_either(WEIGHT_BITS)} (32 = float weights)"
        )
    for switch in ("quantize", "layer_scale", "mean_pool"):
        if not isinstance(getattr(config, switch), bool):
            raise LapisError(f"{switch}={getattr(config, switch)!r} must be true or false")
    if not isinstance(config.coding, CodingByPoint):
        raise LapisError(f"coding={config.coding!r} must be CodingByPoint")
    for point, coding in vars(config.coding).items():
        if coding not in get_args(Coding):
            raise LapisError(f"coding.{point}={coding!r} is unknown; use {_either(get_args(Coding))}")


def _check_min_code(config: LapisConfig) -> None:
    if not isinstance(config.min_code, MinCodeByPoint):
        raise LapisError(f"min_code={config.min_code!r} must be MinCodeByPoint")
    for point, value in vars(config.min_code).items():
        per_block = isinstance(value, tuple)
        if per_block and len(value) != config.depth:
            raise LapisError(
                f"min_code.{point} has {len(value)} numbers; give one number, or one for each of the "
                f"{config.depth} blocks"
            )
        for min_code in value if per_block else (value,):
            if type(min_code) is not int or not 1 <= min_code <= config.window:
                raise LapisError(
                    f"min_code.{point}={min_code!r} must be an integer from 1 (every code but zero fires) to the "
                    f"window, {config.window}"
                )


def _field_of(point: str) -> str:
    """q and k share one quantizer, and so their entry."""
    return "qk" if point in ("q", "k") else point


def _refuse_unknown(changes: dict[str, Any], kind: type, what: str) -> None:
    allowed = [f.name for f in dataclasses.fields(kind)]
    for name in changes:
        if name not in allowed:
            raise LapisError(f"unknown {what} {name!r}; {nearest(name, allowed)}use {_either(allowed)}")


def _either(words: Iterable[object]) -> str:
    *rest, last = [str(word) for word in words]
    return f"{', '.join(rest)} or {last}" if rest else last


# The paper's base and large models are BEiTs, its small one (and our tiny one) a plain ViT.
PRESETS = {
    "lapis_tiny": LapisConfig(width=192, depth=12, heads=3),
    "lapis_small": LapisConfig(width=384, depth=12, heads=6),
    "lapis_base": LapisConfig("beit", width=768, depth=12, heads=12),
    "lapis_large": LapisConfig("beit", width=1024, depth=24, heads=16, window=20),
}
