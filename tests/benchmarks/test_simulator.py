"""The simulators in turns: the rows, and what is refused; times themselves are not judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import simulator as module
from benchmarks.common import main
from benchmarks.networks import SHAPES
from benchmarks.simulator import NUMPY, OURS, Subject, command, simulator_rows
from benchmarks.synthetic import random_network
from lapis.deploy.simulate import Simulated
from lapis.deploy.simulate_native import NativeSimulator
from lapis.errors import EXIT_OK, LapisError
from lapis.pack import save

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


def test_models_take_turns_on_a_packaged_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(tmp_path / f"{seed}.safetensors") for seed in (0, 1)]
    for seed, name in enumerate(names):
        save(name, random_network(SHAPES["tiny"], seed))
    assert main(command, ["--model", ",".join(names), "--rounds", "1", "--json"]) == EXIT_OK
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["network"], row["simulator"]) for row in rows] == [
        (name, way) for name in names for way in (OURS, NUMPY)
    ]
    assert all(row["operations"] > 0 for row in rows)


def test_a_simulator_that_counts_differently_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(NativeSimulator):
        def run(self, images: Any) -> Simulated:
            seen = super().run(images)
            seen.events.spikes[0, "q"] += 1
            return seen

    monkeypatch.setattr(module, "NativeSimulator", Wrong)
    with pytest.raises(LapisError, match="differs from numpy's"):
        list(simulator_rows([Subject.of_shape("tiny")], 1))
