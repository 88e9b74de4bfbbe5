"""Documents and examples import only what the public packages export."""

from __future__ import annotations

import ast
import json
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.blocks import read_page
from tests.docs.test_code_blocks import PAGES, ROOT

PUBLIC = {"lapis"} | {
    f"lapis.{name}" for name in ("convert", "deploy", "energy", "models", "nn", "ops", "pack", "report", "train")
}
# These pages show files that belong inside the package, which may import from each other.
INSIDE = {"docs/howto/relation.md", "docs/howto/kernel.md"}
EXAMPLES = sorted(path for kind in ("*.py", "*.ipynb") for path in (ROOT / "examples").glob(kind))


def private_imports(source: str) -> list[str]:
    """What `source` imports from Lapis that no public package exports."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names if one.name.startswith("lapis") and one.name not in PUBLIC]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lapis":
            found += [f"{node.module}.{one.name}" for one in node.names if not _is_public(str(node.module), one.name)]
    return found


def source_of(example: Path) -> str:
    """A script, or the code cells of a notebook without the lines that only a notebook understands."""
    text = example.read_text(encoding="utf-8")
    if example.suffix != ".ipynb":
        return text
    cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    return "\n".join(line for cell in cells for line in "".join(cell).splitlines() if not line.startswith("%"))


def _is_public(package: str, name: str) -> bool:
    if f"{package}.{name}" in PUBLIC:
        return True
    if package.startswith("lapis.bridges."):
        return name in _bridge_exports(package)
    return package in PUBLIC and name in import_module(package).__all__


def _bridge_exports(package: str) -> list[str]:
    """`__all__` of a bridge, read from its file: the other side's package may be missing here."""
    tree = ast.parse((ROOT / "src" / Path(*package.split("."))).with_suffix(".py").read_text(encoding="utf-8"))
    lists = [one.value for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__"]
    return [name for one in lists for name in ast.literal_eval(one)]


@pytest.mark.parametrize("page", sorted(set(PAGES) - INSIDE))
def test_a_page_imports_only_what_is_public(page: str) -> None:
    pytest.importorskip("torch", reason="lapis.nn and lapis.train need torch: pip install 'lapis-snn[train]'")
    blocks = [block for block in read_page(ROOT / page, page).blocks if block.language == "python"]
    assert {block.place: private_imports(block.text) for block in blocks if private_imports(block.text)} == {}


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_an_example_imports_only_what_is_public(example: Path) -> None:
    pytest.importorskip("torch", reason="lapis.nn and lapis.train need torch: pip install 'lapis-snn[train]'")
    assert private_imports(source_of(example)) == []


def test_an_import_from_inside_the_package_is_found() -> None:
    source = "import numpy, lapis, lapis.codes\nfrom lapis import Session, native, pack\n"
    source += "from lapis.ops.lsq import lsq_codes\n"
    assert private_imports(source) == ["lapis.codes", "lapis.native", "lapis.ops.lsq.lsq_codes"]
