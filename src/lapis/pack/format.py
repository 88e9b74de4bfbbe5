"""The fields of a packed file; docs/format.md specifies the same for readers in other languages."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lapis.config import LapisConfig, MinCodeByPoint
from lapis.deploy.arithmetic import MAX_WIDTH
from lapis.deploy.network import array_kinds
from lapis.errors import LapisError
from lapis.ops.pack6 import packed_width
from lapis.preprocess import MAX_SIZE

METADATA_KEY = "lapis_packed"
VERSION = 2
READABLE = (1, VERSION)
# The fields of a configuration that version 1 does not have, with the values that they had.
SINCE_VERSION_2: dict[str, Any] = {"activation": "gelu", "min_code": asdict(MinCodeByPoint()), "top_k": 1.0}
# Fields of a configuration that version 2 leaves out where they have their usual value.
OPTIONAL_CONFIG = ("affinity_bits",)
FIELDS = ("class_names", "config", "fraction_bits", "head_exponent", "preprocess", "version")
# Written only where they say something, so that a network without them keeps its bytes.
ACTIVITY, TRAINED_SLICE = OPTIONAL_FIELDS = ("activity", "trained_slice")
# Decimals of a share of neurons; more would only make the file larger.
ACTIVITY_DIGITS = 4
PACKED_BITS = 6

LENGTH_BYTES = 8
MAX_HEADER = 4 << 20
# Sizes far above those of any Lapis network; a file with larger ones is damaged.
LIMITS = {"image_size": MAX_SIZE, "patch_size": 256, "classes": 1 << 17, "width": MAX_WIDTH, "depth": 256}
MAX_MLP_RATIO = 16

DTYPES = {
    np.dtype(np.uint8): "U8",
    np.dtype(np.int8): "I8",
    np.dtype(np.uint16): "U16",
    np.dtype(np.int16): "I16",
    np.dtype(np.uint32): "U32",
    np.dtype(np.int32): "I32",
    np.dtype(np.int64): "I64",
    np.dtype(np.float32): "F32",
}


@dataclass(frozen=True)
class Entry:
    """One tensor of the file: its name, dtype and shape there."""

    name: str
    kind: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.kind.itemsize


def entries(config: LapisConfig) -> dict[str, Entry]:
    """Every tensor of a network's file, by its name in the network.

    Those of the blocks are stacked, block first. Four 6-bit weights are stored in three bytes.
    """
    table = {}
    for name, (kind, shape) in array_kinds(config).items():
        stacked = (config.depth, *shape) if name.startswith("block.") else shape
        if is_packed6(config, name):
            kind, stacked = np.dtype(np.uint8), (*stacked[:-1], packed_width(shape[-1]))
        table[name] = Entry(name.replace("block.", "blocks.", 1), kind, stacked)
    return table


def is_packed6(config: LapisConfig, name: str) -> bool:
    return config.weight_bits == PACKED_BITS and name.startswith("block.") and name.endswith(".weight")


def data_bytes(config: LapisConfig) -> int:
    """Bytes of all tensors of a packed network."""
    return sum(entry.size for entry in entries(config).values())


def check_limits(config: LapisConfig) -> None:
    """Raise an error for absurd sizes, before anything is computed from them."""
    for name, limit in {**LIMITS, "mlp_ratio": MAX_MLP_RATIO}.items():
        if getattr(config, name) > limit:
            raise LapisError(f"{name}={getattr(config, name)} is beyond {limit}, the largest that a packed file holds")


# The names in files, until the packaged networks are written anew.
OLD_NAMES = {"coding": "modes", "min_code": "least_codes"}


def in_file(fields: dict[str, Any]) -> dict[str, Any]:
    return {OLD_NAMES.get(name, name): value for name, value in fields.items()}


def in_memory(fields: Any) -> Any:
    names = {old: new for new, old in OLD_NAMES.items()}
    return {names.get(name, name): value for name, value in fields.items()} if isinstance(fields, dict) else fields
