"""docs/architecture.md names files that exist, and its picture every room."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "lapis"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_of_the_walks_exists() -> None:
    files = set(re.findall(r"`((?:\w+/)+\w+\.py|\w+/|\w+\.py)`", PAGE))
    assert len(files) > 30
    # A bare name is one that several folders have, such as an operation's reference.py.
    missing = [name for name in files if not (PACKAGE / name).exists() and not (ROOT / name).exists()]
    assert [name for name in missing if not list(PACKAGE.rglob(name.rstrip("/")))] == []


def test_every_room_is_in_the_picture() -> None:
    picture = (ROOT / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")
    names = {word for text in re.findall(r'class="name"[^>]*>([^<]+)<', picture) for word in text.split()}
    rooms = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert names - {"csrc/", "models.py"} == rooms - {"__init__", "models"}
