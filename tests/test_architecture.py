"""The house stands as docs/architecture.md draws it: imports point left, functions fit a screen."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lapis import relations

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "lapis"
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FUNCTION = 60
MOST_PARAMETERS = 8

# Imports inside functions: why each is not at the top of its file. A room on the left stands for all its files.
KEEPS_TORCH_OUT = {
    "models": {"torch", "lapis.nn", "lapis.convert"},
    "ops": {"lapis.ops.*.eager", "lapis.ops.*.torch_native", "lapis.ops.*.triton"},
    "cli": {
        "torch",
        "lapis.train.*",
        "lapis.nn",
        "lapis.nn.*",
        "lapis.convert.evaluated",
        "lapis.convert.executors",
        "lapis.data.loader",
        "lapis.bench.activations",
        "lapis.bench.gpu",
        "lapis.bench.kernels",
        "lapis.bench.memory",
        "lapis.bench.needs",
    },
    "report": {"torch", "lapis.nn", "lapis.report.page.from_model"},
    "bench": {
        "torch",
        "torch._inductor.config",
        "lapis.bench.dense",
        "lapis.convert.torch_executor",
        "lapis.ops.attention.*",
        "lapis.ops.gpu.choice",
    },
}
OPTIONAL_PACKAGES = {
    "matplotlib", "timm", "huggingface_hub", "torch.utils.tensorboard", "onnx", "onnxruntime", "openvino", "nncf",
    "torchao",
}  # fmt: skip


def order() -> list[str]:
    """The rooms from left to right, from the page that people read."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    found = re.search(r"<!-- order -->(.*?)<!-- /order -->", text, flags=re.DOTALL)
    assert found is not None
    return re.findall(r"[a-z]+", found[1].replace("```text", "").replace("```", ""))


ORDER = order()


def room(module: str) -> str:
    """`lapis.ops.lsq.eager` -> ops; the package itself stands right of all."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "lapis"


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[str, bool, int]]:
    """(module imported, whether inside a function, line); imports for type checkers only are none."""

    def walk(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Import):
                yield from ((alias.name, inside, child.lineno) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
                names = [f"{child.module}.{alias.name}" for alias in child.names]
                modules = [name if _is_module(name) else child.module for name in names]
                yield from ((module, inside, child.lineno) for module in dict.fromkeys(modules))
            else:
                function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                yield from walk(child, inside or function)

    yield from walk(ast.parse(path.read_text()), False)


def _is_module(name: str) -> bool:
    place = PACKAGE.parent / Path(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def test_every_room_has_its_place_in_the_order() -> None:
    rooms = {room(module_of(path)) for path in FILES} - {"lapis"}
    assert set(ORDER) == rooms
    assert len(ORDER) == len(set(ORDER))


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_left(path: Path) -> None:
    here = room(module_of(path))
    for module, _, line in imports(path):
        if module.split(".")[0] != "lapis" or here == "lapis" or module == "lapis":
            continue
        there = room(module)
        assert here == there or ORDER.index(there) < ORDER.index(here), f"{path}:{line} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_inside_functions_keep_something_heavy_out(path: Path) -> None:
    here = room(module_of(path))
    for module, inside, line in imports(path):
        if inside and here != "lapis":
            assert _allowed(here, module), f"{path}:{line} imports {module} inside a function"


def test_the_list_of_imports_inside_functions_has_no_entry_to_spare() -> None:
    used = {(room(module_of(path)), module) for path in FILES for module, inside, _ in imports(path) if inside}
    for here, patterns in KEEPS_TORCH_OUT.items():
        spare = [p for p in patterns if not any(here == one and _fits(p, module) for one, module in used)]
        assert spare == [], here


def _allowed(here: str, module: str) -> bool:
    if any(module == name or module.startswith(f"{name}.") for name in OPTIONAL_PACKAGES):
        return True
    return any(_fits(pattern, module) for pattern in KEEPS_TORCH_OUT.get(here, ()))


def _fits(pattern: str, module: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", r"[\w.]*"), module) is not None


RELATIONS_OWN = (PACKAGE / "relations", PACKAGE / "nn" / "relations")


@pytest.mark.parametrize("path", [path for path in FILES if path.parent not in RELATIONS_OWN], ids=module_of)
def test_nothing_outside_a_relation_asks_for_it_by_name(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            compared = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
        elif isinstance(node, ast.match_case):
            compared = list(ast.walk(node.pattern))
        else:
            continue
        asked = {part.value for part in compared if isinstance(part, ast.Constant)} & set(relations.names())
        assert not asked, f"{path}:{getattr(node, 'lineno', '?')} compares with {asked}; let its rule answer"


def test_no_module_imports_itself_in_a_circle() -> None:
    edges = {
        module_of(path): {m for m, inside, _ in imports(path) if m.startswith("lapis.") and not inside}
        for path in FILES
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for target in edges.get(module, ()):
                if _is_module(target) and target != module:
                    visit(target, (*trail, module))
            done.add(module)

    for module in edges:
        visit(module, ())


@pytest.mark.parametrize("path", [*FILES, *sorted((ROOT / "tests").rglob("*.py"))], ids=lambda path: path.name)
def test_functions_fit_a_screen_and_take_what_they_need(path: Path) -> None:
    is_command_line = PACKAGE / "cli" in path.parents
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
        where = f"{path}:{node.lineno} {node.name}"
        assert lines <= LONGEST_FUNCTION, f"{where} has {lines} lines"
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        of_click = is_command_line and any("click" in text or "command" in text for text in decorators)
        # A GPU kernel has no structs: its arrays, sizes and constants come one by one.
        of_triton = "triton.jit" in decorators
        assert count <= MOST_PARAMETERS or of_click or of_triton, f"{where} takes {count} parameters"
