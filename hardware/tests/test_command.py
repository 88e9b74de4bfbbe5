"""`python -m lapis_hardware` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.synthetic import random_network
from lapis.pack import save
from lapis_hardware import tools
from lapis_hardware.__main__ import EXIT_BAD_INPUT, main
from tests.networks import small_config


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "small.safetensors"
    save(path, random_network(small_config(classes=10)))
    return path


def test_a_design_is_written_with_its_testbench_and_vectors(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = packed.with_name("head")
    assert main([str(packed), "-o", str(out), "--block", "1", "--head", "1", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert sorted(path.name for path in out.iterdir()) == sorted(record["files"])
    assert {"attention_head.sv", "bench.sv", "leak.hex", "codes.hex"} <= set(record["files"])
    assert record["parameters"]["CHANNELS"] == 3
    assert main([str(packed), "-o", str(out)]) == 0
    assert "top: attention_head" in capsys.readouterr().out


def test_rows_are_verified(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not tools.has("icarus"):
        pytest.skip("icarus is not installed")
    arguments = [str(packed), "--verify", "--rows", "25", "--simulator", "icarus"]
    assert main([*arguments, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["verified"]
    assert (found["rows"], found["different"]) == (25, 0)
    assert main(arguments) == 0
    assert "25 rows of 4 heads; 0 differences" in capsys.readouterr().out


def test_a_lane_is_measured_and_placed(packed: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for tool in ("yosys", "nextpnr"):
        if not tools.has(tool):
            pytest.skip(f"{tool} is not installed")
    figure = tmp_path / "lanes.png"
    arguments = [str(packed), "--measure", "--only", "temporal", "--only", "minimum"]
    assert main([*arguments, "--figure", str(figure), "--fpga"]) == 0
    printed = capsys.readouterr().out
    assert "ratios to minimum" in printed
    assert " MHz" in printed
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to do"),
        (["-o", "head", "--block", "2"], "use blocks 0 to 1"),
        (["--measure", "--figure", "lanes.svg"], "ends in .png"),
        (["-o", "head", "--figure", "lanes.png"], "goes with --measure"),
        (["--measure", "--only", "minimal"], "lanes: minimum, difference"),
        (["--measure", "--liberty", "absent.lib"], "cannot be read"),
        (["--verify", "--rows", "100000000"], "ask for at most"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can(
    packed: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tools, "has", lambda tool: True)
    monkeypatch.chdir(packed.parent)
    assert main([str(packed), *arguments]) == EXIT_BAD_INPUT
    assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(packed), "-o", str(packed / "inside")]) == EXIT_BAD_INPUT
    assert "--out" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "tool"), [("--verify", "verilator"), ("--measure", "yosys"), ("--fpga", "yosys")])
def test_a_missing_tool_is_named_with_how_to_get_it(
    packed: Path, option: str, tool: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "has", lambda name: False)
    assert main([str(packed), option]) == EXIT_BAD_INPUT
    assert f"{tool} is not installed; pip install" in capsys.readouterr().err
