"""A damaged or hostile file gets one clear error: no crash, no large allocation, nothing executed."""

from __future__ import annotations

import json
import os
import resource
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.networks import small_config

from lapis.config import ActivationModes
from lapis.deploy import integer
from lapis.deploy.synthetic import random_network
from lapis.errors import LapisError
from lapis.pack import is_packed, load, pack

CONFIG = small_config(style="beit", modes=ActivationModes(mlp_hidden="signed"))
# Python's own objects while a header is parsed, and a few copies of a file of this size.
ALLOWED_BYTES = 2 << 20


@pytest.fixture(scope="module")
def sound() -> bytes:
    return pack(random_network(CONFIG))


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def _join(table: dict[str, Any], tensors: bytes) -> bytes:
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + tensors


def _refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(LapisError) as caught:
            load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < ALLOWED_BYTES
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_cut_anywhere_is_refused(sound: bytes, tmp_path: Path) -> None:
    for length in [*range(24), len(sound) // 2, len(sound) - 1]:
        _refused(tmp_path / "f", sound[:length])


def test_bytes_behind_the_end_are_refused(sound: bytes, tmp_path: Path) -> None:
    assert "it has" in _refused(tmp_path / "f", sound + b"\0")


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, 5 << 20, 4 << 20])
def test_an_absurd_header_length_is_refused(sound: bytes, tmp_path: Path, length: int) -> None:
    assert "header claims" in _refused(tmp_path / "f", length.to_bytes(8, "little") + sound[8:])


def test_a_huge_sparse_file_is_refused_unread(sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(sound)
    os.truncate(path, 1 << 40)
    with pytest.raises(LapisError, match="it has"):
        load(path)


def _tensor(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(table: dict[str, Any]) -> None:
        table["blocks.qkv.weight"].update(changes)

    return change


def _about(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(table: dict[str, Any]) -> None:
        about = json.loads(table["__metadata__"]["lapis_packed"])
        about.update(changes)
        table["__metadata__"]["lapis_packed"] = json.dumps(about)

    return change


def _config(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return _about(config={**CONFIG.to_dict(), **changes})


def _overlap(table: dict[str, Any]) -> None:
    first, second = table["blocks.mlp_norm.gain"], table["blocks.mlp_norm.shift"]
    second["data_offsets"] = first["data_offsets"]


CHANGES: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("version", _about(version=2)),
    ("version", _about(version=True)),
    ("version", _about(version="1")),
    ("fields", _about(extra=1)),
    ("missing", lambda table: table.pop("position")),
    ("unknown", lambda table: table.update(evil=table["position"])),
    ("overlap", _overlap),
    ("needs U8", _tensor(dtype="F64")),
    ("needs U8", _tensor(shape=[2, 18, 7])),
    ("needs U8", _tensor(shape=[2.0, 18, 6])),
    ("needs U8", _tensor(shape="all")),
    ("offsets", _tensor(data_offsets=[0])),
    ("offsets", _tensor(data_offsets=[False, 216])),
    ("spans", _tensor(data_offsets=[-216, 0])),
    ("spans", _tensor(data_offsets=[0, 1 << 62])),
    ("needs dtype", lambda table: table.update(position=None)),
    ("metadata", lambda table: table.pop("__metadata__")),
    ("metadata", lambda table: table["__metadata__"].update(more="x")),
    ("not JSON", lambda table: table["__metadata__"].update(lapis_packed="{")),
    ("not JSON", lambda table: table["__metadata__"].update(lapis_packed="[" * 100_000)),
    ("twice", lambda table: table["__metadata__"].update(lapis_packed='{"version":1,"version":1}')),
    ("beyond", _config(width=1 << 20, heads=1)),
    ("beyond", _config(depth=1 << 40)),
    ("beyond", _config(classes=1 << 30)),
    ("overflow", _config(image_size=4096, patch_size=4)),
    ("depth", _config(depth=0)),
    ("depth", _config(depth=None)),
    ("style", _config(style=["beit"])),
    ("row_scale", _config(row_scale="exact")),
    ("weight_bits", _config(weight_bits=6.5)),
    ("window", _config(window=64)),
    ("unknown configuration", _config(surprise=1)),
    ("table of fields", _about(config=[])),
    ("mode", _config(modes={"qk": "sideways"})),
    ("mode", _config(modes=7)),
    ("leaves fields out", _about(config={key: CONFIG.to_dict()[key] for key in ("style", "row_scale", "readout")})),
    ("size", _about(preprocess={"size": "large"})),
    ("fields", _about(preprocess={})),
    ("mean", _about(preprocess={"size": 8, "mean": "abc"})),
    ("std", _about(preprocess={"size": 8, "std": [0, 0, 0]})),
    ("class", _about(class_names=["a"])),
    ("class_names", _about(class_names=[1, 2, 3])),
    ("class_names", _about(class_names=["x" * 1000, "b", "c"])),
    ("fraction_bits", _about(fraction_bits=99)),
    ("fraction_bits", _about(fraction_bits=None)),
    ("head_exponent", _about(head_exponent=-1)),
]


@pytest.mark.parametrize(("word", "change"), CHANGES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_header_that_lies_is_refused(
    sound: bytes, tmp_path: Path, word: str, change: Callable[[dict[str, Any]], Any]
) -> None:
    table, tensors = _split(sound)
    change(table)
    assert word in _refused(tmp_path / "f", _join(table, tensors))


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b'{"a":1,"a":2}', b"\xff\xfe", b"[" * 200_000, b"{" * 9])
def test_a_header_that_is_no_table_is_refused(tmp_path: Path, text: bytes) -> None:
    _refused(tmp_path / "f", len(text).to_bytes(8, "little") + text)


@pytest.mark.parametrize(
    ("name", "kind", "value", "word"),
    [
        ("blocks.qkv.scale", np.float32, np.nan, "NaN"),
        ("blocks.qkv.scale", np.float32, -1.0, "positive"),
        ("blocks.fc1.shift", np.float32, np.inf, "NaN or infinity"),
        ("blocks.proj.scale", np.float32, 1e20, "beyond"),
        ("blocks.qkv.weight", np.uint8, 0x20, "-32"),
        ("blocks.leak.mantissa", np.uint32, 0, "highest bit"),
        ("blocks.leak.exponent", np.int32, -5, "exponent"),
        ("patch_shift", np.uint8, 255, "shift"),
        ("position", np.int32, -(1 << 31), "limit"),
        ("head_bias", np.int64, 1 << 62, "2\\*\\*52"),
    ],
)
def test_values_out_of_range_are_refused(
    sound: bytes, tmp_path: Path, name: str, kind: type, value: float, word: str
) -> None:
    table, tensors = _split(sound)
    begin = table[name]["data_offsets"][0]
    item = np.array(value).astype(kind).tobytes()
    assert word.replace("\\", "") in _refused(
        tmp_path / "f", _join(table, tensors[:begin] + item + tensors[begin + len(item) :])
    )


@pytest.mark.parametrize("path", ["missing", "."])
def test_what_is_no_file_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(LapisError, match="cannot read"):
        load(tmp_path / path)
    assert not is_packed(tmp_path / path)


ROUNDS = 3000
# Far below what one absurd shape would ask for, far above what this process needs.
GROWTH_KILOBYTES = 64 << 10


def test_thousands_of_mutations_are_refused_or_still_run(sound: bytes, tmp_path: Path) -> None:
    generator = np.random.default_rng(20)
    image = generator.integers(0, 256, (1, 8, 8, 3), dtype=np.uint8)
    path, header = tmp_path / "f", int.from_bytes(sound[:8], "little") + 8
    refused = ran = 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(ROUNDS):
        path.write_bytes(_mutated(sound, header, generator))
        try:
            network = load(path)
        except LapisError:
            refused += 1
            continue
        # Damage that is still a valid network must compute without a warning, which here would be an error.
        assert np.isfinite(integer.run(network, image)).all()
        ran += 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < GROWTH_KILOBYTES
    assert refused > ROUNDS / 4
    assert ran > ROUNDS / 20


def _mutated(data: bytes, header: int, generator: np.random.Generator) -> bytes:
    """A few bytes changed in the header or anywhere, a piece cut out, doubled, zeroed, or two pieces exchanged."""
    new = bytearray(data)
    kind = int(generator.integers(6))
    limit = header if generator.random() < 0.5 else len(new)
    begin = int(generator.integers(limit))
    end = min(len(new), begin + int(generator.integers(1, 40)))
    if kind <= 1:
        for _ in range(int(generator.integers(1, 4))):
            new[int(generator.integers(limit))] = int(generator.integers(256))
    elif kind == 2:
        del new[begin:end]
    elif kind == 3:
        new[begin:begin] = new[begin:end]
    elif kind == 4:
        new[begin:end] = bytes([int(generator.choice([0, 255]))]) * (end - begin)
    else:
        other = int(generator.integers(len(new) - 1))
        new[begin], new[other] = new[other], new[begin]
    return bytes(new)
