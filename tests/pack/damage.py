"""Packed files that are damaged in one way each, with the rule of docs/format.md that forbids it.

A change takes the bytes of a file that loads and gives those of one that must not. Rules are numbered as in the table
"Readers must reject"; tests/pack/test_specification.py sees that every rule has its damage.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lapis.config import CodingByPoint, LapisConfig
from lapis.deploy import schema
from lapis.preprocess import Preprocess
from tests.networks import small_config

Change = Callable[[bytes], bytes]
Table = dict[str, Any]

CONFIG = small_config(style="beit", coding=CodingByPoint(mlp_hidden="signed"))
# Affinities as a table, of 3 * 15 + 1 distances.
TABLE = small_config(relation="table")
# Rows of 300 bytes, whose weights of 16 bits can overflow 32.
LARGE_PATCH = CONFIG.replace(image_size=20, patch_size=10)
# Rows of 2,112 weights of 8 bits, whose sums with codes of 63 can reach 2**24.
LONG_ROWS = CONFIG.replace(width=132, depth=1, mlp_ratio=16, window=63, weight_bits=8)


@dataclass(frozen=True)
class Damage:
    """What breaks one rule: the error must hold `word`, the file is one of `config`."""

    rule: int
    word: str
    change: Change
    config: LapisConfig = CONFIG


def split(data: bytes) -> tuple[Table, bytes]:
    """The header's table and the tensors."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(table: Table, tensors: bytes) -> bytes:
    return only_header(json.dumps(table).encode(), tensors)


def only_header(text: bytes, tensors: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text + tensors


def text_header(text: bytes) -> Change:
    return lambda data: only_header(text)


def length(claimed: int, more: int = 0) -> Change:
    return lambda data: claimed.to_bytes(8, "little") + data[8:] + bytes(more)


def header(change: Callable[[Table], Any]) -> Change:
    def changed(data: bytes) -> bytes:
        table, tensors = split(data)
        change(table)
        return join(table, tensors)

    return changed


def metadata(value: Any) -> Change:
    return header(lambda table: table["__metadata__"].update(lapis_packed=value))


def text(old: str, new: str) -> Change:
    """The description with one piece of its text replaced."""

    def change(table: Table) -> None:
        before = table["__metadata__"]["lapis_packed"]
        assert before.count(old) == 1
        table["__metadata__"]["lapis_packed"] = before.replace(old, new)

    return header(change)


def about(**changes: Any) -> Change:
    """The description with some of its fields changed."""

    def change(table: Table) -> None:
        fields = json.loads(table["__metadata__"]["lapis_packed"])
        table["__metadata__"]["lapis_packed"] = json.dumps({**fields, **changes})

    return header(change)


def without(name: str) -> Change:
    def change(table: Table) -> None:
        fields = json.loads(table["__metadata__"]["lapis_packed"])
        del fields[name]
        table["__metadata__"]["lapis_packed"] = json.dumps(fields)

    return header(change)


def description_of(config: LapisConfig) -> Table:
    """The configuration as a file has it."""
    fields = config.to_dict()
    return {name: fields[name] for name in schema.fields_of("config")}


def config(**changes: Any) -> Change:
    return about(config={**description_of(CONFIG), **changes})


def min_code(**changes: Any) -> Change:
    return config(min_code={**CONFIG.to_dict()["min_code"], **changes})


def preprocess(**changes: Any) -> Change:
    return about(preprocess={**Preprocess(CONFIG.image_size).to_dict(), **changes})


def tensor(**changes: Any) -> Change:
    return header(lambda table: table["blocks.qkv.weight"].update(changes))


def values(name: str, kind: type, value: Any, at: int = 0) -> Change:
    """A tensor with some of its values replaced, from position `at` of the flat tensor on."""

    def change(data: bytes) -> bytes:
        table, tensors = split(data)
        items = np.asarray(value).astype(kind).tobytes()
        begin = table[name]["data_offsets"][0] + at * np.dtype(kind).itemsize
        return join(table, tensors[:begin] + items + tensors[begin + len(items) :])

    return change


def _overlap(table: Table) -> None:
    table["blocks.mlp_norm.shift"]["data_offsets"] = table["blocks.mlp_norm.gain"]["data_offsets"]


def _late(data: bytes) -> bytes:
    """All tensors moved behind eight bytes that belong to none."""
    table, tensors = split(data)
    for name, entry in table.items():
        if name != "__metadata__":
            entry["data_offsets"] = [offset + 8 for offset in entry["data_offsets"]]
    return join(table, bytes(8) + tensors)


CONTAINER = [
    Damage(1, "a header needs", lambda data: data[:7]),
    *(Damage(2, "header claims", length(claimed)) for claimed in (1 << 63, (1 << 64) - 1, 5 << 20, 4 << 20)),
    Damage(2, "header claims", length((4 << 20) + 1, more=5 << 20)),
    *(
        Damage(3, "not JSON", text_header(text))
        for text in (b"", b"\xff\xfe", b"[" * 200_000, b"{" * 9, b"{} x", b'{"a":NaN}', b'{"a":-Infinity}')
    ),
    Damage(4, "not a JSON object", lambda data: only_header(b"[]")),
    Damage(4, "not a JSON object", lambda data: only_header(b"null")),
    Damage(5, "twice", lambda data: only_header(b'{"a":1,"a":2}')),
    Damage(5, "twice", metadata('{"version":1,"version":1}')),
    Damage(6, "digits", lambda data: only_header(b'{"a":' + b"1" * 5000 + b"}")),
    Damage(6, "digits", text('"fraction_bits":16', '"fraction_bits":' + "1" * 5000)),
    Damage(6, "digits", text('"crop":1.0', '"crop":1' + "0" * 400)),
    Damage(6, "digits", text('"image_size":8', '"image_size":-' + "1" * 20)),
    Damage(7, "metadata", header(lambda table: table.pop("__metadata__"))),
    Damage(7, "metadata", header(lambda table: table["__metadata__"].update(more="x"))),
    Damage(7, "metadata", metadata({"version": 1})),
]

NO_MIN_CODES: tuple[Any, ...] = (
    0, 16, 2.0, True, "2", None, {}, [], [1], [1, 16], [1, True], [1, 2, 3], [[1], [1]],
)  # fmt: skip
NO_ACTIVITIES: tuple[Any, ...] = ({}, [], 1, {"v": 0.5}, {"v": [0.5]})

DESCRIPTION = [
    Damage(8, "not JSON", metadata("{")),
    Damage(8, "not JSON", metadata("[" * 100_000)),
    Damage(8, "not JSON", text('"crop":1.0', '"crop":NaN')),
    Damage(8, "version", metadata("[]")),
    *(Damage(9, "version", about(version=version)) for version in (0, 2, True, "1", 1.0, None)),
    Damage(9, "version", without("version")),
    Damage(10, "fields", about(extra=1)),
    Damage(10, "fields", without("class_names")),
    Damage(25, "class_names", about(class_names=[1, 2, 3])),
    Damage(25, "class_names", about(class_names="abc")),
    Damage(25, "class_names", about(class_names=["x" * 257, "b", "c"])),
    Damage(26, "surrogate", about(class_names=["\ud800", "b", "c"])),
    Damage(27, "class names", about(class_names=["a"])),
    *(Damage(55, "activity", about(activity=shares)) for shares in NO_ACTIVITIES),
    Damage(55, "attention_in", about(activity={"attention": [0.5] * CONFIG.depth})),
    *(Damage(55, "0 to 1", about(activity={"v": [share] * CONFIG.depth})) for share in (-0.1, 1.1, True, "x", None)),
    *(Damage(28, "fraction_bits", about(fraction_bits=bits)) for bits in (7, 21, None, 16.0, True)),
    *(Damage(29, "head_exponent", about(head_exponent=exponent)) for exponent in (-1, 41, 16.0)),
]

CONFIGURATION = [
    Damage(11, "must be an object", about(config=[])),
    Damage(11, "unknown field", config(surprise=1)),
    Damage(11, "leaves the field", about(config={name: CONFIG.to_dict()[name] for name in ("style", "depth")})),
    Damage(12, "coding", config(coding=7)),
    Damage(12, "leaves the field", config(coding={"qk": "signed"})),
    Damage(12, "unknown field", config(coding={**CONFIG.to_dict()["coding"], "w": "signed"})),
    Damage(12, "min_code", config(min_code=7)),
    Damage(12, "leaves the field", config(min_code={"qk": 2})),
    Damage(12, "unknown field", min_code(w=2)),
    *(Damage(56, "min_code.v", min_code(v=codes)) for codes in NO_MIN_CODES),
    *(Damage(13, "depth", config(depth=depth)) for depth in (None, 2.0, True, "2")),
    Damage(13, "window", config(window=15.0)),
    Damage(13, "weight_bits", config(weight_bits=6.5)),
    Damage(13, "weight_bits", config(weight_bits=6.0)),
    Damage(13, "style", config(style=["beit"])),
    Damage(13, "coding", config(coding={**CONFIG.to_dict()["coding"], "v": None})),
    Damage(14, "depth", config(depth=0)),
    Damage(14, "depth", config(depth=1 << 40)),
    Damage(14, "image_size", config(image_size=8192, patch_size=256)),
    Damage(14, "patch_size", config(image_size=512, patch_size=512)),
    Damage(14, "classes", config(classes=1 << 30)),
    Damage(14, "width", config(width=1 << 20, heads=1)),
    Damage(14, "mlp_ratio", config(mlp_ratio=17)),
    Damage(14, "window", config(window=64)),
    Damage(14, "weight_bits", config(weight_bits=9)),
    Damage(15, "style", config(style="swin")),
    Damage(15, "activation", config(activation="swish")),
    Damage(15, "coding", config(coding={**CONFIG.to_dict()["coding"], "qk": "sideways"})),
    *(Damage(16, "relation", config(relation=name)) for name in ("gaussian", "cosine", None, ["table"])),
    Damage(16, "use style='vit'", config(relation="table")),
    Damage(16, "use style='vit'", config(relation="dot")),
    Damage(17, "does not divide", config(heads=4)),
    Damage(18, "multiple", config(patch_size=3)),
    Damage(19, "overflow", config(image_size=4096, patch_size=4)),
    *(Damage(13, "affinity_bits", config(affinity_bits=bits)) for bits in (8.0, True, "8", None, [8])),
    *(Damage(14, "affinity_bits", config(affinity_bits=bits)) for bits in (0, 16)),
    *(Damage(14, "weight_bits", config(weight_bits=bits)) for bits in (1, 32)),
    Damage(
        60, "steps apart", config(width=2048, heads=1, window=63, coding={**CONFIG.to_dict()["coding"], "qk": "signed"})
    ),
    Damage(60, "steps apart", config(style="vit", relation="dot", width=594, heads=1)),
    Damage(
        54,
        "membranes",
        config(style="vit", relation="dot", width=32, heads=1, depth=256, window=63, mlp_ratio=1),
    ),
    Damage(54, "membranes", config(width=48, heads=48, depth=256)),
    Damage(36, "delays of pairs", config(image_size=256, patch_size=4)),
]

PREPROCESSING = [
    Damage(20, "must be an object", about(preprocess=[])),
    Damage(20, "fields", about(preprocess={})),
    Damage(20, "fields", preprocess(flip=True)),
    Damage(20, "leaves the field", about(preprocess={"size": 8})),
    *(Damage(21, "size", preprocess(size=size)) for size in ("large", 8.0, True, 0, 4097)),
    Damage(21, "makes 16 pixels", preprocess(size=16)),
    Damage(22, "mean", preprocess(mean="abc")),
    Damage(22, "mean", preprocess(mean=[0.5, 0.5])),
    Damage(22, "mean", text("0.485", "1e999")),
    Damage(22, "std", preprocess(std=[0, 0, 0])),
    Damage(23, "interpolation", preprocess(interpolation="magic")),
    *(Damage(24, "crop", preprocess(crop=crop)) for crop in (0, 1.1, "1", True)),
]

TENSORS = [
    Damage(30, "missing", header(lambda table: table.pop("position"))),
    Damage(30, "unknown", header(lambda table: table.update(evil=table["position"]))),
    Damage(31, "needs dtype", header(lambda table: table.update(position=None))),
    Damage(31, "needs dtype", tensor(more=1)),
    Damage(32, "needs U8", tensor(dtype="F64")),
    *(Damage(32, "needs U8", tensor(shape=shape)) for shape in ([2, 18, 7], [2.0, 18, 6], "all")),
    Damage(33, "offsets", tensor(data_offsets=[0])),
    Damage(33, "offsets", tensor(data_offsets=[False, 216])),
    Damage(33, "spans", tensor(data_offsets=[-216, 0])),
    Damage(33, "spans", tensor(data_offsets=[0, 1 << 62])),
    Damage(34, "overlap", header(_overlap)),
    Damage(34, "gap", _late),
    Damage(35, "it has", lambda data: data + b"\0"),
    Damage(35, "it has", lambda data: data[:-1]),
]

LOWEST = float(np.finfo(np.float32).min)

VALUES = [
    Damage(37, "NaN", values("blocks.qkv.scale", np.float32, np.nan)),
    Damage(37, "NaN or infinity", values("blocks.fc1.shift", np.float32, np.inf)),
    Damage(38, "-32", values("blocks.qkv.weight", np.uint8, 0x20)),
    Damage(39, "behind the last column", values("blocks.qkv.weight", np.uint8, 0x04, at=5)),
    Damage(40, "range of 4 bits", values("blocks.qkv.weight", np.int8, 8), CONFIG.replace(weight_bits=4)),
    Damage(40, "range of 8 bits", values("blocks.qkv.weight", np.int8, -128), CONFIG.replace(weight_bits=8)),
    Damage(41, "below 2**24", values("blocks.fc2.weight", np.int8, np.full(2112, 127)), LONG_ROWS),
    Damage(42, "positive", values("blocks.qkv.scale", np.float32, -1.0)),
    Damage(42, "positive", values("blocks.fc1.scale", np.float32, 0.0)),
    Damage(43, "reaches beyond", values("blocks.proj.scale", np.float32, 1e20)),
    Damage(43, "reaches beyond", values("blocks.fc2.shift", np.float32, -(2.0**30))),
    Damage(43, "reaches beyond", values("blocks.qkv.shift", np.float32, 2e30)),
    Damage(44, "reaches beyond", values("blocks.attention_norm.gain", np.float32, 1e30)),
    Damage(44, "reaches beyond", values("blocks.mlp_norm.shift", np.float32, -2e30)),
    Damage(45, "its values lie in", values("blocks.leak.mantissa", np.uint32, (1 << 31) - 1)),
    Damage(46, "its values lie in", values("blocks.leak.exponent", np.int32, -1)),
    Damage(46, "its values lie in", values("blocks.leak.exponent", np.int32, 1 << 20)),
    Damage(47, "delay", values("blocks.leak.delay", np.uint16, 16384)),
    Damage(48, "readout", values("blocks.readout.scale", np.float32, 0.0)),
    Damage(48, "readout", values("blocks.readout.shift", np.float32, 2e30)),
    Damage(49, "rise", values("blocks.rise", np.float32, 1e30)),
    Damage(49, "rise", values("blocks.fall", np.float32, LOWEST)),
    Damage(49, "rise", values("blocks.fall", np.float32, 1e30)),
    # The difference of these two levels is no finite number.
    Damage(49, "rise", values("blocks.rise", np.float32, [-LOWEST, LOWEST])),
    Damage(50, "shift", values("patch_shift", np.uint8, 31)),
    Damage(51, "overflow", values("patch_weight", np.int16, np.full(300, -32768)), LARGE_PATCH),
    Damage(52, "its values lie in", values("position", np.int32, (1 << 26) + 1)),
    Damage(52, "its values lie in", values("position", np.int32, -(1 << 31))),
    Damage(53, "its values lie in", values("head_bias", np.int64, 1 << 52)),
    Damage(53, "its values lie in", values("head_bias", np.int64, -(1 << 63))),
    Damage(57, "its values lie in", values("blocks.affinity.mantissa", np.uint32, (1 << 31) - 1), TABLE),
    Damage(58, "exponent", values("blocks.affinity.exponent", np.int32, -(1 << 20) - 1), TABLE),
    Damage(58, "exponent", values("blocks.affinity.exponent", np.int32, (1 << 20) + 1, at=183), TABLE),
    Damage(59, "rises", values("blocks.affinity.mantissa", np.uint32, [1 << 31, (1 << 31) + 1]), TABLE),
    Damage(59, "rises", values("blocks.affinity.exponent", np.int32, [0, -1]), TABLE),
]

DAMAGES = [*CONTAINER, *DESCRIPTION, *CONFIGURATION, *PREPROCESSING, *TENSORS, *VALUES]
