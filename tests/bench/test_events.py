"""Layers by events and densely: the rows; times themselves are not judged."""

from __future__ import annotations

import pytest

from lapis import native
from lapis.bench.events import break_even_rows
from lapis.runtime.engine import break_even

pytestmark = pytest.mark.usefixtures("needs_kernels")


def test_every_layer_is_timed_in_both_forms_at_every_activity() -> None:
    rows = list(break_even_rows("tiny", (0.1, 0.5), 1))
    assert [(row.layer, row.activity) for row in rows] == [
        (layer, activity) for layer in ("qkv", "proj", "fc1", "fc2") for activity in (0.1, 0.5)
    ]
    assert all(row.dense_ms > 0 and row.events_ms > 0 and row.dense_times_events > 0 for row in rows)


def test_each_instruction_set_has_its_break_even() -> None:
    for isa in native.isas():
        with native.force(isa):
            assert (break_even() > 0) == isa.startswith("avx")
            assert break_even() < 1
