"""The public surface, pinned: what users may import. tests/docs sees that documents import nothing else."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

SURFACE: dict[str, set[str]] = {
    "lapis": {"ActivationModes", "LapisConfig", "LapisError", "Session", "__version__", "preset"},
    "lapis.ops": {
        "affinity", "attention", "attention_spikes", "decode", "encode", "first_spike", "hamming_distance",
        "integer_attention", "l1_distance", "latency", "lsq_codes", "lsq_value", "pack6", "scale_rows",
        "squared_distance", "unpack6",
    },
    "lapis.nn": {
        "DistanceRelation", "LapisViT", "Relation", "TableRelation", "calibrate", "fold_offsets", "is_calibrated",
        "lift", "load_backbone", "load_network", "register_relation", "save_network",
    },
    "lapis.relations": {"PACKED", "Rule", "TableRule", "names", "register", "rule_of"},
    "lapis.deploy": {"Events", "Network", "run", "simulate", "watch"},
    "lapis.convert": {"Evaluated", "Executor", "TorchExecutor", "from_model", "to_model", "verify"},
    "lapis.pack": {"is_packed", "load", "pack", "save"},
    "lapis.models": {"KINDS", "Opened", "open"},
    "lapis.train": {"Recipe", "load_recipe", "recipe_names", "train"},
    "lapis.energy": {
        "CONVENTIONS", "Activities", "Costs", "Estimate", "energy_of", "estimate", "load_costs", "load_tally",
        "save_tally", "side_by_side", "tables",
    },
    "lapis.report": {"Explained", "energy_chart", "explain", "figures", "write_page"},
}  # fmt: skip
ROOMS_WITHOUT_TORCH = ["relations", "ops", "deploy", "pack", "models", "runtime", "energy"]


@pytest.mark.parametrize("package", SURFACE)
def test_a_package_exports_what_is_pinned_and_no_more(package: str) -> None:
    module = import_module(package)
    assert set(module.__all__) == SURFACE[package]
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", ["lapis", *(f"lapis.{room}" for room in ROOMS_WITHOUT_TORCH)])
def test_what_is_deployed_loads_without_torch(package: str) -> None:
    code = f"import sys; import {package}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
