"""Laws of the cost tables: the paper's figures, sources for every one, and clear refusals."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from lapis.config import AFFINITY_BITS
from lapis.energy.costs import CIRCUITS, KINDS, load_costs, parse_costs, tables
from lapis.errors import LapisError

GATES = [name for name in tables() if "gates" in name]


def _fields(name: str = "45nm") -> dict[str, Any]:
    return copy.deepcopy(dict(load_costs(name).fields))


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
    assert set(KINDS) <= table.pj.keys() <= {*KINDS, *CIRCUITS}
    assert all(len(entry["source"]) > 10 for entry in table.fields["costs"].values())
    # An addition is a part of a multiply-accumulate.
    assert table.pj["accumulate"] < table.pj["mac"]


def test_a_table_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(_fields() | {"name": "mine"}))
    assert load_costs(str(path)).pj == load_costs().pj
    assert load_costs(path).name == "mine"


@pytest.mark.parametrize("name", GATES)
def test_a_table_of_circuits_survives_its_file(name: str) -> None:
    table = load_costs(name)
    assert parse_costs(json.dumps(table.fields), "copy") == table
    assert set(CIRCUITS) <= table.pj.keys()
    assert table.circuits
    assert table.unit is not None
    # A narrower affinity never costs more where its bits are most of the circuit.
    for kind in ("affinity", "weigh"):
        prices = [table.price(kind, bits) for bits in range(1, AFFINITY_BITS + 1)]
        assert prices == sorted(prices)


def test_a_circuit_is_priced_at_the_least_measured_width_that_holds_the_affinity() -> None:
    fields = _fields("45nm_gates")
    fields["costs"]["weigh"]["cost"] = {"15": 10, "8": 6, "4": 3}
    table = parse_costs(json.dumps(fields), "table")
    assert [table.price("weigh", bits) / 0.03 for bits in (15, 9, 8, 5, 4, 1)] == pytest.approx([10, 10, 6, 6, 3, 3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": {"operation": "add", "pj": 0.03}}, "unit holds operation, pj; it needs operation, pj, source"),
        ({"unit": {"operation": "add", "pj": 0, "source": "x"}}, "unit: pj=0 must be a finite number above 0"),
        ({"unit": {"operation": " ", "pj": 1, "source": "x"}}, "operation=' ' must be text"),
        ({"unit": {"operation": "add", "pj": "1", "source": "x"}}, r"unit: pj='1'"),
        ({"costs": {}}, "costs holds nothing; it needs mac"),
        ({"costs": {"dot": {}}}, "costs holds dot; it needs mac.*weigh"),
        ({"pj": {}}, "unknown field 'pj'"),
    ],
)
def test_a_bad_table_of_circuits_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(LapisError, match=message):
        parse_costs(json.dumps(_fields("45nm_gates") | change), "table")


@pytest.mark.parametrize(
    "cost", [{}, {"8": 1.0}, {"15": 1.0, "16": 2.0}, {"15": -1.0}, {"15": "1"}, {"15": True}, None]
)
def test_a_circuit_needs_a_cost_for_the_widest_affinities(cost: object) -> None:
    fields = _fields("45nm_gates")
    fields["costs"]["weigh"]["cost"] = cost
    with pytest.raises(LapisError, match=r"costs\.weigh: cost"):
        parse_costs(json.dumps(fields), "table")


def test_a_table_without_circuits_says_which_has_them() -> None:
    with pytest.raises(LapisError, match="use 45nm_gates"):
        load_costs().price("weigh", 15)


def test_a_product_costs_as_its_widths_and_the_additions_of_its_sum() -> None:
    for name, multiply, add in (("45nm", 0.2, 0.1), ("45nm_int8", 0.2, 0.1), ("7nm", 0.07, 0.03)):
        table = load_costs(name)
        assert table.price("product", operands=(6, 5)) == pytest.approx(multiply * 30 / 64 + add)
        assert table.price("product", operands=(8, 16)) == pytest.approx(2 * multiply + add)
        assert table.price("product", operands=(16, 16)) == pytest.approx(4 * multiply + 2 * add)
    # The int8 product of the dense network is the same product.
    assert load_costs("45nm_int8").price("product") == pytest.approx(load_costs("45nm_int8").pj["mac"])
    gates = load_costs("45nm_gates_int8")
    assert gates.price("dot") == pytest.approx(gates.pj["mac"])
    # Measured with 5-bit codes the same tree takes 2.515 additions of 8 bits a product: 5 % more than its widths say.
    assert gates.price("dot", operands=(5, 5)) / 0.03 == pytest.approx(2.515, rel=0.06)


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
        ("costs", [], "costs=.. must be a table"),
        ("costs", {"mac": {}}, "costs holds mac"),
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
    fields["costs"]["accumulate"] = entry
    with pytest.raises(LapisError, match=r"costs: accumulate|costs\.accumulate"):
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
