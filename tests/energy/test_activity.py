"""Laws of activities and of their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapis import LapisConfig
from lapis.energy.activity import Activities, load_tally, save_tally
from lapis.energy.estimate import estimate, rate_train_mj
from lapis.errors import LapisError
from lapis.trace import POINTS, Point, Tally, Trace

CONFIG = LapisConfig(image_size=4, patch_size=2, width=4, depth=2, heads=1, mlp_ratio=2, window=3, readout="spikes")


def _tally() -> Tally:
    tally = Tally(images=2)
    for block in range(CONFIG.depth):
        for number, point in enumerate(POINTS):
            neurons = 2 * CONFIG.tokens * (CONFIG.hidden if point == "mlp_hidden" else CONFIG.width)
            tally.fired[block, point] = number + 10 * block
            tally.neurons[block, point] = neurons
    return tally


def _rates(**changes: float) -> dict[Point, float]:
    rates: dict[Any, float] = dict.fromkeys(POINTS, 0.25)
    return rates | changes


def test_a_tally_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "tally.json"
    save_tally(path, _tally(), CONFIG)
    assert load_tally(path) == (_tally(), CONFIG)
    save_tally(path, _tally())
    assert load_tally(path) == (_tally(), None)


def test_measured_activity_is_fired_over_neurons() -> None:
    tally = _tally()
    rho = Activities.measured(CONFIG, tally)
    assert rho.at(1, "k") == tally.activity("k", 1)
    assert rho.mean(0, ("q", "k", "v")) == pytest.approx(2 / 40)
    # Blocks are alike in size, so the mean over blocks is the activity over all of them.
    assert rho.over_blocks() == pytest.approx(tally.activities())


def test_rate_trains_have_a_spike_for_every_step_of_a_code(tmp_path: Path) -> None:
    tally, trace = Tally(), Trace(CONFIG.window)
    for block in range(CONFIG.depth):
        for point in POINTS:
            width = CONFIG.hidden if point == "mlp_hidden" else CONFIG.width
            trace.note(block, point, np.resize(np.array([0, 1, -3], np.int8), (2, CONFIG.tokens, width)))
    tally.add(trace)
    tally.add(trace)
    counted = Activities.of_rate_trains(CONFIG, tally)
    assert counted is not None
    codes = trace[0, "q"]
    assert counted.at(0, "q") == np.abs(codes).sum() / codes.size
    # Spikes decide this operator's count: as many times more as there are spikes.
    one, many = (estimate(CONFIG, rho, "lenient") for rho in (Activities.measured(CONFIG, tally), counted))
    price = {kind: {row.operator: row.energy_mj for row in made.rows} for kind, made in (("one", one), ("many", many))}
    assert price["many"]["fc1"] / price["one"]["fc1"] == pytest.approx(np.abs(codes).sum() / np.count_nonzero(codes))
    assert rate_train_mj(CONFIG, tally) == many.energy_mj
    save_tally(tmp_path / "tally.json", tally, CONFIG)
    assert load_tally(tmp_path / "tally.json") == (tally, CONFIG)
    assert rate_train_mj(CONFIG, _tally()) is None  # of a file from before they were counted
    tally.merge(_tally())
    assert tally.code_sums == {}


def test_uniform_activity_is_the_same_in_every_block() -> None:
    rho = Activities.uniform(CONFIG, _rates(v=0.5))
    assert [rho.at(block, "v") for block in range(CONFIG.depth)] == [0.5, 0.5]
    assert rho.over_blocks() == _rates(v=0.5)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), float("inf"), True, "0.3"])
def test_an_activity_is_a_share(rate: Any) -> None:
    with pytest.raises(LapisError, match="from 0 to 1"):
        Activities.uniform(CONFIG, _rates(q=rate))


def test_an_unknown_point_names_the_nearest() -> None:
    with pytest.raises(LapisError, match="did you mean 'mlp_hidden'"):
        Activities.uniform(CONFIG, _rates(mlp_hiden=0.1))


def test_a_missing_point_is_named() -> None:
    rates = _rates()
    del rates["readout"]
    with pytest.raises(LapisError, match="no activity for readout"):
        Activities.uniform(CONFIG, rates)
    Activities.uniform(CONFIG.replace(readout="real"), rates)


def test_a_dense_network_needs_no_activity() -> None:
    assert Activities.uniform(CONFIG.replace(quantize=False, relation="dot"), {}).rates == {}


def _content(**changes: Any) -> dict[str, Any]:
    point = {"block": 0, "point": "q", "fired": 1, "neurons": 2}
    return {"kind": "lapis tally", "version": 1, "images": 1, "config": None, "points": [point]} | changes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "is not a lapis tally"),
        (_content(kind="x"), "is not a lapis tally"),
        (_content(version=2), "is not a lapis tally of version 1"),
        (_content(images=-1), "images=-1"),
        (_content(images=1.0), "images=1.0"),
        (_content(points=None), "'points' must be a list"),
        (_content(points=[[]]), r"points\[0\] names no measuring point"),
        (_content(points=[{"block": 0, "point": "z", "fired": 1, "neurons": 2}]), "names no measuring point"),
        (_content(points=[{"block": 0, "point": "q", "fired": 3, "neurons": 2}]), "3 of 2 neurons fired"),
        (_content(points=[{"block": 0, "point": "q", "fired": 0, "neurons": 0}]), "0 of 0 neurons fired"),
        (_content(points=[{"block": True, "point": "q", "fired": 1, "neurons": 2}]), "block=True"),
        (_content(points=[{"block": 0, "point": "q", "fired": 1, "neurons": 2}] * 2), "repeats block 0"),
        (_content(config={"width": 0}), "width=0"),
        (_content(config={"wdth": 4}), "did you mean 'width'"),
    ],
)
def test_a_file_that_is_no_tally_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "tally.json"
    path.write_text(json.dumps(content))
    with pytest.raises(LapisError, match=message):
        load_tally(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LapisError, match="cannot read"):
        load_tally(tmp_path / "none.json")


def test_a_folder_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(LapisError, match="cannot write"):
        save_tally(tmp_path, _tally())
