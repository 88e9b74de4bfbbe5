"""`lapis bench` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lapis import native
from lapis.bench.contenders import CONTENDERS
from lapis.bench.joules import packages
from lapis.cli import main
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.pack import save
from tests.networks import wide_network

QUICK = ["bench", "kernels", "--size", "small", "--threads", "1", "--rounds", "1", "--no-step"]
needs_library = pytest.mark.skipif(not native.available(), reason=f"no native kernels: {native.describe()}")


@needs_library
def test_it_writes_a_csv_with_the_machine_in_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--out", str(tmp_path), "--json"]) == EXIT_OK
    content = json.loads(capsys.readouterr().out)
    (written,) = tmp_path.glob("kernels-*.csv")
    assert content["written"] == str(written)
    assert written.name.endswith(f"-{native.isa()}.csv")
    tasks = {m["task"] for m in content["measurements"]}
    assert tasks == {
        "distance",
        "distance forward and backward",
        "fused attention",
        "quantizer forward and backward",
    }
    assert all(m["median_ms"] > 0 for m in content["measurements"])
    assert len(written.read_text().splitlines()) == len(content["measurements"]) + 1


@needs_library
def test_it_prints_ratios_and_restores_the_instruction_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = native.isa()
    assert main([*QUICK, "--isa", "scalar", "--out", str(tmp_path)]) == EXIT_OK
    printed = capsys.readouterr().out
    assert "times ours" in printed
    assert "torch.cdist p=1" in printed
    assert native.isa() == before


def test_an_unknown_size_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", "--size", "huge"]) == EXIT_BAD_INPUT
    assert "use paper, train, small" in capsys.readouterr().err


def test_without_kernels_there_is_nothing_to_time(capsys: pytest.CaptureFixture[str]) -> None:
    with native.force(native.NONE):
        assert main(QUICK) == EXIT_BAD_INPUT
    assert "not available" in capsys.readouterr().err


def test_energy_gives_joules_or_says_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "net.safetensors"
    save(packed, wide_network(depth=1))
    assert (
        main(["bench", "energy", str(packed), "--rounds", "3", "--batch", "2", "--engine", "torch", "--json"])
        == EXIT_OK
    )
    record = json.loads(capsys.readouterr().out)
    counted = packages()[1] == ""
    rows = {name: row for name, row in record.items() if isinstance(row, dict)}
    assert {"lapis", CONTENDERS["torch"].label} <= rows.keys()
    for name in rows:
        assert record[name]["cpu_ms_per_image"] > 0
        assert (record[name]["joules_per_image"] is not None) == counted
