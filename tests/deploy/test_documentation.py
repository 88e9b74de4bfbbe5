"""docs/format.md and docs/neuron.md say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lapis.config import ActivationModes, LapisConfig, preset
from lapis.deploy import arithmetic
from lapis.deploy.network import DEFAULT_FRACTION_BITS, LONGEST_DELAY
from lapis.pack.format import FIELDS, METADATA_KEY, VERSION, data_bytes, entries

ROOT = Path(__file__).resolve().parents[2]
FORMAT = (ROOT / "docs" / "format.md").read_text()
NEURON = (ROOT / "docs" / "neuron.md").read_text()
DEPLOYED = {"row_scale": "pow2", "readout": "spikes", "weight_bits": 6}


@pytest.mark.parametrize("style", ["vit", "beit"])
def test_every_tensor_and_field_is_documented(style: str) -> None:
    config = LapisConfig().replace(style=style, modes=ActivationModes.all("signed"), **DEPLOYED)
    documented = set()
    for cell in re.findall(r"^\| (`[^|]*`) \|", FORMAT, flags=re.MULTILINE):
        for name in re.findall(r"`([^`]*)`", cell):
            documented |= _spread(name)
    for entry in entries(config).values():
        assert entry.name in documented
    assert set(FIELDS) <= documented
    assert METADATA_KEY in FORMAT
    assert f"| `version` | {VERSION} |" in FORMAT


def _spread(name: str) -> set[str]:
    """`a.{b,c}.{d,e}` as its four names."""
    match = re.search(r"\{([^}]*)\}", name)
    if match is None:
        return {name}
    return {
        full for word in match[1].split(",") for full in _spread(name[: match.start()] + word + name[match.end() :])
    }


def test_the_constants_are_those_of_the_code() -> None:
    assert f"F = {DEFAULT_FRACTION_BITS}" in FORMAT
    assert f"at most {LONGEST_DELAY};" in FORMAT
    assert arithmetic.STREAM_LIMIT == 1 << 26
    assert 1 << arithmetic.POOLED_BITS == 1024


@pytest.mark.parametrize(
    ("name", "classes"), [("lapis_small", 10), ("lapis_small", 100), ("lapis_base", 1000), ("lapis_large", 1000)]
)
def test_the_sizes_are_those_of_the_code(name: str, classes: int) -> None:
    sizes = [int(text.replace(",", "")) for text in re.findall(r"\| ([\d,]{9,}) \|", FORMAT)]
    tensors = data_bytes(preset(name, classes=classes, **DEPLOYED))
    assert any(0 < size - tensors < 4096 for size in sizes)


def test_every_test_that_is_named_exists() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", NEURON):
        assert f"def {name}(" in tests
    for path in re.findall(r"`(tests/[\w/.]+)`", FORMAT + NEURON):
        assert (ROOT / path).is_file()
