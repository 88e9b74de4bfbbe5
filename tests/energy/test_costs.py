"""Laws of the cost tables: the paper's figures, sources for every one, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lapis.config import AFFINITY_BITS
from lapis.energy.costs import CIRCUITS, KINDS, load_costs, parse_costs, tables
from lapis.errors import LapisError

GATES = [name for name in tables() if "gates" in name]


def _fields() -> dict[str, Any]:
    return load_costs().to_dict()


def test_default_table_is_the_papers() -> None:
    pj = load_costs().pj
    assert [pj[kind] for kind in ("mac", "accumulate", "integer_accumulate", "lookup", "scale", "shift")] == [
        4.6,
        0.9,
        0.1,
        10,
        4.6,
        0,
    ]


@pytest.mark.parametrize("name", tables())
def test_every_cost_of_every_table_names_its_source(name: str) -> None:
    table = load_costs(name)
    assert table.name == name
    assert all(len(table.sources[kind]) > 10 for kind in KINDS)
    # An addition is a part of a multiply-accumulate.
    assert table.pj["accumulate"] < table.pj["mac"]


def test_a_table_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(_fields() | {"name": "mine"}))
    assert load_costs(str(path)).pj == load_costs().pj
    assert load_costs(path).name == "mine"


@pytest.mark.parametrize("name", GATES)
def test_a_table_of_circuits_survives_its_file_and_names_the_source_of_every_one(name: str) -> None:
    table = load_costs(name)
    assert parse_costs(json.dumps(table.to_dict()), "copy") == table
    assert table.circuits.keys() == set(CIRCUITS)
    assert all(len(circuit.source) > 10 for circuit in table.circuits.values())
    assert table.unit is not None
    # A narrower affinity never costs more where its bits are most of the circuit.
    for kind in ("affinity", "weigh"):
        prices = [table.price(kind, bits) for bits in range(1, AFFINITY_BITS + 1)]
        assert prices == sorted(prices)


def test_a_circuit_is_priced_at_the_least_measured_width_that_holds_the_affinity() -> None:
    fields = load_costs("45nm_gates").to_dict()
    fields["circuits"]["weigh"]["ratio"] = {"15": 10, "8": 6, "4": 3}
    table = parse_costs(json.dumps(fields), "table")
    assert [table.price("weigh", bits) / 0.03 for bits in (15, 9, 8, 5, 4, 1)] == pytest.approx([10, 10, 6, 6, 3, 3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": {"operation": "add", "pj": 0.03}}, "unit="),
        ({"unit": {"operation": "add", "pj": 0, "source": "x"}}, "above 0"),
        ({"unit": {"operation": " ", "pj": 1, "source": "x"}}, "as text"),
        ({"unit": {"operation": "add", "pj": "1", "source": "x"}}, r"unit\.pj='1'"),
        ({"ratios": {}}, "'ratios' holds nothing"),
        ({"circuits": {}}, "'circuits' holds nothing"),
        ({"pj": {}}, "a cost table has the fields"),
    ],
)
def test_a_bad_table_of_circuits_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(LapisError, match=message):
        parse_costs(json.dumps(load_costs("45nm_gates").to_dict() | change), "table")


@pytest.mark.parametrize(
    "ratio", [1.0, {}, {"8": 1.0}, {"15": 1.0, "16": 2.0}, {"15": -1.0}, {"15": "1"}, {"15": True}]
)
def test_a_circuit_needs_ratios_by_width(ratio: object) -> None:
    fields = load_costs("45nm_gates").to_dict()
    fields["circuits"]["weigh"]["ratio"] = ratio
    with pytest.raises(LapisError, match=r"circuits\.weigh\.ratio"):
        parse_costs(json.dumps(fields), "table")


def test_a_table_without_circuits_says_which_has_them() -> None:
    with pytest.raises(LapisError, match="use 45nm_gates"):
        load_costs().price("weigh", 15)


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(LapisError, match="did you mean '45nm_int8'"):
        load_costs("45nm_int")


def test_a_folder_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(LapisError, match="no cost table"):
        load_costs(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("float_bytes", 0, "float_bytes=0"),
        ("float_bytes", True, "float_bytes=True"),
        ("name", " ", "name=' '"),
        ("node", 45, "node=45"),
        ("pj", [], "'pj' holds list"),
        ("pj", {"mac": {}}, "'pj' holds mac"),
    ],
)
def test_a_bad_field_is_refused_by_name(field: str, value: object, message: str) -> None:
    with pytest.raises(LapisError, match=message):
        parse_costs(json.dumps(_fields() | {field: value}), "table")


@pytest.mark.parametrize(
    "entry",
    [
        0.9,
        {"cost": 0.9},
        {"cost": -1, "source": "x"},
        {"cost": "0.9", "source": "x"},
        {"cost": True, "source": "x"},
        {"cost": float("nan"), "source": "x"},
        {"cost": float("inf"), "source": "x"},
        {"cost": 0.9, "source": ""},
    ],
)
def test_a_cost_without_a_number_or_a_source_is_refused(entry: object) -> None:
    fields = _fields()
    fields["pj"]["accumulate"] = entry
    with pytest.raises(LapisError, match=r"pj\.accumulate"):
        parse_costs(json.dumps(fields), "table")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"name": "x"}', "null"])
def test_text_that_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(LapisError, match="table"):
        parse_costs(text, "table")


def test_binary_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LapisError, match="cannot be read"):
        load_costs(path)
