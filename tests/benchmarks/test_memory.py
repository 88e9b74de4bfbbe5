"""Attention never holds B*H*N*N*C values, and the fused one not even N*N."""

from __future__ import annotations

import pytest

from benchmarks.memory import FLOAT_BYTES, peak, peaks
from benchmarks.sizes import Size

SIZE = Size(2, 3, 197, 64)
DIFFERENCES_MB = SIZE.batch * SIZE.heads * SIZE.tokens**2 * SIZE.channels * FLOAT_BYTES / 1e6


def test_written_out_attention_shows_that_the_measure_sees_memory() -> None:
    assert peak("broadcast", SIZE).extra_mb > DIFFERENCES_MB


def test_eager_attention_does_not_hold_a_difference_for_every_channel() -> None:
    assert peak("eager", SIZE).extra_mb < DIFFERENCES_MB / 4


@pytest.mark.usefixtures("needs_kernels")
def test_fused_attention_does_not_hold_a_matrix_of_token_pairs() -> None:
    n = 2048
    assert peak("fused", Size(1, 1, n, 64)).extra_mb < n * n * FLOAT_BYTES / 2 / 1e6


def test_a_size_that_is_too_large_to_write_out_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr("benchmarks.memory.peak", lambda way, size: asked.append((way, size.tokens)))
    list(peaks([Size(8, 12, 197, 64), Size(1, 1, 4096, 64)]))
    assert asked == [("broadcast", 197), ("eager", 197), ("fused", 197), ("eager", 4096), ("fused", 4096)]
