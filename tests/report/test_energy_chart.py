"""The chart is a PNG of every operator, and says what it needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PIL import Image

from lapis import preset
from lapis.energy import estimate
from lapis.errors import LapisError
from lapis.report.charts import energy_chart
from lapis.trace import POINTS

CONFIG = preset("lapis_tiny").deployed()


@pytest.mark.parametrize("convention", ["full", "synaptic"])
def test_the_chart_is_a_picture_with_room_for_every_operator(tmp_path: Path, convention: str) -> None:
    pytest.importorskip("matplotlib")
    made = estimate(CONFIG, dict.fromkeys(POINTS, 0.3), convention)
    with Image.open(energy_chart(made, tmp_path / "energy.png")) as picture:
        assert picture.format == "PNG"
        assert picture.height > 50 * len({row.operator for row in made.rows if row.energy_mj})


def test_a_silent_network_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = estimate(CONFIG, dict.fromkeys(POINTS, 0.0), "synaptic")
    assert energy_chart(made, tmp_path / "silent.png").stat().st_size > 0


def test_other_formats_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(LapisError, match=r"does not end in \.png"):
        energy_chart(estimate(CONFIG, dict.fromkeys(POINTS, 0.3)), tmp_path / "energy.jpg")


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(LapisError, match="cannot write"):
        energy_chart(estimate(CONFIG, dict.fromkeys(POINTS, 0.3)), tmp_path / "file" / "energy.png")


def test_without_matplotlib_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(LapisError, match="pip install"):
        energy_chart(estimate(CONFIG, dict.fromkeys(POINTS, 0.3)), tmp_path / "energy.png")
