"""`lapis energy`: the command, its files, its JSON and its refusals."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

from lapis import LapisConfig, preset
from lapis.cli.energy import command
from lapis.data.packaged import packaged_images
from lapis.energy import CONVENTIONS, estimate, load_costs, save_tally
from lapis.energy.counts import needed_points, neurons
from lapis.errors import LapisError
from lapis.nn import save_network
from lapis.trace import POINTS, Tally
from tests.networks import small_config, small_model

LARGE = ["lapis_large", "--activity", "all=0.3"]
DEPLOYED = preset("lapis_tiny").deployed()


def _run(*words: str) -> str:
    result = CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def _json(*words: str) -> dict[str, Any]:
    content = json.loads(_run(*words, "--json"))
    assert isinstance(content, dict)
    return content


def _tally(config: LapisConfig) -> Tally:
    tally = Tally(images=2)
    for block in range(config.depth):
        for point in needed_points(config):
            tally.neurons[block, point] = 2 * neurons(config, point)
            tally.fired[block, point] = tally.neurons[block, point] // (2 + block)
    return tally


def test_a_preset_is_priced_as_deployed() -> None:
    content = _json(*LARGE)
    config = content["config"]
    assert (config["weight_bits"], config["row_scale"], config["readout"]) == (6, "pow2", "spikes")
    assert content["energy_mj"] == math.fsum(row["energy_mj"] for row in content["operators"])
    assert content["activities"] == dict.fromkeys(POINTS, 0.3)


def test_set_changes_the_configuration() -> None:
    content = _json(*LARGE, "--set", "weight_bits=32", "--set", "row_scale=exact", "--set", "classes=10")
    assert content["config"]["weight_bits"] == 32
    assert content["config"]["classes"] == 10
    assert {row["kind"] for row in content["operators"] if row["operator"] == "row scale"} == {"scale"}


def test_later_activities_override_all() -> None:
    assert _json(*LARGE, "--activity", "v=0.5")["activities"] == dict.fromkeys(POINTS, 0.3) | {"v": 0.5}


def test_saved_activities_are_priced_block_by_block(tmp_path: Path) -> None:
    path = tmp_path / "tally.json"
    save_tally(path, _tally(DEPLOYED), DEPLOYED)
    content = _json("--activities", str(path))
    expected = estimate(DEPLOYED, _tally(DEPLOYED))
    assert content["energy_mj"] == expected.energy_mj
    rates = {row["block"]: row["activity"] for row in content["blocks"] if row["operator"] == "fc1"}
    assert rates[0] == pytest.approx(1 / 2)
    assert rates[4] == pytest.approx(1 / 6, rel=1e-4)
    save_tally(path, _tally(DEPLOYED))
    assert _json("lapis_tiny", "--activities", str(path))["energy_mj"] == expected.energy_mj


def test_the_tables_are_printed() -> None:
    text = _run(*LARGE, "--compare")
    for word in ("paper convention", "45nm", "memory access not counted", "qkv", "whole model", "strict", "lenient"):
        assert word in text


def test_conventions_and_costs_are_chosen_by_name_or_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    costs = dict(load_costs().fields["costs"]) | {"integer_accumulate": {"cost": 0.2, "source": "a test"}}
    path.write_text(json.dumps(dict(load_costs().fields) | {"name": "mine", "costs": costs}))
    content = _json(*LARGE, "--convention", "synaptic", "--costs", str(path), "--memory", "each", "--compare")
    assert content["convention"] == "synaptic"
    assert content["costs"]["name"] == "mine"
    assert {row["cost_pj"] for row in content["operators"] if row["kind"] == "integer_accumulate"} == {0.2}
    assert [one["convention"] for one in content["conventions"]] == list(CONVENTIONS)
    assert any(row["operator"] == "memory: fc1" for row in content["operators"])
    assert "memory access counted: every weight fetched once per image" in _run(*LARGE, "--memory", "once")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no MODEL given"),
        (["lapis_large"], "is a preset and has no activities"),
        (["--activity", "all=0.3"], "no MODEL given"),
        (["lapis_larg", "--activity", "all=0.3"], "did you mean 'lapis_large'"),
        (["lapis_large", "--activity", "q=0.3"], "has no activity for attention_in, k, v"),
        (["lapis_large", "--activity", "all=2"], "from 0 to 1"),
        (["lapis_large", "--activity", "all=x"], "is not a number"),
        (["lapis_large", "--activity", "all"], "is not NAME=VALUE"),
        (["lapis_large", "--activity", "qq=0.5"], "unknown measuring point"),
        ([*LARGE, "--set", "widht=8"], "did you mean 'width'"),
        ([*LARGE, "--set", "heads=7"], "heads=7 does not divide"),
        ([*LARGE, "--convention", "papr"], "did you mean 'paper'"),
        ([*LARGE, "--costs", "45"], "no cost table"),
        ([*LARGE, "--memory", "on"], "use off, once, each"),
        ([*LARGE, "--activities", "x.json"], "--activities and --activity given"),
        (["--activities", "none.json"], "cannot read none.json"),
        (["--data", "cifar10"], "no MODEL given"),
    ],
)
def test_bad_input_is_refused_with_a_way_out(words: list[str], message: str) -> None:
    with pytest.raises(LapisError, match=message):
        CliRunner().invoke(command, words, catch_exceptions=False)


def test_a_tally_without_a_configuration_needs_a_model(tmp_path: Path) -> None:
    path = tmp_path / "tally.json"
    save_tally(path, _tally(DEPLOYED))
    with pytest.raises(LapisError, match="give a preset as MODEL"):
        CliRunner().invoke(command, ["--activities", str(path)], catch_exceptions=False)


def test_the_command_needs_neither_torch_nor_matplotlib() -> None:
    check = "import sys, lapis.cli.energy; print([name for name in ('torch', 'matplotlib') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["laplacian", "dot", "gaussian", "hamming"])
def test_every_relation_is_priced_under_every_convention(name: str) -> None:
    report = _json("lapis_tiny", "--set", f"relation={name}", "--activity", "all=0.3", "--compare")
    assert report["config"]["relation"] == name
    assert {one["convention"] for one in report["conventions"]} == set(CONVENTIONS)
    assert all(0 < one["attention_mj"] < one["energy_mj"] for one in report["conventions"])


@pytest.mark.parametrize("name", ["laplacian", "dot", "gaussian", "hamming"])
def test_the_spikes_of_every_relation_are_counted(name: str, tmp_path: Path) -> None:
    config = small_config(classes=10, depth=1).replace(relation=name, row_scale="exact", readout="real", weight_bits=32)
    save_network(tmp_path / "network.safetensors", small_model(config)[0])
    (tmp_path / "data" / "0").mkdir(parents=True)
    Image.fromarray(packaged_images().pixels[0]).save(tmp_path / "data" / "0" / "image.png")
    activities = _json(str(tmp_path / "network.safetensors"), "--data", str(tmp_path / "data"))["activities"]
    assert set(activities) == {"attention_in", "q", "k", "v", "mlp_in", "mlp_hidden"}
