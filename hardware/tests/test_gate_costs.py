"""The cost tables of circuits come from the record of measurements."""

from __future__ import annotations

import json

from lapis.energy import load_costs, tables
from lapis.energy.costs import CIRCUITS
from lapis_hardware import folder, gate_costs


def test_the_tables_of_circuits_are_made_from_the_record_of_measurements() -> None:
    made = gate_costs.tables()
    assert list(made) == [name for name in tables() if "gates" in name]
    assert all((gate_costs.TABLES / f"{name}.json").read_text() == text for name, text in made.items())


def test_every_measured_module_is_one_of_the_circuits() -> None:
    modules = set(folder.modules())
    measured = [json.loads(line) for line in gate_costs.MEASURED.read_text().splitlines()]
    assert {line["module"] for line in measured} <= modules
    for kind in CIRCUITS:
        source = load_costs("45nm_gates").fields["costs"][kind]["source"]
        assert source.removeprefix("module ").split(",")[0] in modules
