"""What a network keeps for its backward pass: the calculation and torch's own count agree."""

from __future__ import annotations

from typing import Any

import pytest

from lapis.bench.activations import BYTES, calculated, counted
from lapis.config import preset
from lapis.errors import LapisError

# What is kept whatever the batch is: steps, taus and gathered position tables are left out of the calculation.
FIXED_SHARE = 0.05
SMALL: dict[str, Any] = {"image_size": 64, "depth": 2, "classes": 10}


@pytest.mark.parametrize("recompute", [False, True], ids=["plain", "recompute"])
@pytest.mark.parametrize("precision", list(BYTES))
@pytest.mark.parametrize("deployed", [False, True], ids=["W32", "W6"])
@pytest.mark.parametrize("name", ["lapis_tiny", "lapis_base"])
def test_the_calculation_agrees_with_the_count(name: str, deployed: bool, precision: Any, recompute: bool) -> None:
    config = preset(name, **SMALL)
    config = config.deployed() if deployed else config
    sums, found = (count(config, precision, recompute) for count in (calculated, counted))
    assert sums.per_image == found.per_image
    assert sums.fixed == pytest.approx(found.fixed, rel=FIXED_SHARE, abs=8192)


def test_computing_again_saves_nine_tenths() -> None:
    config = preset("lapis_small")
    plain, again = (calculated(config, "bf16", recompute).per_image for recompute in (False, True))
    assert again < plain / 10


def test_without_the_fused_kernel_a_matrix_of_all_pairs_is_kept() -> None:
    config = preset("lapis_tiny", **SMALL)
    fused, composed = (counted(config.replace(relation=name), "fp32").per_image for name in ("laplacian", "gaussian"))
    assert composed > fused + config.depth * config.heads * config.tokens**2 * 4
    with pytest.raises(LapisError, match="relation=gaussian"):
        calculated(config.replace(relation="gaussian"), "fp32")


def test_heads_too_wide_for_the_kernel_are_composed() -> None:
    wide = preset("lapis_tiny", **SMALL, heads=1)
    assert wide.head_width > 128
    extra = counted(wide, "fp32").per_image - calculated(wide, "fp32").per_image
    assert extra > config_pairs(wide)


def config_pairs(config: Any) -> int:
    """Bytes of one matrix of all pairs in every block."""
    return int(config.depth * config.heads * config.tokens**2 * 4)
