"""The simulators in turns: the rows, and what is refused; times themselves are not judged."""

from __future__ import annotations

from typing import Any

import pytest

from lapis.bench import simulator as module
from lapis.bench.networks import SHAPES
from lapis.bench.simulator import NUMPY, OURS, Subject, simulator_rows
from lapis.deploy.simulate import Simulated
from lapis.deploy.simulate_native import NativeSimulator
from lapis.errors import LapisError

pytestmark = pytest.mark.usefixtures("needs_kernels")


@pytest.fixture(autouse=True)
def _one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", SHAPES["tiny"].replace(depth=1, image_size=32))


def test_both_simulators_are_timed_on_the_same_events() -> None:
    ours, numpy = simulator_rows([Subject.of_shape("tiny")], 1)
    assert (ours.simulator, numpy.simulator) == (OURS, NUMPY)
    assert ours.times_ours == 1.0
    assert numpy.ms_per_image > 0
    assert (ours.spikes, ours.operations) == (numpy.spikes, numpy.operations)
    assert ours.spikes > 0


def test_models_take_turns_on_a_packaged_picture() -> None:
    names = ("lapis_tiny_cifar10_busy", "lapis_tiny_cifar10")
    rows = list(simulator_rows([Subject.of_model(name) for name in names], 1))
    assert [(row.network, row.simulator) for row in rows] == [(name, way) for name in names for way in (OURS, NUMPY)]
    busy, _, ours, _ = rows
    assert busy.operations > ours.operations > 0


def test_a_simulator_that_counts_differently_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(NativeSimulator):
        def run(self, images: Any) -> Simulated:
            seen = super().run(images)
            seen.events.spikes[0, "q"] += 1
            return seen

    monkeypatch.setattr(module, "NativeSimulator", Wrong)
    with pytest.raises(LapisError, match="differs from numpy's"):
        list(simulator_rows([Subject.of_shape("tiny")], 1))
