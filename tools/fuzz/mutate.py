"""Damage packed files where they are weak: in the JSON of header and description, and in single values of tensors.

Bytes changed at random mostly break the JSON, which tests one line of the reader. Here a file is taken apart, one to
three pieces are changed to values that are odd but plausible, and the file is put together again, with offsets that fit
unless they are what was changed. So most damage reaches a rule of its own, and much of it is still a valid network.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

Generator = np.random.Generator
Table = dict[str, Any]

KINDS = {"U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "I64": "<i8", "F32": "<f4"}
# One under, at and one over every limit of the format, and what languages disagree on.
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 8, 15, 16, 17, 20, 21, 40, 41, 63, 64, 127, 128, 255, 256, 257, 2047, 2048, 2049, 4095, 4096,
    4097, 16383, 16384, 65535, 65538, 131072, 131073, 1 << 31, (1 << 53) + 1, 1 << 62, 10**18, 10**25, 10**400,
    0.0, 1.0, -0.0, 0.1, 0.5, 0.001, 1e-9, 1e-400, 1e300, 2.5,
)  # fmt: skip
WORDS = (
    "", "vit", "beit", "laplacian", "table", "dot", "pow2", "exact", "spikes", "real", "gelu", "relu", "signed",
    "unsigned", "offset", "bicubic", "nearest", "lanczos", "\x1b]0;x\x07", "\ud800", "a\nb", "\u202e", "x" * 257,
    "U8", "F32", "F64",
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1.2e-38, 1e30, -1e30, 3.4e38, -3.4e38, np.nan, np.inf, -np.inf, 2.0**24, 2.0**30)


def mutated(data: bytes, generator: Generator) -> bytes:
    """The bytes of a packed file with one to three changes, in half of the files of tensors only."""
    changes = CHANGES if generator.random() < 0.5 else (_tensor,)
    for _ in range(int(generator.integers(1, 4))):
        data = _pick(generator, changes)(data, generator)
    return data


def split(data: bytes) -> tuple[Table, bytes] | None:
    """The header's table and the tensors; None for a file whose header is broken already."""
    length = int.from_bytes(data[:8], "little")
    try:
        table = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError):
        return None
    return (table, data[8 + length :]) if isinstance(table, dict) else None


def join(table: Table, tensors: bytes) -> bytes:
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + tensors


def _pick(generator: Generator, items: Any) -> Any:
    return items[int(generator.integers(len(items)))]


def _value(generator: Generator, depth: int = 0) -> Any:
    """Any JSON value, mostly small."""
    kind = int(generator.integers(12 if depth < 3 else 8))
    if kind < 5:
        return _pick(generator, NUMBERS)
    if kind < 8:
        return _pick(generator, (*WORDS, True, False, None))
    items = [_value(generator, depth + 1) for _ in range(int(generator.integers(0, 4)))]
    return items if kind < 10 else {str(_pick(generator, WORDS)): item for item in items}


def _change_tree(tree: Any, generator: Generator) -> Any:
    """The tree with one place changed: a value replaced, nudged, removed, doubled or added."""
    if isinstance(tree, dict) and tree and generator.random() < 0.9:
        name = _pick(generator, list(tree))
        action = generator.random()
        if action < 0.06:
            return {other: value for other, value in tree.items() if other != name}
        if action < 0.1:
            return {**tree, str(_pick(generator, (*WORDS, *tree))): _value(generator)}
        return {**tree, name: _change_tree(tree[name], generator)}
    if isinstance(tree, list) and tree and generator.random() < 0.85:
        at = int(generator.integers(len(tree)))
        action = generator.random()
        if action < 0.1:
            return [*tree[:at], *tree[at + 1 :]]
        if action < 0.2:
            return [*tree[:at], tree[at], *tree[at:]]
        return [*tree[:at], _change_tree(tree[at], generator), *tree[at + 1 :]]
    if isinstance(tree, int) and not isinstance(tree, bool) and generator.random() < 0.5:
        return tree + int(_pick(generator, (-2, -1, 1, 2))) if generator.random() < 0.6 else tree * 2
    return _value(generator)


def _header(data: bytes, generator: Generator) -> bytes:
    parts = split(data)
    if parts is None:
        return _bytes(data, generator)
    table = _change_tree(parts[0], generator)
    return join(table, parts[1])


def _description(data: bytes, generator: Generator) -> bytes:
    parts = split(data)
    try:
        assert parts is not None
        fields = json.loads(parts[0]["__metadata__"]["lapis_packed"])
    except (AssertionError, ValueError, RecursionError, KeyError, TypeError):
        return _bytes(data, generator)
    parts[0]["__metadata__"]["lapis_packed"] = json.dumps(_change_tree(fields, generator))
    return join(*parts)


def _text(data: bytes, generator: Generator) -> bytes:
    """The description with a piece of its text cut, doubled or replaced, as JSON that no library would write."""
    parts = split(data)
    try:
        assert parts is not None
        text = parts[0]["__metadata__"]["lapis_packed"]
        assert isinstance(text, str)
        at = int(generator.integers(len(text)))
    except (AssertionError, ValueError, KeyError, TypeError):
        return _bytes(data, generator)
    end = at + int(generator.integers(0, 12))
    odd = (
        "",
        "NaN",
        "-Infinity",
        "1e999",
        "9" * 5000,
        "[" * 3000,
        '"\\ud800"',
        "\x00",
        "1.",
        "01",
        "{}",
        ",",
        text[at:end] * 2,
    )
    parts[0]["__metadata__"]["lapis_packed"] = text[:at] + str(_pick(generator, odd)) + text[end:]
    return join(*parts)


def _tensor(data: bytes, generator: Generator) -> bytes:
    """A few values of one tensor set to its type's extremes, to neighbours, or to anything."""
    parts = split(data)
    try:
        assert parts is not None
        name = _pick(generator, [name for name in parts[0] if name != "__metadata__"])
        entry, tensors = parts[0][name], bytearray(parts[1])
        kind, (begin, end) = np.dtype(KINDS[entry["dtype"]]), entry["data_offsets"]
        values = np.frombuffer(memoryview(tensors)[begin:end], kind)
        values = values.copy()
        at: Any = generator.integers(0, len(values), int(generator.integers(1, 9)))
    except (AssertionError, ValueError, KeyError, TypeError):
        return _bytes(data, generator)
    if generator.random() < 0.1:
        at = slice(None)
    if generator.random() < 0.5:
        # Another value of the same tensor, which is within every limit of a single value.
        values[at] = _pick(generator, (values.min(), values.max(), _pick(generator, values)))
    elif kind.kind == "f":
        new = float(_pick(generator, FLOATS))
        if generator.random() < 0.5:
            with np.errstate(all="ignore"):
                values[at] = values[at] * np.float32(_pick(generator, (-1.0, 0.5, 2.0, 1e6, 1e-6, 1e20)))
        else:
            values[at] = np.float32(new)
    else:
        limits = np.iinfo(kind)
        odd = (
            limits.min,
            limits.max,
            0,
            1,
            limits.max // 2 + 1,
            int(generator.integers(limits.min, limits.max, endpoint=True)),
        )
        values[at] = _pick(generator, odd)
    tensors[begin:end] = values.tobytes()
    return join(parts[0], bytes(tensors))


def _bytes(data: bytes, generator: Generator) -> bytes:
    """Bytes changed, cut out, doubled or zeroed anywhere."""
    new = bytearray(data)
    if len(new) < 2:
        return bytes(new) + b"\0"
    begin = int(generator.integers(len(new)))
    end = min(len(new), begin + int(generator.integers(1, 40)))
    kind = int(generator.integers(4))
    if kind == 0:
        new[begin] = int(generator.integers(256))
    elif kind == 1:
        del new[begin:end]
    elif kind == 2:
        new[begin:begin] = new[begin:end]
    else:
        new[begin:end] = bytes(end - begin)
    return bytes(new)


CHANGES: tuple[Callable[[bytes, Generator], bytes], ...] = (
    _description, _description, _header, _header, _tensor, _text, _bytes,
)  # fmt: skip
