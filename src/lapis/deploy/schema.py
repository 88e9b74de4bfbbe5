"""The fields of a deployed network, each in one row: its name, type, shape, range and meaning.

Everything that must know a field takes it from these tables: the checks of a network and of a file, the Python reader
and writer, the C reader (`csrc/runtime/schema.inc`, which `python tools/schema.py` writes) and the tables of the page
docs/format.md. Letters are those of docs/format.md: L blocks, D width, H heads, M hidden channels, N tokens, P side
of a patch, K classes, C channels of a head, G patches along one side, T window.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lapis.codes import MAX_WINDOW
from lapis.config import AFFINITY_BITS
from lapis.deploy.arithmetic import MAX_WIDTH, STREAM_LIMIT
from lapis.deploy.leak import MAX_EXPONENT
from lapis.errors import LapisError
from lapis.ops.packing import packed_width
from lapis.positions import offset_count
from lapis.preprocess import MAX_SIZE
from lapis.relations import rule_of

if TYPE_CHECKING:
    from lapis.config import LapisConfig

VERSION = 1
METADATA_KEY = "lapis_packed"
LENGTH_BYTES = 8
MAX_HEADER = 4 << 20
MAX_BLOCKS, MAX_MLP_RATIO = 256, 16
MAX_CLASSES, MAX_CLASS_NAME = 1 << 17, 256
# The bits of weights that are stored four in three bytes; other integer weights take a byte each.
PACKED_BITS = 6
MAX_PATCH_SHIFT, MAX_HEAD_EXPONENT = 30, 40
# An affine result beyond this is not an activation: the file is damaged.
MAX_MAGNITUDE = 1e30
DELTA_LIMIT = 1 << 30
# Leak steps that a position may add; tables of affinities grow with them.
LONGEST_DELAY = (1 << 14) - 1
# The largest distance between codes, and between products of codes. Membranes are computed step by step, as many as
# there are distances, and kernels add l1 distances and delays in 16 bits.
MAX_CODE_DISTANCE, MAX_DOT_DISTANCE = 1 << 14, 1 << 17
# Entries of tables that any network may ask for, and further ones per byte of its arrays: what is built when a file is
# opened stays in proportion to the file.
FREE_ENTRIES, ENTRIES_PER_BYTE = 1 << 24, 4
# Decimals of a share of neurons in a file.
ACTIVITY_DIGITS = 4

Kind = Literal["object", "integer", "number", "triple", "word", "names", "shares", "codes"]


@dataclass(frozen=True)
class Field:
    """One field of the description, by its path: an integer or number in low..high, a word, or as `kind` says.

    `rules` of docs/format.md are broken by another type, and by another value (of an object: by other fields). `note`
    is a condition beside the range, which other code checks. An optional field is left out where it is 0 or empty.
    """

    path: str
    kind: Kind
    meaning: str
    low: float = 0
    high: float = 0
    words: tuple[str, ...] = ()
    rules: tuple[int, int] = (0, 0)
    note: str = ""
    optional: bool = False

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def parent(self) -> str:
        return self.path.rpartition(".")[0]

    def check(self, value: Any) -> None:
        """Raise an error for a value of another type or beyond the range."""
        if self.kind == "object":
            check_fields(value, self.path)
        elif self.kind == "integer" and not (type(value) is int and self.low <= value <= self.high):
            raise LapisError(f"{self.path}={value!r} must be an integer in {self.low}..{self.high}")
        elif self.kind == "number" and not self._holds(value):
            raise LapisError(f"{self.path}={value!r} must be a number in {self.low}..{self.high}")
        elif self.kind == "triple" and not (
            isinstance(value, list) and len(value) == 3 and all(map(self._holds, value))
        ):
            raise LapisError(f"{self.path}={value!r} must be three numbers in {self.low}..{self.high}")
        elif self.kind == "word" and not (isinstance(value, str) and value in self.words):
            raise LapisError(f"{self.path}={value!r} is unknown; use {', '.join(self.words)}")
        elif self.kind == "names" and not isinstance(value, list):
            raise LapisError(f"{self.path} must be a list of words")
        elif self.kind == "shares" and not (isinstance(value, dict) and value):
            raise LapisError(f"{self.path} must be an object of at least one list; leave it out where there is none")

    def _holds(self, value: object) -> bool:
        # Compared, not converted: an integer may be beyond every float.
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
        return number and self.low <= value <= self.high  # type: ignore[operator]


# The measuring points, where q and k share one quantizer.
POINT_FIELDS = {
    "attention_in": "behind the first norm of a block",
    "qk": "of queries and keys",
    "v": "of values",
    "readout": "of the mixed values",
    "mlp_in": "behind the second norm of a block",
    "mlp_hidden": "of the hidden channels",
}
_CODING = ("unsigned", "offset", "signed")

FIELDS: tuple[Field, ...] = (
    Field("version", "integer", "version of this format", VERSION, VERSION, rules=(9, 9)),
    Field("config", "object", "sizes and choices of the network", rules=(11, 11)),
    Field("preprocess", "object", "how an image becomes S x S bytes", rules=(20, 20)),
    Field(
        "class_names", "names", "names of the classes, in order", high=MAX_CLASS_NAME, rules=(25, 25),
        note=f"K strings, or none; at most {MAX_CLASS_NAME} code points each",
    ),
    Field(
        "fraction_bits", "integer", "F: an integer of the residual stream stands for itself times 2^-F", 8, 20,
        rules=(28, 28),
    ),
    Field(
        "head_exponent", "integer", "E: an integer logit stands for itself times 2^-(10 + E)", 0, MAX_HEAD_EXPONENT,
        rules=(29, 29),
    ),
    Field(
        "activity", "shares",
        "share of the values of each block that spiked there when the network was measured. It changes no answer; an "
        "executor may choose by it which layers to drive by their events",
        rules=(55, 55), optional=True,
        note="names of measuring points, at least one; for each a list of L numbers in 0..1",
    ),
    Field(
        "config.style", "word",
        "`beit` adds a delay per relative offset, shares one position row among patches, and answers from the mean of "
        "the patches",
        words=("vit", "beit"), rules=(13, 15),
    ),
    Field("config.image_size", "integer", "S", 1, MAX_SIZE, rules=(13, 14), note="a multiple of P"),
    Field("config.patch_size", "integer", "P", 1, 256, rules=(13, 14)),
    Field("config.classes", "integer", "K", 1, MAX_CLASSES, rules=(13, 14)),
    Field("config.width", "integer", "D", 1, MAX_WIDTH, rules=(13, 14), note="a multiple of H"),
    Field("config.depth", "integer", "L", 1, MAX_BLOCKS, rules=(13, 14)),
    Field("config.heads", "integer", "H", 1, MAX_WIDTH, rules=(13, 14)),
    Field("config.mlp_ratio", "integer", "R", 1, MAX_MLP_RATIO, rules=(13, 14)),
    Field("config.window", "integer", "T", 1, MAX_WINDOW, rules=(13, 14), note="and N T at most 65538"),
    Field("config.weight_bits", "integer", "W", 2, 8, rules=(13, 14)),
    Field(
        "config.affinity_bits", "integer", "B: the nearest key of a row has an affinity of so many bits", 1,
        AFFINITY_BITS, rules=(13, 14),
    ),
    Field(
        "config.relation", "word",
        "attention falls exponentially with the l1 distance of codes (`laplacian`) or with what their dot product is "
        "below the largest of its row (`dot`), or with the l1 distance as a stored table says",
        words=("laplacian", "dot", "table"), rules=(16, 16), note="the last two in style `vit` only",
    ),
    Field(
        "config.activation", "word",
        "the function in front of the hidden codes; it is part of `rise` and `fall`, so executors do not use it",
        words=("gelu", "relu"), rules=(13, 15),
    ),
    Field("config.coding", "object", "how negative values are coded, per measuring point", rules=(12, 12)),
    *(
        Field(f"config.coding.{point}", "word", f"codes {where}", words=_CODING, rules=(13, 15))
        for point, where in POINT_FIELDS.items()
    ),
    Field(
        "config.min_code", "object",
        "the smallest code that fires, per measuring point; a neuron's deadline is step T - min_code", rules=(12, 12),
    ),
    *(
        Field(
            f"config.min_code.{point}", "codes", f"for codes {where}", rules=(56, 56),
            note="1..T; one for all blocks, or one per block",
        )
        for point, where in POINT_FIELDS.items()
    ),
    Field("preprocess.size", "integer", "side of the image after preprocessing", 1, MAX_SIZE, rules=(21, 21), note="S"),
    Field(
        "preprocess.mean", "triple",
        "red, green, blue; already folded into `patch_weight` and `position`, so executors do not use it",
        -1000, 1000, rules=(22, 22),
    ),
    Field("preprocess.std", "triple", "the same", 0.001, 1000, rules=(22, 22)),
    Field(
        "preprocess.interpolation", "word", "filter of the [resize](#from-an-image-to-bytes)",
        words=("nearest", "bilinear", "bicubic", "lanczos"), rules=(23, 23),
    ),
    Field("preprocess.crop", "number", "share of the short side that is kept", 0.1, 1, rules=(24, 24)),
)  # fmt: skip
BY_PATH = {field.path: field for field in FIELDS}


def fields_of(parent: str) -> dict[str, Field]:
    """The fields of an object of the description, by name; of the description itself for ""."""
    return {field.name: field for field in FIELDS if field.parent == parent}


def check_fields(values: Any, parent: str = "") -> None:
    """Raise an error unless an object has exactly the fields of its table, each of its type and in its range."""
    what, known = parent or "its description", fields_of(parent)
    if not isinstance(values, dict):
        raise LapisError(f"{what} must be an object, not {type(values).__name__}")
    if unknown := sorted(values.keys() - known.keys()):
        raise LapisError(f"{what} has an unknown field {unknown[0]!r}; it has the fields {', '.join(known)}")
    if missing := [field.name for field in known.values() if not field.optional and field.name not in values]:
        raise LapisError(f"{what} leaves the fields {', '.join(missing)} out")
    for name, value in values.items():
        known[name].check(value)


@dataclass(frozen=True)
class Side:
    """A side of a tensor's shape: of a configuration, in the C reader (h is the header), and in docs."""

    of: Callable[[LapisConfig], int]
    c: str
    docs: str = ""


SIDES: dict[str, Side] = {
    "D": Side(lambda config: config.width, "h->width"),
    "3 D": Side(lambda config: 3 * config.width, "3 * h->width"),
    "M": Side(lambda config: config.hidden, "h->hidden"),
    "H": Side(lambda config: config.heads, "h->heads"),
    "K": Side(lambda config: config.classes, "h->classes"),
    "3 P²": Side(lambda config: 3 * config.patch_size**2, "3 * h->patch_size * h->patch_size"),
    "positions": Side(lambda config: 2 if config.relative_position else config.tokens, "h->style ? 2 : h->tokens", "N"),
    "distances": Side(lambda config: code_distances(config), "h->code_distances", "C T + 1"),
    "offsets": Side(
        lambda config: offset_count(config.grid), "(2 * h->grid - 1) * (2 * h->grid - 1) + 3", "(2 G - 1)² + 3"
    ),
    "levels": Side(lambda config: config.window - config.low("mlp_hidden"), "h->window - h->low[AT_MLP_HIDDEN]", "T"),
}  # fmt: skip
# What a file calls each type, in the order in which tensors are written.
_DTYPE_NAMES = ("I64", "F32", "U32", "I32", "U16", "I16", "I8", "U8")
DTYPES = {np.dtype(f"{name[0].lower()}{int(name[1:]) // 8}"): name for name in _DTYPE_NAMES}


@dataclass(frozen=True)
class Tensor:
    """One tensor: its name, type, shape, and the values low..high that it may hold, all of its type where none is said.

    Names that start with `blocks.` are of one block each; a file stacks them, block first. `only` names the form of
    affinities that it is stored for, or the style. `rule` of docs/format.md is broken by a value beyond the range;
    `note` names the rules that go further.
    """

    name: str
    kind: type
    shape: tuple[str, ...]
    meaning: str
    low: int | None = None
    high: int | None = None
    rule: int = 0
    note: str = ""
    only: str = ""

    @property
    def of_block(self) -> bool:
        return self.name.startswith("blocks.")

    @property
    def is_weight(self) -> bool:
        """Whether it is stored in `weight_bits`."""
        return self.kind is np.int8

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.kind)

    def shape_in(self, config: LapisConfig) -> tuple[int, ...]:
        """Its shape in a network, of one block where it is of a block."""
        return tuple(SIDES[side].of(config) for side in self.shape)

    def in_file(self, config: LapisConfig) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Its type and shape in a file: blocks stacked, six-bit weights packed."""
        kind, shape = self.dtype, self.shape_in(config)
        if self.packs(config):
            kind, shape = np.dtype(np.uint8), (*shape[:-1], packed_width(shape[-1]))
        return kind, (config.depth, *shape) if self.of_block else shape

    def packs(self, config: LapisConfig) -> bool:
        """Whether four of its values take three bytes of a file."""
        return self.is_weight and config.weight_bits == PACKED_BITS


def _layer(name: str, outputs: str, inputs: str, meaning: str) -> tuple[Tensor, ...]:
    return (
        Tensor(f"blocks.{name}.weight", np.int8, (outputs, inputs), meaning, note="rules 38..41"),
        Tensor(f"blocks.{name}.scale", np.float32, (outputs,), "step of its sums, per output", note="rules 42, 43"),
        Tensor(f"blocks.{name}.shift", np.float32, (outputs,), "biases and offsets, folded together", note="rule 43"),
    )


def _norm(name: str, meaning: str) -> tuple[Tensor, ...]:
    return (
        Tensor(f"blocks.{name}.gain", np.float32, ("D",), meaning, note="rule 44"),
        Tensor(f"blocks.{name}.shift", np.float32, ("D",), "the same", note="rule 44"),
    )


_HIGHEST_BIT = (1 << 31, (1 << 32) - 1)
TENSORS: tuple[Tensor, ...] = (
    Tensor(
        "patch_weight", np.int16, ("D", "3 P²"), "column (P row + column) 3 + colour of a patch, red first",
        note="rule 51",
    ),
    Tensor("patch_shift", np.uint8, ("D",), "right shift of a patch sum", 0, MAX_PATCH_SHIFT, 50),
    Tensor(
        "position", np.int32, ("positions", "D"),
        "row 0: class token; row i: patch bias and position of token i; in `beit` row 1 for all patches",
        -STREAM_LIMIT, STREAM_LIMIT, 52,
    ),
    *_norm("attention_norm", "first norm of a block, with the quantizer behind it"),
    *_layer("qkv", "3 D", "D", "rows 0..D-1 give q, D..2D-1 give k, 2D..3D-1 give v"),
    Tensor(
        "blocks.leak.mantissa", np.uint32, ("H",), "a head's leak per step is mantissa 2^-(32 + exponent)",
        *_HIGHEST_BIT, 45, only="leak",
    ),
    Tensor("blocks.leak.exponent", np.int32, ("H",), "the same", 0, MAX_EXPONENT - 1, 46, only="leak"),
    Tensor(
        "blocks.leak.delay", np.uint16, ("offsets", "H"),
        "leak steps that a [relative offset](#relative-offsets) adds", 0, LONGEST_DELAY, 47, only="beit",
    ),
    Tensor(
        "blocks.affinity.mantissa", np.uint32, ("H", "distances"),
        "a head's affinity at each distance is mantissa 2^-(32 + exponent)", *_HIGHEST_BIT, 57, "rule 59", "table",
    ),
    Tensor(
        "blocks.affinity.exponent", np.int32, ("H", "distances"), "the same", -MAX_EXPONENT, MAX_EXPONENT, 58,
        "rule 59", "table",
    ),
    Tensor("blocks.readout.scale", np.float32, (), "quantizer of the mixed values", note="rule 48"),
    Tensor("blocks.readout.shift", np.float32, (), "the same", note="rule 48"),
    *_layer("proj", "D", "D", "from the readout to the stream"),
    *_norm("mlp_norm", "second norm"),
    *_layer("fc1", "M", "D", "to the hidden channels"),
    Tensor("blocks.rise", np.float32, ("levels",), "GELU and its quantizer, as levels to compare with", note="rule 49"),
    Tensor("blocks.fall", np.float32, ("levels",), "the same", note="rule 49"),
    *_layer("fc2", "D", "M", "from the hidden channels to the stream"),
    Tensor("head_weight", np.int16, ("K", "D"), "the last norm's gain folded in"),
    Tensor("head_bias", np.int64, ("K",), "the last norm's shift folded in", 1 - (1 << 52), (1 << 52) - 1, 53),
)  # fmt: skip


def tensors(config: LapisConfig) -> list[Tensor]:
    """The tensors that a network of this configuration has."""
    return [tensor for tensor in TENSORS if tensor.only in ("", rule_of(config.relation).stored, config.style)]


def code_distances(config: LapisConfig) -> int:
    """The number of distances that the codes of a query and a key can have, 0 included."""
    return rule_of(config.relation).largest_distance(config) + 1


def allowed_work(config: LapisConfig) -> int:
    """Entries that the tables of a network may have in all; see docs/format.md, Work and memory."""
    sizes = (
        math.prod(tensor.shape_in(config)) * tensor.dtype.itemsize * (config.depth if tensor.of_block else 1)
        for tensor in tensors(config)
    )
    return FREE_ENTRIES + ENTRIES_PER_BYTE * sum(sizes)
