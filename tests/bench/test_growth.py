"""Time against tokens: measured and drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lapis.bench.growth import GrowthRow, draw, growth
from lapis.errors import LapisError


@pytest.mark.usefixtures("needs_kernels")
def test_tokens_follow_from_the_side_of_the_image() -> None:
    rows = growth((32, 64), 1)
    assert [row.tokens for row in rows] == [5, 17]
    assert all(row.ms_per_block > 0 and row.attention_ms_per_block >= 0 for row in rows)


@pytest.mark.usefixtures("needs_kernels")
def test_a_side_that_patches_do_not_divide_is_refused() -> None:
    with pytest.raises(LapisError, match="image_size=33"):
        growth((33,), 1)


def test_the_plot_is_a_whole_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw([GrowthRow(5, 0.2, 0.1), GrowthRow(17, 0.5, 0.2)], tmp_path / "growth.png")
    content = (tmp_path / "growth.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert content.endswith(b"IEND\xaeB`\x82")


def test_without_matplotlib_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(LapisError, match=r"lapis-snn\[plot\]"):
        draw([], tmp_path / "growth.png")
