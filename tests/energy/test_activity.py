"""Laws of activities and of their file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lapis import LapisConfig
from lapis.energy.activity import Activities, load_activities, load_tally, save_tally
from lapis.errors import LapisError
from lapis.trace import POINTS, Point, Tally

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
        (_content(points=None), "points=None must be a list"),
        (_content(points=[[]]), r"points\[0\] holds list; it needs block, point"),
        (
            _content(points=[{"block": 0, "point": "z", "fired": 1, "neurons": 2}]),
            "point='z' must be one of attention_in",
        ),
        (_content(points=[{"block": 0, "point": "q", "fired": 3, "neurons": 2}]), "3 of 2 neurons fired"),
        (
            _content(points=[{"block": 0, "point": "q", "fired": 0, "neurons": 0}]),
            "neurons=0 must be a whole number, 1 or more",
        ),
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


def _written(folder: Path, content: Any) -> Path:
    (folder / "shares.json").write_text(json.dumps(content))
    return folder / "shares.json"


def test_a_plain_file_gives_shares_by_name_by_block_or_in_order(tmp_path: Path) -> None:
    shares = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    by_name = dict(zip(POINTS, shares, strict=True))
    in_order = load_activities(_written(tmp_path, shares), CONFIG)[0]
    assert in_order == load_activities(_written(tmp_path, by_name), CONFIG)[0] == Activities.uniform(CONFIG, by_name)
    by_block = by_name | {"q": [block / CONFIG.depth for block in range(CONFIG.depth)]}
    found, config, source = load_activities(_written(tmp_path, by_block), CONFIG)
    assert [found.at(block, "q") for block in range(CONFIG.depth)] == by_block["q"]
    assert [found.at(block, "k") for block in range(CONFIG.depth)] == [by_name["k"]] * CONFIG.depth
    assert (config, source) == (CONFIG, str(tmp_path / "shares.json"))


def test_a_tally_may_name_its_network_and_shares_may_not(tmp_path: Path) -> None:
    save_tally(tmp_path / "tally.json", _tally(), CONFIG)
    found, config, source = load_activities(tmp_path / "tally.json")
    assert (found, config) == (Activities.measured(CONFIG, _tally()), CONFIG)
    assert "images, counted in" in source
    with pytest.raises(LapisError, match="holds shares and no network; give a preset"):
        load_activities(_written(tmp_path, [0.5] * 7))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([0.5] * 6, "lists 6 shares; it needs 7: attention_in, q"),
        (0.5, "holds float; give a share of values from 0 to 1"),
        ({"q": 0.5}, "block 0 has no activity for attention_in"),
        (dict.fromkeys(POINTS, 0.5) | {"values": 0.5}, "unknown measuring point 'values'"),
        (dict.fromkeys(POINTS, 0.5) | {"v": 1.5}, "v=1.5 must be a share of values, from 0 to 1"),
        (dict.fromkeys(POINTS, 0.5) | {"v": "half"}, "v='half' must be a share of values"),
        (dict.fromkeys(POINTS, 0.5) | {"v": [0.5] * 99}, "v has 99 shares; give one number, or one for each of the"),
        (dict.fromkeys(POINTS, 0.5) | {"v": [True] * CONFIG.depth}, "v=True must be a share of values"),
    ],
)
def test_bad_shares_are_refused_with_the_file_and_what_is_allowed(content: Any, message: str, tmp_path: Path) -> None:
    path = _written(tmp_path, content)
    with pytest.raises(LapisError, match=message) as raised:
        load_activities(path, CONFIG)
    assert str(path) in str(raised.value)
