"""Attention never holds B*H*N*N*C values, and the fused one not even N*N."""

from __future__ import annotations

import pytest

from lapis import native
from lapis.bench.memory import measure

SHAPE = (2, 3, 197, 64)
FLOAT = 4


def test_written_out_attention_shows_that_the_measure_sees_memory() -> None:
    b, h, n, c = SHAPE
    assert measure("broadcast", SHAPE).extra_bytes > b * h * n * n * c * FLOAT


def test_eager_attention_does_not_hold_a_difference_for_every_channel() -> None:
    b, h, n, c = SHAPE
    assert measure("eager", SHAPE).extra_bytes < b * h * n * n * c * FLOAT / 4


def test_fused_attention_does_not_hold_a_matrix_of_token_pairs() -> None:
    if not native.available():
        pytest.skip(f"no native library: {native.describe()}")
    n = 2048
    assert measure("fused", (1, 1, n, 64)).extra_bytes < n * n * FLOAT / 2
