"""Read the bytes of a packed file, which may be damaged: its header is checked before memory is taken for a tensor.

The header is parsed here and not by a library, so that every kind of damage gives one clear error.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from lapis._util.files import parse_json
from lapis._util.terminal import escape_control
from lapis.config import DEPLOYED, LapisConfig
from lapis.deploy import schema
from lapis.deploy.network import Block, Network, check_activity, check_class_names, check_packed
from lapis.deploy.schema import LENGTH_BYTES, MAX_HEADER, METADATA_KEY, Tensor
from lapis.errors import LapisError
from lapis.ops.packing import unpack6
from lapis.preprocess import Preprocess

# Letters of an error: a file may hold a name of megabytes.
LONGEST_REASON = 500


def load(path: str | Path) -> Network:
    """The network of a packed file; a LapisError if the file is incomplete or not valid."""
    return PackedFile.read(path).network()


def read_metadata(path: str | Path) -> tuple[dict[str, Any], PackedFile | None]:
    """The metadata of any safetensors file, empty for other files, and the file itself where it is a packed network.

    Both come from one opened file: another file that takes its name meanwhile is not seen.
    """
    try:
        with open(path, "rb") as file:
            head = _read_head(file)
            try:
                metadata = _read_table(head)[1]
            except LapisError:
                return {}, None
            return metadata, PackedFile.of(file, head, str(path)) if METADATA_KEY in metadata else None
    except OSError as error:
        raise LapisError(f"cannot read {path}: {error.strerror}") from error


def is_packed(path: str | Path) -> bool:
    """Whether the metadata of a file is that of a packed Lapis network."""
    try:
        return METADATA_KEY in read_metadata(path)[0]
    except LapisError:
        return False


class PackedFile:
    """The bytes of a packed file, its description checked. `network` reads the tensors; the engine takes the bytes.

    `where` names the file in errors.
    """

    def __init__(self, data: bytes, where: str, size: int | None = None) -> None:
        """From all bytes of a file, or from its first ones, the header included, and the size of all."""
        self.data, self.where = data, where
        with self._named_errors():
            table, metadata, self._start = _read_table(data)
            self._fields = _read_description(metadata)
            self.config = LapisConfig.from_dict({**self._fields["config"], **DEPLOYED})
            check_packed(self.config)
            self.preprocess = Preprocess.from_dict(self._fields["preprocess"])
            check_class_names(self._fields["class_names"])
            activity = self._fields.get("activity", {})
            check_activity(activity, self.config.depth)
            self._offsets = _checked_offsets(table, self.config, (size or len(data)) - self._start)
        self.class_names: tuple[str, ...] = tuple(self._fields["class_names"])
        self.head_exponent: int = self._fields["head_exponent"]
        self._fields |= {"config": self.config, "preprocess": self.preprocess, "class_names": self.class_names}
        self._fields["activity"] = {point: tuple(map(float, shares)) for point, shares in activity.items()}

    @classmethod
    def read(cls, path: str | Path) -> PackedFile:
        """The packed file at a path."""
        try:
            with open(path, "rb") as file:
                return cls.of(file, _read_head(file), str(path))
        except OSError as error:
            raise LapisError(f"cannot read {path}: {error.strerror}") from error

    @classmethod
    def of(cls, file: BinaryIO, head: bytes, where: str) -> PackedFile:
        """The packed file of which `head` was read; nothing more is read before its header says how much."""
        size = os.fstat(file.fileno()).st_size
        packed = cls(head, where, size)
        packed.data = head + file.read(size - len(head) + 1)
        if len(packed.data) != size:
            raise LapisError(f"{where} is not a valid packed network: it changed while it was read")
        return packed

    def network(self) -> Network:
        """The network, all its arrays read and checked."""
        with self._named_errors():
            arrays = {tensor.name: self._array(tensor) for tensor in schema.tensors(self.config)}
            ends: dict[str, Any] = {name: array for name, array in arrays.items() if not name.startswith("blocks.")}
            stacked = {name.removeprefix("blocks."): array for name, array in arrays.items() if name not in ends}
            blocks = tuple(
                Block.of({name: np.asarray(array[index]) for name, array in stacked.items()})
                for index in range(self.config.depth)
            )
            return Network(**self._fields, blocks=blocks, **ends)

    def _array(self, tensor: Tensor) -> npt.NDArray[Any]:
        """One tensor in the order of this machine's bytes, six-bit weights unpacked."""
        kind, shape = tensor.in_file(self.config)
        begin = self._start + self._offsets[tensor.name][0]
        raw = np.frombuffer(self.data, kind.newbyteorder("<"), math.prod(shape), begin).reshape(shape)
        if not tensor.packs(self.config):
            return raw.astype(kind)
        return np.stack([unpack6(block, tensor.shape_in(self.config)[-1]) for block in raw])

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except LapisError as error:
            # What the file says may be quoted in the error, and may be anything.
            reason = escape_control(error)[:LONGEST_REASON]
            raise LapisError(f"{self.where} is not a valid packed network: {reason}") from error


def _read_head(file: BinaryIO) -> bytes:
    """The length of a header, and as much of it as a header may have."""
    length = file.read(LENGTH_BYTES)
    return length + file.read(min(MAX_HEADER, int.from_bytes(length, "little"), os.fstat(file.fileno()).st_size))


def _read_table(data: bytes) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The header's entries of tensors, its metadata, and where the tensors start."""
    if len(data) < LENGTH_BYTES:
        raise LapisError(f"it has {len(data)} bytes; a header needs at least {LENGTH_BYTES}")
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    if length > min(MAX_HEADER, len(data) - LENGTH_BYTES):
        raise LapisError(f"its header claims {length} bytes of a file of {len(data)}; at most {MAX_HEADER} are allowed")
    try:
        table = _parsed(data[LENGTH_BYTES : LENGTH_BYTES + length].decode("utf-8"), "header")
    except UnicodeDecodeError as error:
        raise LapisError("its header is not JSON (UnicodeDecodeError)") from error
    if not isinstance(table, dict):
        raise LapisError("its header is not a JSON object")
    metadata = table.pop("__metadata__", None)
    return table, metadata if isinstance(metadata, dict) else {}, LENGTH_BYTES + length


def _read_description(metadata: dict[str, Any]) -> dict[str, Any]:
    text = metadata.get(METADATA_KEY)
    if not isinstance(text, str) or len(metadata) != 1:
        raise LapisError(
            f"its metadata must hold {METADATA_KEY!r} and nothing else; a training checkpoint is packed by `lapis pack`"
        )
    description = _parsed(text, "description")
    schema.BY_PATH["version"].check(description.get("version") if isinstance(description, dict) else None)
    schema.check_fields(description)
    return {name: value for name, value in description.items() if name != "version"}


def _checked_offsets(table: dict[str, Any], config: LapisConfig, available: int) -> dict[str, tuple[int, int]]:
    """The bytes of each tensor. All expected tensors and no others must fill the file's data without gaps."""
    expected = {tensor.name: tensor for tensor in schema.tensors(config)}
    if odd := sorted(table.keys() ^ expected.keys()):
        raise LapisError(f"tensor {odd[0]!r} is {'missing' if odd[0] in expected else 'unknown'}")
    offsets = {name: _checked_offset(tensor, config, table[name]) for name, tensor in expected.items()}
    end = 0
    for begin, stop in sorted(offsets.values()):
        if begin != end:
            raise LapisError(f"tensors overlap or leave a gap at byte {min(begin, end)}")
        end = stop
    if end != available:
        raise LapisError(f"its tensors need {end} bytes, it has {available}")
    return offsets


def _checked_offset(tensor: Tensor, config: LapisConfig, fields: Any) -> tuple[int, int]:
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise LapisError(f"tensor {tensor.name!r} needs dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    kind, sides = tensor.in_file(config)
    needed = schema.DTYPES[kind], list(sides)
    if (dtype, shape) != needed or not all(type(side) is int for side in shape):
        raise LapisError(f"tensor {tensor.name!r} is {dtype} {shape}; this configuration needs {needed[0]} {needed[1]}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        raise LapisError(f"tensor {tensor.name!r} needs two integer offsets")
    (begin, end), size = offsets, math.prod(sides) * kind.itemsize
    if begin < 0 or end - begin != size:
        raise LapisError(f"tensor {tensor.name!r} spans {begin}..{end}; it has {size} bytes")
    return begin, end


def _parsed(text: str, what: str) -> Any:
    """Parse JSON as in RFC 8259, with unique names, no NaN or Infinity, and integers of limited length."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise LapisError("holds a name twice")
        return dict(pairs)

    def no_constant(word: str) -> None:
        raise LapisError(f"is not JSON: {word} is not a number in JSON")

    return parse_json(text, f"its {what}", object_pairs_hook=unique, parse_constant=no_constant)
