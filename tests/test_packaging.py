"""What an index page shows of the package. `make wheel` builds the wheel itself and uses it in empty environments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib", reason="tomllib came with Python 3.11")
    loaded: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return loaded


def description(settings: dict[str, Any]) -> str:
    """The README as the wheel carries it."""
    rules = settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text: str = (ROOT / rules["fragments"][0]["path"]).read_text(encoding="utf-8")
    for rule in rules["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    return text


def test_the_description_of_the_wheel_has_no_link_that_needs_the_repository(settings: dict[str, Any]) -> None:
    text = description(settings)
    assert [target for target in LINK.findall(text) if not target.startswith(("https://", "#"))] == []
    assert "<!--" not in text
    assert "`docs/tutorial.md`" in text


def test_the_demo_is_set_up_without_torch(settings: dict[str, Any]) -> None:
    needed = " ".join(settings["project"]["dependencies"])
    assert "torch" not in needed
    rule = (ROOT / "Makefile").read_text(encoding="utf-8").partition("$(DEMO): ")[2].partition("\n\n")[0]
    assert "\t$(PIP) .\n" in rule
