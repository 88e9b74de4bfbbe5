"""docs/format.md says what reader, writer and executors do: its tables, rules, example and test vector are theirs."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, get_args

import numpy as np
import pytest

from lapis import native
from lapis._util.files import MAX_DIGITS
from lapis.codes import MAX_WINDOW
from lapis.config import (
    AFFINITY_BITS,
    DEPLOYED,
    TRAINING_ONLY,
    WEIGHT_BITS,
    Activation,
    Coding,
    CodingByPoint,
    LapisConfig,
    MinCodeByPoint,
    Style,
    preset,
)
from lapis.deploy import arithmetic
from lapis.deploy.network import (
    ENTRIES_PER_BYTE,
    FRACTION_BITS,
    FREE_ENTRIES,
    LONGEST_DELAY,
    MAX_CLASS_NAME,
    MAX_CODE_DISTANCE,
    MAX_HEAD_EXPONENT,
    MAX_PATCH_SHIFT,
    TEST_IMAGES,
)
from lapis.deploy.synthetic import random_network
from lapis.ops.integer_attention.reference import AFFINITY_MAX
from lapis.pack import load, pack
from lapis.pack.format import (
    DTYPES,
    FIELDS,
    LIMITS,
    MAX_HEADER,
    MAX_MLP_RATIO,
    METADATA_KEY,
    OPTIONAL_CONFIG,
    OPTIONAL_FIELDS,
    READABLE,
    SINCE_VERSION_2,
    TRAINED_SLICE,
    data_bytes,
    entries,
)
from lapis.preprocess import Interpolation, Preprocess
from lapis.relations import PACKED
from lapis.runtime import Session
from lapis.runtime.engine import Engine
from tests.networks import small_config
from tests.pack import test_hostile
from tests.pack.damage import DAMAGES, split
from tools.format_vector import PACKAGED, ROOT, VECTOR, answer, pixels, small_network, vector

SPECIFICATION = (ROOT / "docs" / "format.md").read_text()
FILES: list[dict[str, Any]] = json.loads(VECTOR.read_text())
# A rule that no content of a file can break.
BROKEN_BY_TESTS = {36: "test_a_file_that_changes_while_it_is_read_is_refused"}

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


def _spread(name: str) -> list[str]:
    """`a.{b,c}.{d,e}` as its four names."""
    match = re.search(r"\{([^}]*)\}", name)
    if match is None:
        return [name]
    return [
        full for word in match[1].split(",") for full in _spread(name[: match.start()] + word + name[match.end() :])
    ]


def _table(title: str) -> dict[str, list[str]]:
    """The rows of a section by the names in their first cell."""
    return {
        full: row[1:] for row in _rows(title) for name in re.findall(r"`([^`]*)`", row[0]) for full in _spread(name)
    }


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


def test_every_field_is_documented_and_no_other() -> None:
    config = {field.name for field in dataclasses.fields(LapisConfig)} - TRAINING_ONLY.keys()
    coding = {f"coding.{field.name}" for field in dataclasses.fields(CodingByPoint)}
    coding |= {f"min_code.{field.name}" for field in dataclasses.fields(MinCodeByPoint)}
    assert _table("Description").keys() == {*FIELDS, *OPTIONAL_FIELDS}
    assert _table("Configuration").keys() == config | coding
    assert _table("Preprocessing fields").keys() == {field.name for field in dataclasses.fields(Preprocess)}
    assert f"`{METADATA_KEY}`" in _section("Container")


def test_documented_ranges_are_those_that_are_checked() -> None:
    description, config = _table("Description"), _table("Configuration")
    assert description["version"][1] == ", ".join(map(str, READABLE))
    assert description["fraction_bits"][1] == f"{FRACTION_BITS[0]}..{FRACTION_BITS[-1]}"
    assert description["head_exponent"][1] == f"0..{MAX_HEAD_EXPONENT}"
    assert f"at most {MAX_CLASS_NAME} code points" in description["class_names"][1]
    assert description[TRAINED_SLICE][1].startswith(f"0..{TEST_IMAGES - 1}, ascending")
    for name, limit in {**LIMITS, "mlp_ratio": MAX_MLP_RATIO, "window": MAX_WINDOW}.items():
        assert re.split(", ", config[name][1])[0] == f"1..{limit}", name
    integers = tuple(bits for bits in WEIGHT_BITS if bits <= 8)
    assert config["weight_bits"][1] == f"{integers[0]}..{integers[-1]}, {WEIGHT_BITS[-1]}"
    assert integers == tuple(range(integers[0], integers[-1] + 1))
    assert config["affinity_bits"][1] == f"1..{AFFINITY_BITS - 1}"
    assert [name for name, row in zip(config, _rows("Configuration"), strict=True) if "(optional)" in row[0]] == [
        *OPTIONAL_CONFIG
    ]
    assert re.findall(r"`(\w+)`", config["style"][1]) == list(get_args(Style))
    assert re.findall(r"`(\w+)`", config["coding.attention_in"][1]) == list(get_args(Coding))
    filters = _table("Preprocessing fields")["interpolation"][1]
    assert re.findall(r"`(\w+)`", filters) == list(get_args(Interpolation))
    only = {name: config[name][1].strip("`") for name in DEPLOYED}
    assert only == {name: str(value).lower() for name, value in DEPLOYED.items()}
    assert re.findall(r"`(\w+)`", config["relation"][1].replace("in style `vit`", "")) == list(PACKED)
    assert re.findall(r"`(\w+)`", config["activation"][1]) == list(get_args(Activation))
    absent = re.search(r"Version 1 has neither (.*): read", _section("Configuration"))
    assert absent is not None
    assert set(re.findall(r"`(\w+)`", absent[1])) == SINCE_VERSION_2.keys()


def test_documented_limits_are_those_of_the_code() -> None:
    tensors = _table("Tensors")
    assert tensors["patch_shift"][1] == f"0..{MAX_PATCH_SHIFT}"
    assert tensors["blocks.leak.delay"][1] == f"0..{LONGEST_DELAY}"
    assert arithmetic.STREAM_LIMIT == 1 << 26
    assert 1 << arithmetic.POOLED_BITS == 1024
    assert f"longer than {MAX_HEADER >> 20} MiB" in SPECIFICATION
    assert f"more than {MAX_DIGITS} digits" in SPECIFICATION
    assert f"beyond {MAX_CODE_DISTANCE} |" in SPECIFICATION
    assert f"at most {MAX_CODE_DISTANCE + LONGEST_DELAY} |" in SPECIFICATION
    allowance = f"2^{FREE_ENTRIES.bit_length() - 1} entries, and {ENTRIES_PER_BYTE} more for\nevery byte"
    assert allowance in SPECIFICATION
    assert f"N T at most {((1 << 31) - 1) // AFFINITY_MAX}" in SPECIFICATION


def _configs() -> list[LapisConfig]:
    small = small_config(image_size=12, classes=5, mlp_ratio=3)
    return [
        small.replace(style=style, relation=relation, weight_bits=bits, coding=CodingByPoint(qk=mode, mlp_hidden=mode))
        for style, relation in (
            *((style, "laplacian") for style in get_args(Style)),
            ("vit", "table"),
            ("vit", "laplacian2"),
        )
        for bits in (6, 8, 32)
        for mode in ("unsigned", "signed")
    ]


@pytest.mark.parametrize(
    "config", _configs(), ids=lambda config: f"{config.style} {config.relation} {config.weight_bits}"
)
def test_every_tensor_is_documented_with_its_type_and_shape(config: LapisConfig) -> None:
    documented = _table("Tensors")
    found = entries(config).values()
    leak, affinity = (set(_spread(f"blocks.{one}.{{mantissa,exponent}}")) for one in ("leak", "affinity"))
    stored = {"laplacian": leak, "table": affinity, "laplacian2": {"blocks.shift.halvings"}}
    absent = set().union(*(names for relation, names in stored.items() if relation != config.relation))
    absent |= set() if config.relative_position else {"blocks.leak.delay"}
    assert {entry.name for entry in found} == documented.keys() - absent
    for entry in found:
        cell = documented[entry.name][0]
        if cell.startswith("weight"):
            kinds = {6: ("U8", 3 * -(-_columns(cell, config) // 4)), 32: ("F32", _columns(cell, config))}
            kind, columns = kinds.get(config.weight_bits, ("I8", _columns(cell, config)))
            assert (DTYPES[entry.kind], entry.shape[-1]) == (kind, columns), entry.name
        elif "rows of the weight" in cell:
            assert (cell.split()[0], entry.shape) == (DTYPES[entry.kind], _rows_of(entry.name, config)), entry.name
        else:
            assert cell.split()[0] == DTYPES[entry.kind], entry.name
            assert entry.shape in _shapes(cell, config), entry.name


def _columns(cell: str, config: LapisConfig) -> int:
    """The last side of a weight before it is packed."""
    return _shapes(cell, config)[0][-1]


def _rows_of(name: str, config: LapisConfig) -> tuple[int, ...]:
    weight = f"{name.rpartition('.')[0]}.weight"
    return _shapes(_table("Tensors")[weight][0], config)[0][:2]


def _shapes(cell: str, config: LapisConfig) -> list[tuple[int, ...]]:
    """The shapes in a cell, such as `[L, (2 G - 1)² + 3, H]`, with the letters of a configuration put in."""
    letters = {"P": config.patch_size, "G": config.grid, "N": config.tokens, "K": config.classes, "D": config.width}
    letters |= {"C": config.head_width, "L": config.depth, "H": config.heads, "M": config.hidden, "T": config.window}
    shapes = []
    for sides in re.findall(r"\[([^\]]*)\]", cell):
        product = re.sub(r"(?<=\w) (?=[A-Z])", "*", sides.replace("²", "**2"))
        shapes.append(tuple(eval(side, {"__builtins__": {}}, letters) for side in product.split(", ")))
    return shapes


def test_every_rule_has_a_damaged_file_that_breaks_it() -> None:
    rules = [int(row[0]) for row in _rows("Readers must reject")]
    assert rules == list(range(1, len(rules) + 1))
    assert {damage.rule for damage in DAMAGES} | BROKEN_BY_TESTS.keys() == set(rules)
    assert all(hasattr(test_hostile, name) for name in BROKEN_BY_TESTS.values())
    assert all(all(row) and len(row) == 3 for row in _rows("Readers must reject"))


def test_the_example_is_the_packaged_file() -> None:
    data = (ROOT / PACKAGED).read_bytes()
    header = data[8 : 8 + int.from_bytes(data[:8], "little")].decode()
    example = re.search(r"```\n(.*?)```", _section("Container"), flags=re.DOTALL)
    assert example is not None
    pieces = example[1].replace("\n", "").split("…")
    assert header.startswith(pieces[0])
    assert header.endswith(pieces[-1] + "    ")
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
    sizes = [int(row[1].replace(",", "")) for row in _rows("Sizes")]
    tensors = data_bytes(preset(name, classes=classes).deployed())
    assert sum(0 < size - tensors < 4096 for size in sizes) == 1
