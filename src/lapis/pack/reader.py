"""Read a packed file that may be damaged: everything in its header is checked before memory is allocated.

The header is parsed here and not by a library, so that every kind of damage gives one clear error.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from lapis._util.files import parse_json
from lapis._util.terminal import escape_control
from lapis.config import LapisConfig
from lapis.deploy.network import (
    Affinities,
    Block,
    Layer,
    Leak,
    Network,
    Norm,
    Readout,
    Shifts,
    check_activity,
    check_class_names,
    check_packed,
    check_trained_slice,
)
from lapis.errors import LapisError
from lapis.ops.pack6 import unpack6
from lapis.pack.format import (
    ACTIVITY,
    DTYPES,
    FIELDS,
    LENGTH_BYTES,
    MAX_HEADER,
    METADATA_KEY,
    OPTIONAL_CONFIG,
    OPTIONAL_FIELDS,
    READABLE,
    SINCE_VERSION_2,
    TRAINED_SLICE,
    VERSION,
    Entry,
    check_limits,
    entries,
    in_memory,
    is_packed6,
)
from lapis.preprocess import Preprocess
from lapis.relations import PACKED
from lapis.trace import Point

Array = npt.NDArray[Any]
# Letters of an error: a file may hold a name of megabytes.
LONGEST_REASON = 500


@dataclass(frozen=True)
class Header:
    """The checked header of a file; `start` is where the tensors begin."""

    config: LapisConfig
    preprocess: Preprocess
    class_names: tuple[str, ...]
    fraction_bits: int
    head_exponent: int
    trained_slice: tuple[int, ...]
    activity: dict[Point, tuple[float, ...]]
    offsets: dict[str, tuple[int, int]]
    start: int


def load(path: str | Path) -> Network:
    """The network of a packed file; a LapisError if the file is incomplete or not valid."""
    with _opened(path) as file:
        header = _read_header(file)
        file.seek(header.start)
        return _network(header, file.read())


def read_header(path: str | Path) -> Header:
    """The header of a packed file, without its tensors."""
    with _opened(path) as file:
        return _read_header(file)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """The metadata of any safetensors file; empty for other files. Nothing else is checked."""
    try:
        with open(path, "rb") as file:
            return _metadata(_read_table(file)[0])
    except (LapisError, OSError):
        return {}


def is_packed(path: str | Path) -> bool:
    """Whether the metadata of a file is that of a packed Lapis network."""
    return METADATA_KEY in read_metadata(path)


@contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO]:
    """Open the file; every error names its path."""
    try:
        with open(path, "rb") as file:
            yield file
    except LapisError as error:
        # What the file says may be quoted in the error, and may be anything.
        raise LapisError(f"{path} is not a valid packed network: {escape_control(error)[:LONGEST_REASON]}") from error
    except OSError as error:
        raise LapisError(f"cannot read {path}: {error.strerror}") from error


def _read_header(file: BinaryIO) -> Header:
    table, start, size = _read_table(file)
    description = _read_description(_metadata(table))
    config = _checked_config(description["config"], description["version"])
    preprocess = Preprocess.from_dict(description["preprocess"])
    if preprocess.to_dict().keys() != description["preprocess"].keys():
        raise LapisError("its preprocessing leaves fields out")
    names = _checked_names(description["class_names"])
    numbers = {name: description[name] for name in ("fraction_bits", "head_exponent")}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise LapisError(f"{name}={value!r} must be an integer")
    activity = _checked_activity(description, config.depth)
    offsets = _checked_offsets(table, entries(config), size - start)
    trained = _checked_slice(description)
    exponent = numbers["head_exponent"]
    return Header(config, preprocess, names, numbers["fraction_bits"], exponent, trained, activity, offsets, start)


def _read_table(file: BinaryIO) -> tuple[dict[str, Any], int, int]:
    """The header's JSON object, where the tensors start, and the size of the file."""
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(LENGTH_BYTES)
    if len(prefix) < LENGTH_BYTES:
        raise LapisError(f"it has {size} bytes; a header needs at least {LENGTH_BYTES}")
    length = int.from_bytes(prefix, "little")
    if length > min(MAX_HEADER, size - LENGTH_BYTES):
        raise LapisError(f"its header claims {length} bytes of a file of {size}; at most {MAX_HEADER} are allowed")
    try:
        table = _parsed(file.read(length).decode("utf-8"), "header")
    except UnicodeDecodeError as error:
        raise LapisError("its header is not JSON (UnicodeDecodeError)") from error
    if not isinstance(table, dict):
        raise LapisError("its header is not a JSON object")
    return table, LENGTH_BYTES + length, size


def _metadata(table: dict[str, Any]) -> dict[str, Any]:
    metadata = table.get("__metadata__")
    return metadata if isinstance(metadata, dict) else {}


def _read_description(metadata: dict[str, Any]) -> dict[str, Any]:
    text = metadata.get(METADATA_KEY)
    if not isinstance(text, str) or len(metadata) != 1:
        raise LapisError(
            f"its metadata must hold {METADATA_KEY!r} and nothing else; a training checkpoint is packed by `lapis pack`"
        )
    description = _parsed(text, "description")
    if not isinstance(description, dict) or "version" not in description:
        raise LapisError("its description names no format version")
    version = description["version"]
    if type(version) is not int or version not in READABLE:
        raise LapisError(f"format version {version!r} is unknown; this Lapis reads versions 1 and {VERSION}")
    optional = OPTIONAL_FIELDS if version == VERSION else ()
    if tuple(sorted(description.keys() - set(optional))) != FIELDS:
        also = f" and may have {' and '.join(map(repr, optional))}" if optional else ""
        raise LapisError(
            f"its description has the fields {sorted(description)}; version {version} has {list(FIELDS)}{also}"
        )
    return description


def _checked_config(fields: Any, version: int) -> LapisConfig:
    fields = in_memory(fields)
    if version == 1 and isinstance(fields, dict):
        unknown = sorted(fields.keys() & {*SINCE_VERSION_2, *OPTIONAL_CONFIG})
        if unknown:
            raise LapisError(f"its configuration has {unknown[0]}, which version 1 does not know")
        fields = {**fields, **SINCE_VERSION_2}
    allowed = PACKED[:1] if version == 1 else PACKED
    if isinstance(fields, dict) and fields.get("relation", allowed[0]) not in allowed:
        raise LapisError(
            f"relation={fields['relation']!r} has no integer arithmetic; version {version} has {' or '.join(allowed)}"
        )
    config = LapisConfig.from_dict(fields)
    written = json.loads(json.dumps(config.to_dict()))
    if usual := sorted(fields.keys() & set(OPTIONAL_CONFIG) - written.keys()):
        raise LapisError(f"{usual[0]}={fields[usual[0]]!r} is the usual value, which must be left out")
    if written != fields:
        raise LapisError("its configuration leaves fields out")
    check_limits(config)
    check_packed(config)
    return config


def _checked_names(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list):
        raise LapisError("class_names must be a list of words")
    check_class_names(names)
    return tuple(names)


def _checked_slice(description: dict[str, Any]) -> tuple[int, ...]:
    numbers = description.get(TRAINED_SLICE, [])
    if not isinstance(numbers, list) or (TRAINED_SLICE in description and not numbers):
        raise LapisError(f"{TRAINED_SLICE} must be a list of at least one number; leave it out where there is none")
    check_trained_slice(numbers)
    return tuple(numbers)


def _checked_activity(description: dict[str, Any], depth: int) -> dict[Point, tuple[float, ...]]:
    activity = description.get(ACTIVITY, {})
    if not isinstance(activity, dict) or not all(isinstance(shares, list) for shares in activity.values()):
        raise LapisError(f"{ACTIVITY} must be an object of lists, one per measuring point")
    if ACTIVITY in description and not activity:
        raise LapisError(f"{ACTIVITY} must name at least one measuring point; leave it out where there is none")
    check_activity(activity, depth)
    return {point: tuple(map(float, shares)) for point, shares in activity.items()}


def _checked_offsets(table: dict[str, Any], expected: dict[str, Entry], available: int) -> dict[str, tuple[int, int]]:
    """The bytes of each tensor. All expected tensors and no others must fill the file's data without gaps."""
    found = table.keys() - {"__metadata__"}
    wanted = {entry.name for entry in expected.values()}
    if found != wanted:
        odd = sorted(found ^ wanted)[0]
        raise LapisError(f"tensor {odd!r} is {'missing' if odd in wanted else 'unknown'}")
    offsets = {name: _checked_offset(entry, table[entry.name]) for name, entry in expected.items()}
    end = 0
    for begin, stop in sorted(offsets.values()):
        if begin != end:
            raise LapisError(f"tensors overlap or leave a gap at byte {min(begin, end)}")
        end = stop
    if end != available:
        raise LapisError(f"its tensors need {end} bytes, it has {available}")
    return offsets


def _checked_offset(entry: Entry, fields: Any) -> tuple[int, int]:
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise LapisError(f"tensor {entry.name!r} needs dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    needed = DTYPES[entry.kind], list(entry.shape)
    if (dtype, shape) != needed or not all(type(side) is int for side in shape):
        raise LapisError(f"tensor {entry.name!r} is {dtype} {shape}; this configuration needs {needed[0]} {needed[1]}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        raise LapisError(f"tensor {entry.name!r} needs two integer offsets")
    begin, end = offsets
    if begin < 0 or end - begin != entry.size:
        raise LapisError(f"tensor {entry.name!r} spans {begin}..{end}; it has {entry.size} bytes")
    return begin, end


def _network(header: Header, data: bytes) -> Network:
    config, table = header.config, entries(header.config)
    if len(data) != max(end for _, end in header.offsets.values()):
        raise LapisError("it changed while it was read")

    def array(name: str) -> Array:
        entry, (begin, _) = table[name], header.offsets[name]
        count = math.prod(entry.shape)
        raw = np.frombuffer(data, entry.kind.newbyteorder("<"), count, begin).reshape(entry.shape)
        # Packed weights are unpacked later; other arrays are copied, so that the file's bytes can be freed.
        return raw if is_packed6(config, name) else raw.astype(entry.kind)

    arrays = {name: array(name) for name in table}
    blocks = _Blocks(config, arrays)
    return Network(
        config=config,
        preprocess=header.preprocess,
        class_names=header.class_names,
        fraction_bits=header.fraction_bits,
        patch_weight=arrays["patch_weight"],
        patch_shift=arrays["patch_shift"],
        position=arrays["position"],
        blocks=tuple(blocks.block(index) for index in range(config.depth)),
        head_weight=arrays["head_weight"],
        head_bias=arrays["head_bias"],
        head_exponent=header.head_exponent,
        trained_slice=header.trained_slice,
        activity=header.activity,
    )


@dataclass(frozen=True)
class _Blocks:
    """The stacked arrays of all blocks, taken apart."""

    config: LapisConfig
    arrays: dict[str, Array]

    def block(self, index: int) -> Block:
        return Block(
            attention_norm=self.norm("attention_norm", index),
            qkv=self.layer("qkv", index),
            leak=self.leak(index),
            readout=Readout(self.part("readout.scale", index), self.part("readout.shift", index)),
            proj=self.layer("proj", index),
            mlp_norm=self.norm("mlp_norm", index),
            fc1=self.layer("fc1", index),
            rise=self.part("rise", index),
            fall=self.part("fall", index),
            fc2=self.layer("fc2", index),
            affinity=self.affinity(index),
            shift=self.shift(index),
        )

    def part(self, name: str, index: int) -> Array:
        full = f"block.{name}"
        if is_packed6(self.config, full):
            return unpack6(self.arrays[full][index], self.config.hidden if name == "fc2.weight" else self.config.width)
        return np.asarray(self.arrays[full][index])

    def layer(self, name: str, index: int) -> Layer:
        return Layer(*(self.part(f"{name}.{field}", index) for field in ("weight", "scale", "shift")))

    def norm(self, name: str, index: int) -> Norm:
        return Norm(self.part(f"{name}.gain", index), self.part(f"{name}.shift", index))

    def leak(self, index: int) -> Leak | None:
        if "block.leak.mantissa" not in self.arrays:
            return None
        delay = self.part("leak.delay", index) if self.config.relative_position else None
        return Leak(self.part("leak.mantissa", index), self.part("leak.exponent", index), delay)

    def affinity(self, index: int) -> Affinities | None:
        if "block.affinity.mantissa" not in self.arrays:
            return None
        return Affinities(self.part("affinity.mantissa", index), self.part("affinity.exponent", index))

    def shift(self, index: int) -> Shifts | None:
        return Shifts(self.part("shift.halvings", index)) if "block.shift.halvings" in self.arrays else None


def _parsed(text: str, what: str) -> Any:
    """Parse JSON as in RFC 8259, with unique names, no NaN or Infinity, and integers of limited length."""
    return parse_json(text, f"its {what}", object_pairs_hook=_unique, parse_constant=_no_constant)


def _no_constant(word: str) -> None:
    raise LapisError(f"is not JSON: {word} is not a number in JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise LapisError("holds a name twice")
    return table
