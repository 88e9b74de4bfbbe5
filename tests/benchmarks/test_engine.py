"""The engine's benchmark: rows and refusals; times themselves are not judged."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common import main
from benchmarks.contenders import CONTENDERS
from benchmarks.engine import TARGETS, WARM_UP, command, compare_engines, time_model
from benchmarks.load import beside_load
from benchmarks.synthetic import random_network
from benchmarks.workers import BenchLog
from lapis import native
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.pack import save
from lapis.preprocess import Pixels, Preprocess
from tests.networks import small_config

SILENT = BenchLog(lambda line: None)


def test_a_packed_file_is_timed_at_every_number_of_threads_and_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.safetensors"
    save(path, random_network(small_config(classes=10)))
    for model in (str(path), "lapis_tiny.cifar10"):
        words = ["--model", model, "--threads", "1,2", "--batch", "1,3", "--rounds", "2", "--json"]
        assert main(command, words) == EXIT_OK
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert [(row["threads"], row["batch"]) for row in rows] == [(1, 1), (1, 3), (2, 1), (2, 3)]
        for row in rows:
            assert row["model"] == model
            assert row["executor"] == (native.isa() if native.available() else "numpy")
            assert 0 < row["p50_ms"] <= row["p95_ms"]
            assert 0 < row["decode_p50_ms"] <= row["decode_p95_ms"]
            assert row["images_per_s"] > 0
            assert row["weights_mb"] > 0


@pytest.mark.usefixtures("needs_kernels")
def test_decoding_and_resizing_are_not_part_of_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, resize = tmp_path / "cropped.safetensors", Preprocess.resize
    resized: list[Any] = []
    network = random_network(small_config(classes=10))
    save(path, replace(network, preprocess=replace(network.preprocess, crop=0.5)))

    def counted(self: Preprocess, image: Any) -> Pixels:
        resized.append(image)
        return resize(self, image)

    monkeypatch.setattr(Preprocess, "resize", counted)
    time_model(str(path), [1], [2], rounds=5)
    # To load, to prepare the batch, and to time the decoding of one picture: none in a timed run.
    assert len(resized) == 1 + 2 + WARM_UP + 5


def test_a_model_that_does_not_exist_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command, ["--model", "none.safetensors"]) == EXIT_BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")


@pytest.mark.usefixtures("needs_kernels")
def test_engines_take_turns_and_tell_time_and_memory() -> None:
    rows = list(compare_engines("tiny", ["lapis", "torch"], [1], [2], 3, 0.0, SILENT))
    assert [row.engine for row in rows] == [CONTENDERS["lapis"].label, CONTENDERS["torch"].label]
    assert rows[0].times_ours == 1.0
    assert [row.target for row in rows] == [None, TARGETS["torch"]]
    for row in rows:
        assert (row.shape, row.threads, row.batch, row.batch_gain) == ("tiny", 1, 2, None)
        assert 0 < row.ms_per_image_low <= row.ms_per_image <= row.ms_per_image_high
        assert row.peak_mb > 1
        assert row.load_s > 0


@pytest.mark.usefixtures("needs_kernels")
def test_beside_a_load_every_number_of_threads_is_compared_with_one() -> None:
    names = ["lapis_sparse", "lapis_sparse_dense"]
    rows = list(compare_engines("tiny", names, [1, 2], [1], 2, 0.5, SILENT))
    assert [(row.engine, row.threads) for row in rows] == [
        (CONTENDERS[name].label, threads) for threads in (1, 2) for name in names
    ]
    assert all(row.load_share == 0.5 and row.times_ours is None for row in rows)
    assert [row.one_thread_times for row in rows if row.threads == 1] == [1.0, 1.0]
    assert [row.times_events is None for row in rows] == [True, False] * 2


@pytest.mark.usefixtures("needs_kernels")
def test_every_stage_is_held_against_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command, ["--limit", "--model", "lapis_tiny.cifar10", "--rounds", "1", "--json"]) == EXIT_OK
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["isa"] for row in rows if row["stage"] == "all"] == [isa for isa in native.isas() if isa != "scalar"]
    for row in rows:
        linear = row["stage"] in ("qkv", "proj", "fc1", "fc2", "linear layers")
        assert (row["of_limit"] is not None) == (row["of_limit_with_adds"] is not None) == linear
        assert row["ms"] >= 0


@pytest.mark.usefixtures("needs_kernels")
def test_a_network_is_timed_dense_by_events_and_as_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--forms", "--batch", "2", "--rounds", "1"]
    assert main(command, asked) == EXIT_BAD_INPUT
    assert "--model" in capsys.readouterr().err
    assert main(command, [*asked, "--model", "lapis_tiny.cifar10", "--json"]) == EXIT_OK
    rows = json.loads(capsys.readouterr().out)["rows"]
    sets = [isa for isa in native.isas() if isa != "scalar"]
    assert [(row["isa"], row["form"]) for row in rows] == [
        (isa, form) for isa in sets for form in ("dense", "events", "chosen")
    ]
    assert all(row["gain"] == 1.0 for row in rows if row["form"] == "dense")
    assert all(row["ms"] >= row["qkv"] + row["proj"] + row["fc1"] + row["fc2"] > 0 for row in rows)


@pytest.mark.usefixtures("needs_kernels")
def test_a_race_of_engines_that_are_all_missing_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    assert main(command, ["--engine", "onnx_int8", "--shape", "tiny"]) == EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert CONTENDERS["onnx_int8"].label in error
    assert "nothing was measured" in error


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds children by /proc, which this system lacks")
def test_the_load_runs_inside_the_with_and_nowhere_else() -> None:
    def loads() -> int:
        listed = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True)
        return listed.stdout.count("load.py")

    assert loads() == 0
    with beside_load(0.2):
        assert loads() == 1
    assert loads() == 0
