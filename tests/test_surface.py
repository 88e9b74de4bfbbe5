"""The public surface: what users may import, pinned; docs and examples import nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

SURFACE: dict[str, set[str]] = {
    "lapis": {"ActivationModes", "LapisConfig", "LapisError", "Session", "__version__", "preset"},
    "lapis.ops": {
        "affinity", "attention", "attention_spikes", "decode", "encode", "first_spike", "hamming_distance",
        "integer_attention", "l1_distance", "latency", "lsq_codes", "lsq_value", "pack6", "scale_rows",
        "squared_distance", "unpack6",
    },
    "lapis.nn": {
        "LapisViT", "calibrate", "fold_offsets", "is_calibrated", "lift", "load_backbone", "load_network",
        "save_network",
    },
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


@pytest.mark.parametrize("package", SURFACE)
def test_a_package_exports_what_is_pinned_and_no_more(package: str) -> None:
    module = import_module(package)
    assert set(module.__all__) == SURFACE[package]
    for name in module.__all__:
        assert getattr(module, name) is not None


def _imports(code: str) -> list[tuple[str, str]]:
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lapis":
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "lapis"]
    return found


def _offered(module: str, name: str) -> bool:
    whole = f"{module}.{name}"
    return name in SURFACE.get(module, ()) or (not name and module in SURFACE) or whole in SURFACE


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_import_the_surface_only(path: Path) -> None:
    assert [pair for pair in _imports(path.read_text()) if not _offered(*pair)] == []


# Pages for people who change Lapis itself: they show the inside on purpose.
ABOUT_THE_INSIDE = {"kernel.md", "relation.md", "architecture.md", "equations.md"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_import_the_surface_only(path: Path) -> None:
    if path.name in ABOUT_THE_INSIDE:
        pytest.skip("a page about the inside")
    for block in re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL):
        assert [pair for pair in _imports(block) if not _offered(*pair)] == []


@pytest.mark.parametrize(
    "package", ["lapis", "lapis.ops", "lapis.deploy", "lapis.pack", "lapis.models", "lapis.runtime", "lapis.energy"]
)
def test_what_is_deployed_loads_without_torch(package: str) -> None:
    code = f"import sys; import {package}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
