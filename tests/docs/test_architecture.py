"""docs/architecture.md names files that exist, and every room."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "lapis"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_path_that_is_named_exists() -> None:
    paths = set(re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?|\w+\.py)`", PAGE))
    assert len(paths) > 40
    assert [path for path in paths if not (PACKAGE / path).exists() and not (ROOT / path).exists()] == []


def test_every_room_is_named() -> None:
    rooms = {path.parent.name + "/" for path in PACKAGE.glob("*/__init__.py")}
    assert {room for room in rooms if f"`{room}`" not in PAGE} == set()
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "errors.py"}
    assert {module for module in modules if f"`{module}`" not in PAGE} == set()
