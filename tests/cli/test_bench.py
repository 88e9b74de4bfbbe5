"""`lapis bench` as a person meets it."""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from lapis import native
from lapis.bench.contenders import CONTENDERS
from lapis.bench.joules import packages
from lapis.bench.soak import SoakRow
from lapis.cli import main
from lapis.cli.bench import command
from lapis.cli.bench.columns import COLUMNS
from lapis.config import preset
from lapis.deploy.synthetic import random_network
from lapis.errors import EXIT_BAD_INPUT, EXIT_CHECK_FAILED, EXIT_OK
from lapis.pack import save

# The least of everything: real runs, whose numbers are not judged.
QUICK = {
    "kernels": ["--size", "small", "--threads", "1", "--rounds", "1", "--no-step"],
    "engine": [
        *("--shape", "tiny", "--engine", "lapis", "--engine", "torch"),
        *("--threads", "1", "--batch", "1", "--rounds", "1"),
    ],
    "stages": ["--shape", "tiny", "--rounds", "1"],
    "events": ["--shape", "tiny", "--rounds", "1"],
    "growth": ["--side", "32", "--side", "64", "--rounds", "1"],
    "simulator": ["--rounds", "1"],
    "roofline": ["--batch", "1"],
    "needs": ["imagenet_base"],
    "soak": ["--predictions", "10"],
    "memory": ["--size", "1", "1", "64", "16"],
    "energy": ["NETWORK", "--engine", "torch", "--rounds", "2", "--batch", "2"],
}
# A column of each printed table, and how the line below explains it.
EXPLAINED = {
    "kernels": "times ours: how many times longer than lapis, median over rounds",
    "engine": "times ours: how many times longer than lapis, median over rounds",
    "stages": "of limit: GMAC per s as a share",
    "events": "dense / events: how many times longer dense takes",
    "growth": "ms per block: one image on 1 thread",
    "simulator": "operations: synapses that those spikes crossed",
    "roofline": "us: microseconds, calculated",
    "needs": "GB: memory of one GPU, calculated",
    "soak": "wrong: answers that differ",
    "memory": "MB: peak memory beyond inputs and result",
    "energy": "CPU ms: milliseconds per image of all threads together",
}
needs_library = pytest.mark.skipif(not native.available(), reason=f"no native kernels: {native.describe()}")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "net.safetensors"
    save(path, random_network(preset("lapis_tiny", image_size=32, depth=1, classes=4).deployed()))
    return path


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    place = tmp_path / "workplace"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def _words(name: str, network: Path, *more: str) -> list[str]:
    return ["bench", name, *(str(network) if word == "NETWORK" else word for word in QUICK[name]), *more]


def test_there_is_a_quick_run_of_every_command() -> None:
    assert isinstance(command, click.Group)
    assert set(command.commands) == set(QUICK) == set(EXPLAINED)


@pytest.mark.parametrize("name", QUICK)
def test_every_help_ends_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", name, "--help"]) == EXIT_OK
    text = capsys.readouterr().out.partition("Options:")[0]
    assert text.rstrip().splitlines()[-1].strip().startswith(f"lapis bench {name}")


def test_help_comes_without_torch() -> None:
    code = "import sys; from lapis.cli import main; main(['bench', '--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in QUICK)


@needs_library
@pytest.mark.parametrize("name", QUICK)
def test_a_table_is_printed_and_nothing_written(
    name: str, network: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_words(name, network)) == EXIT_OK
    printed = capsys.readouterr().out
    assert EXPLAINED[name] in printed
    shown = importlib.import_module(f"lapis.cli.bench.{name}").SHOWN
    lines = printed.splitlines()
    for column in [COLUMNS[field] for field in shown if field != "joules_per_image"]:
        assert f"{column.title}: {column.meaning}" in lines
    assert "thread(s)" not in printed
    assert list(workplace.iterdir()) == []


@needs_library
@pytest.mark.parametrize("name", QUICK)
def test_out_writes_the_rows_of_the_json_with_the_machine_in_the_name(
    name: str, network: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "growth":
        pytest.importorskip("matplotlib")
    assert main(_words(name, network, "--out", "deep/results", "--json")) == EXIT_OK
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    written = [Path(path) for path in record["written"]]
    assert sorted(written) == sorted(Path("deep/results").iterdir())
    assert [path.suffix for path in written] == ([".csv", ".png"] if name == "growth" else [".csv"])
    assert written[0].name.startswith(f"{name}-")
    assert written[0].name.endswith(f"-{native.isa()}.csv")
    with open(written[0], encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert record["rows"]
    assert rows == [
        {
            **record["facts"],
            **{field: "" if value is None else str(value) for field, value in row.items()},
        }
        for row in record["rows"]
    ]


@needs_library
def test_kernels_time_every_operation_on_the_instruction_set_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    before = native.isa()
    assert main(["bench", "kernels", *QUICK["kernels"], "--isa", "scalar", "--json"]) == EXIT_OK
    record = json.loads(capsys.readouterr().out)
    assert {row["task"] for row in record["rows"]} == {
        "distance",
        "distance forward and backward",
        "fused attention",
        "quantizer forward and backward",
    }
    assert all(row["median_ms"] > 0 for row in record["rows"])
    assert record["facts"]["isa"] == "scalar"
    assert native.isa() == before


@needs_library
def test_settings_are_in_the_titles_and_progress_on_stderr(
    network: Path, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(_words("engine", network, "--batch", "2")) == EXIT_OK
    captured = capsys.readouterr()
    for title in ("tiny, 1 thread, batch 1", "tiny, 1 thread, batch 2"):
        assert title in captured.out
        assert f"timed {title}" in captured.err
    assert "timed" not in captured.out


@needs_library
def test_what_rivals_print_stays_out_of_the_output(
    network: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (workplace / "sitecustomize.py").write_text("import sys; print('a rival warns', file=sys.stderr)")
    monkeypatch.setenv("PYTHONPATH", str(workplace))
    assert main(_words("engine", network)) == EXIT_OK
    captured = capfd.readouterr()
    assert CONTENDERS["torch"].label in captured.out
    assert "a rival warns" not in captured.out + captured.err


@needs_library
def test_a_soak_that_does_not_hold_exits_with_a_broken_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lapis.cli.bench.soak.soak", lambda predictions, report: SoakRow(predictions, 1, 0))
    assert main(["bench", "soak", "--predictions", "3", "--json"]) == EXIT_CHECK_FAILED
    assert json.loads(capsys.readouterr().out)["holds"] is False


def test_energy_gives_joules_or_says_why_not(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_words("energy", network, "--json")) == EXIT_OK
    record = json.loads(capsys.readouterr().out)
    counted = packages()[1] == ""
    assert [row["engine"] for row in record["rows"]] == ["lapis", CONTENDERS["torch"].label]
    for row in record["rows"]:
        assert row["cpu_ms_per_image"] > 0
        assert (row["joules_per_image"] is not None) == counted
    assert (record["rapl"] == "counted") == counted
    assert record["model"] == str(network)


def test_energy_names_the_engines_that_are_not_installed(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = [name for name in ("onnx", "openvino") if CONTENDERS[name].missing()]
    if not absent:
        pytest.skip("every engine is installed")
    engines = [word for name in absent for word in ("--engine", name)]
    assert main(["bench", "energy", str(network), "--rounds", "1", "--batch", "1", *engines, "--json"]) == EXIT_OK
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert [row["engine"] for row in record["rows"]] == ["lapis"]
    assert list(record["skipped"]) == [CONTENDERS[name].label for name in absent]
    for name in absent:
        assert f"skipped {CONTENDERS[name].label}: " in captured.err
        assert CONTENDERS[name].missing()[0] in record["skipped"][CONTENDERS[name].label]


@needs_library
def test_a_race_of_engines_that_are_all_missing_is_an_error(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not CONTENDERS["onnx"].missing():
        pytest.skip("ONNX Runtime is installed")
    assert main(["bench", "engine", "--engine", "onnx", "--out", "results"]) == EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert CONTENDERS["onnx"].label in error
    assert "nothing was measured" in error
    assert list(workplace.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["kernels", "--size", "huge"], "paper"),
        (["engine", "--shape", "huge"], "tiny"),
        (["engine", "--engine", "none"], "openvino_int8"),
        (["energy", "--engine", "lapis"], "torch_int8"),
        (["energy", "no_such_model"], "lapis_tiny_cifar10"),
        (["soak", "--predictions", "0"], "x>=1"),
        (["growth", "--side", "33"], "patch_size"),
    ],
)
def test_unknown_words_are_refused_and_known_ones_named(
    words: list[str], allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if words[0] == "growth" and not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")
    assert main(["bench", *words]) == EXIT_BAD_INPUT
    assert allowed in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in QUICK if name not in ("energy", "roofline", "needs")])
def test_without_kernels_there_is_nothing_to_measure(
    name: str, network: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with native.force(native.NONE):
        assert main(_words(name, network)) == EXIT_BAD_INPUT
    assert "not available" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_refused_before_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["bench", "soak", "--predictions", "1000000000", "--out", str(tmp_path / "file" / "x")]) == (
        EXIT_BAD_INPUT
    )
    assert "choose another --out" in capsys.readouterr().err


@needs_library
def test_the_memory_of_a_model_is_shown_in_both_forms(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "memory", "--model", str(network), "--rounds", "1", "--json"]) == EXIT_OK
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["form"] for row in rows] == ["usual", "low memory"]
    assert rows[0]["times_usual"] == 1.0
    assert rows[1]["weights_mb"] <= rows[0]["weights_mb"]
    assert {row["file_mb"] for row in rows} == {round(network.stat().st_size / 1e6, 3)}
