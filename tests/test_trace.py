"""Tallies of fired neurons."""

from __future__ import annotations

import numpy as np
import pytest

from lapis.errors import LapisError
from lapis.trace import Point, Tally, Trace


def _trace(codes: dict[tuple[int, Point], list[list[int]]]) -> Trace:
    trace = Trace(window=3)
    for (block, point), values in codes.items():
        trace.note(block, point, np.array(values, np.int8))
    return trace


def test_activity_is_the_share_of_neurons_that_fire() -> None:
    tally = Tally()
    tally.add(_trace({(0, "q"): [[0, 1, 3, 0]], (1, "q"): [[-1, 0]]}))
    assert tally.activity("q") == 3 / 6
    assert tally.activity("q", block=1) == 1 / 2
    assert tally.activities() == {"q": 0.5}
    assert (tally.images, {block for block, _ in tally.fired}) == (1, {0, 1})


def test_tallies_of_parts_merge_to_the_tally_of_the_whole() -> None:
    parts = [_trace({(0, "v"): [[0, 2], [1, 1]]}), _trace({(0, "v"): [[0, 0]]})]
    whole, left, right = Tally(), Tally(), Tally()
    for part in parts:
        whole.add(part)
    left.add(parts[0])
    right.add(parts[1])
    left.merge(right)
    assert left == whole


def test_a_point_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(LapisError, match="readout"):
        Tally().activity("readout")
