"""Research scripts start; nothing more is tested. A study of one step runs."""

from __future__ import annotations

import csv
import runpy
import sys
from pathlib import Path

import pytest

from lapis.deploy.network import check_deployable
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from research import ablate

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "--recipe", "smoke", "--set", "model.depth=1", "--set", "model.width=16", "--set", "model.heads=2",
    "--set", "model.patch_size=8", "--set", "data.limit=16", "--set", "data.test_limit=10",
    "--set", "data.calibrate=8", "--set", "optim.batch=16", "--set", "optim.epochs=1",
]  # fmt: skip


@pytest.mark.parametrize("path", sorted((ROOT / "research").glob("*.py")), ids=lambda path: path.name)
def test_it_starts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert not ended.value.code


def test_a_study_of_one_step_gives_a_table_and_is_not_run_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["relation", *TINY, "--only", "laplacian,hamming", "--out", str(tmp_path)]
    assert ablate.main(words) == EXIT_OK
    assert "87.92" in capsys.readouterr().out
    with (tmp_path / "ablation.csv").open() as file:
        assert [row["variant"] for row in csv.DictReader(file)] == ["laplacian", "hamming"]
    written = (tmp_path / "laplacian-seed0" / "summary.json").stat().st_mtime_ns
    assert ablate.main(words) == EXIT_OK
    assert (tmp_path / "laplacian-seed0" / "summary.json").stat().st_mtime_ns == written
    assert ablate.main([*words[:-3], "none", *words[-2:]]) == EXIT_BAD_INPUT
    assert "use laplacian" in capsys.readouterr().err


@pytest.mark.parametrize("study", ["relation", "control", "activation", "sparsity", "silence"])
def test_every_setting_of_a_study_is_one_of_a_recipe(study: str) -> None:
    from lapis.train import load_recipe

    for row in ablate.variants(study):
        made = load_recipe("cifar10_tiny").with_overrides(list(row.settings))
        if study == "control":
            check_deployable(made.model)
