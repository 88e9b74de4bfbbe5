"""docs/format.md says what reader, writer and executors do: its tables, rules, example and test vector are theirs."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, get_args

import numpy as np
import pytest

from benchmarks.synthetic import random_network
from lapis import native
from lapis._util.files import MAX_DIGITS
from lapis.codes import MAX_WINDOW
from lapis.config import Activation, Coding, CodingByPoint, LapisConfig, Style, preset
from lapis.deploy import schema
from lapis.deploy.schema import (
    BY_PATH,
    DTYPES,
    ENTRIES_PER_BYTE,
    FREE_ENTRIES,
    LONGEST_DELAY,
    MAX_CODE_DISTANCE,
    MAX_DOT_DISTANCE,
    MAX_HEADER,
    METADATA_KEY,
)
from lapis.ops.integer_attention.reference import AFFINITY_MAX
from lapis.pack import load, pack
from lapis.preprocess import MAX_PIXELS, Interpolation, Preprocess
from lapis.relations import PACKED
from lapis.runtime import Session
from lapis.runtime.engine import Engine
from tests.networks import data_bytes, small_config
from tests.pack.damage import DAMAGES, split
from tools import schema as generator
from tools.format_vector import PACKAGED, ROOT, VECTOR, answer, pixels, small_network, vector

SPECIFICATION = generator.with_tables((ROOT / "docs" / "format.md").read_text())
FILES: list[dict[str, Any]] = json.loads(VECTOR.read_text())
needs_library = pytest.mark.skipif(not native.available(), reason="the native library is not built")


def _section(title: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", SPECIFICATION, flags=re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def _rows(title: str) -> list[list[str]]:
    """The rows of the tables of a section, without their heads."""
    lines = re.findall(r"^\|(.*)\|$", _section(title).replace(r"\|", "&#124;"), flags=re.MULTILINE)
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    heads = {index - 1 for index, row in enumerate(rows) if set("".join(row)) == {"-"}}
    return [row for index, row in enumerate(rows) if not {index, index - 1} & heads]


def test_the_vector_is_what_the_integer_model_answers() -> None:
    assert vector() == FILES


@needs_library
@pytest.mark.parametrize("file", FILES, ids=lambda file: file["file"])
def test_the_engine_answers_the_vector(file: dict[str, Any]) -> None:
    network = load(ROOT / file["file"])
    engine = Engine(network)
    for image in file["images"]:
        resized = network.preprocess.resize(pixels(image))[None]
        assert answer(network, image, *engine.watch(resized)) == image
    engine.close()


@pytest.mark.parametrize("use_library", [False, pytest.param(True, marks=needs_library)])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file["file"])
def test_real_logits_are_the_integers_of_the_vector_scaled_and_rounded_once(
    file: dict[str, Any], use_library: bool
) -> None:
    session = Session(ROOT / file["file"], native=use_library)
    exponent = load(ROOT / file["file"]).head_exponent
    for image in file["images"]:
        real = np.array([logit / 2.0 ** (10 + exponent) for logit in image["logits"]]).astype(np.float32)
        assert (session.run(pixels(image))[0] == real).all()


def test_what_is_written_from_the_schema_is_not_stale() -> None:
    assert generator.INC.read_text() == generator.c_schema(), "run `python tools/schema.py`"


def test_the_schema_has_the_fields_and_words_that_a_network_has() -> None:
    config = {field.name for field in dataclasses.fields(LapisConfig)}
    assert schema.fields_of("config").keys() <= config
    assert schema.fields_of("config.coding").keys() == {field.name for field in dataclasses.fields(CodingByPoint)}
    assert schema.fields_of("config.min_code").keys() == schema.fields_of("config.coding").keys()
    assert schema.fields_of("preprocess").keys() == {field.name for field in dataclasses.fields(Preprocess)}
    words = {"style": Style, "activation": Activation, "coding.qk": Coding}
    for name, kind in words.items():
        assert BY_PATH[f"config.{name}"].words == get_args(kind)
    assert BY_PATH["preprocess.interpolation"].words == get_args(Interpolation)
    assert BY_PATH["config.relation"].words == PACKED
    assert BY_PATH["config.window"].high == MAX_WINDOW


def test_documented_limits_are_those_of_the_code() -> None:
    assert f"`{METADATA_KEY}`" in _section("Container")
    assert f"longer than {MAX_HEADER >> 20} MiB" in SPECIFICATION
    assert f"more than {MAX_DIGITS} digits" in SPECIFICATION
    assert (
        f"beyond {MAX_CODE_DISTANCE}; where `relation` is `dot`, T times that, beyond {MAX_DOT_DISTANCE} |"
        in SPECIFICATION
    )
    assert f"at most {MAX_CODE_DISTANCE + LONGEST_DELAY};" in SPECIFICATION
    allowance = f"2^{FREE_ENTRIES.bit_length() - 1} entries, and {ENTRIES_PER_BYTE} more for\nevery byte"
    assert allowance in SPECIFICATION
    assert f"N T at most {((1 << 31) - 1) // AFFINITY_MAX}" in SPECIFICATION
    assert f"2^{MAX_PIXELS.bit_length() - 1} pixels" in SPECIFICATION


def _configs() -> list[LapisConfig]:
    small = small_config(image_size=12, classes=5, mlp_ratio=3)
    return [
        small.replace(style=style, relation=relation, weight_bits=bits, coding=CodingByPoint(qk=mode, mlp_hidden=mode))
        for style, relation in (
            *((style, "laplacian") for style in get_args(Style)),
            ("vit", "table"),
            ("vit", "dot"),
        )
        for bits in (6, 8)
        for mode in ("unsigned", "signed")
    ]


def test_every_rule_has_a_damaged_file_that_breaks_it() -> None:
    rules = [int(row[0]) for row in _rows("Readers must reject")]
    assert rules == list(range(1, len(rules) + 1))
    assert {damage.rule for damage in DAMAGES} == set(rules)
    assert all(all(row) and len(row) == 3 for row in _rows("Readers must reject"))


def test_the_example_is_the_packaged_file() -> None:
    data = (ROOT / PACKAGED).read_bytes()
    header = data[8 : 8 + int.from_bytes(data[:8], "little")].decode()
    example = re.search(r"```\n(.*?)```", _section("Container"), flags=re.DOTALL)
    assert example is not None
    pieces = example[1].replace("\n", "").split("…")
    assert header.startswith(pieces[0])
    assert header.rstrip(" ").endswith(pieces[-1])
    assert all(piece in header for piece in pieces)
    assert f"`{data[:8].hex(' ')}`" in SPECIFICATION
    assert f"= {len(data)} bytes" in SPECIFICATION


@pytest.mark.parametrize(
    "config", _configs(), ids=lambda config: f"{config.style} {config.relation} {config.weight_bits}"
)
def test_the_writer_keeps_to_the_canonical_bytes(config: LapisConfig) -> None:
    # Names with quotes, backslashes and letters beyond ASCII.
    network = dataclasses.replace(random_network(config), class_names=small_network().class_names)
    data = pack(network)
    length, (table, _) = int.from_bytes(data[:8], "little"), split(data)
    order = re.search(r"by type, in the order ([\w, ]+);", _section("Canonical bytes"))
    assert order is not None
    kinds = order[1].split(", ")
    assert set(kinds) == set(DTYPES.values())
    names = sorted(table.keys() - {"__metadata__"}, key=lambda name: (kinds.index(table[name]["dtype"]), name.encode()))
    ends = [0, *(table[name]["data_offsets"][1] for name in names)]
    assert [table[name]["data_offsets"][0] for name in names] == ends[:-1]
    about = json.dumps(json.loads(table["__metadata__"][METADATA_KEY]), sort_keys=True, separators=(",", ":"))
    canonical = {name: {field: table[name][field] for field in ("dtype", "shape", "data_offsets")} for name in names}
    text = json.dumps({"__metadata__": {METADATA_KEY: about}, **canonical}, separators=(",", ":"))
    assert data[8 : 8 + length].decode() == text + " " * (-len(text) % 8)


@pytest.mark.parametrize(
    ("name", "classes"), [("lapis_small", 10), ("lapis_small", 100), ("lapis_base", 1000), ("lapis_large", 1000)]
)
def test_the_sizes_are_those_of_the_code(name: str, classes: int) -> None:
    """docs/paper.md has them in MB with two decimals; a header has less than 4096 bytes."""
    row = re.search(r"^\| ours \|(( [\d.]+ \|)+)$", (ROOT / "docs" / "paper.md").read_text(), flags=re.MULTILINE)
    assert row is not None
    tensors = data_bytes(preset(name, classes=classes).deployed())
    assert sum(-5000 <= float(size) * 1e6 - tensors < 4096 + 5000 for size in re.findall(r"[\d.]+", row[1])) == 1
