"""docs/format.md and docs/neuron.md name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORMAT = (ROOT / "docs" / "format.md").read_text()
NEURON = (ROOT / "docs" / "neuron.md").read_text()


def test_every_test_that_is_named_exists() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", NEURON):
        assert f"def {name}(" in tests
    for path in re.findall(r"`(tests/[\w/.]+)`", FORMAT + NEURON):
        assert (ROOT / path).is_file()
