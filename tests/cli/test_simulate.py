"""`lapis simulate` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.synthetic import random_network
from lapis.cli import main
from lapis.errors import EXIT_OK
from lapis.pack import save
from tests.networks import small_config

CONFIG = small_config(classes=10, width=8)


def test_a_run_says_what_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "n.safetensors", random_network(CONFIG))
    assert main(["simulate", str(tmp_path / "n.safetensors"), "-n", "3", "--json"]) == EXIT_OK
    record = json.loads(capsys.readouterr().out)
    assert (record["images"], record["window"], record["latency_steps"]) == (3, 15, 5 * 2 * 15)
    assert record["latency_steps_with_leak"] > record["latency_steps"]
    # A spike of the attention input reaches the 3 D neurons of q, k and v.
    assert record["operations_per_image"]["qkv"] == pytest.approx(record["spikes_per_image"]["attention_in"] * 24)
    assert main(["simulate", str(tmp_path / "n.safetensors")]) == EXIT_OK
    assert "synaptic operations" in capsys.readouterr().out


def test_noise_is_told_and_repeats_by_its_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "n.safetensors", random_network(CONFIG))
    words = ["simulate", str(tmp_path / "n.safetensors"), "-n", "3", "--jitter", "2", "--drop", "0.5", "--seed", "3"]
    records = []
    for more in ([], [], ["--point", "v", "--point", "readout"]):
        assert main([*words, *more, "--json"]) == EXIT_OK
        records.append({**json.loads(capsys.readouterr().out), "seconds_per_image": 0})
    assert records[0] == records[1] != records[2]
    assert records[2]["noise"].items() >= {"jitter": 2, "drop": 0.5, "seed": 3, "points": ["v", "readout"]}.items()
    assert 0 <= records[0]["noise"]["changed_answers"] <= 3
    assert main(words) == EXIT_OK
    assert "noise    up to 2 steps, 50 % lost, seed 3, at attention_in" in capsys.readouterr().out
    assert main([*words, "--point", "w"]) != EXIT_OK
    assert "'w' is not one of" in capsys.readouterr().err
