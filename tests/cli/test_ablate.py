"""`lapis ablate`: all variants under one schedule."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from lapis.cli import main
from lapis.config import CodingByPoint
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.train.ablate import ENERGIES
from lapis.train.recipe import DRIVING
from lapis.train.studies import variants

TINY = [
    "--recipe", "smoke", "--set", "model.depth=1", "--set", "model.width=16", "--set", "model.heads=2",
    "--set", "model.patch_size=8", "--set", "data.limit=32", "--set", "data.test_limit=10",
    "--set", "data.calibrate=8", "--set", "optim.batch=16", "--set", "optim.epochs=1", "--quiet",
]  # fmt: skip


def test_variants_differ_in_the_thing_studied_alone() -> None:
    for study, key in (("relation", "relation"), ("activation", "coding")):
        rows = variants(study, "cifar10_tiny", ["optim.epochs=0.5"])
        records = [row.recipe.to_dict() for row in rows]
        for record in records:
            assert record["optim"]["epochs"] == 0.5
            del record["model"][key], record["lift"], record["draw_qk"]
        assert all(record == records[0] for record in records)
    rows = variants("relation", "smoke", [])
    half = len(rows) // 2
    assert [row.name for row in rows[:4]] == ["laplacian", "dot", "gaussian", "hamming"]
    assert [row.name for row in rows[half:]] == [f"{row.name} drawn" for row in rows[:half]]
    assert [row.recipe.draw_qk for row in rows] == [False] * half + [True] * half
    assert all(row.recipe.model.mean_pooling for row in rows)
    assert [(row.name, row.recipe.model.coding, row.recipe.lift) for row in variants("activation", "smoke", [])] == [
        ("unsigned", CodingByPoint.all("unsigned"), False),
        ("offset", CodingByPoint.all("offset"), False),
        ("signed", CodingByPoint.all("signed"), False),
        ("lifted", CodingByPoint.all("unsigned"), True),
    ]


def test_rungs_of_the_ladder_start_from_the_one_before_and_go_down() -> None:
    rows = variants("sparsity")
    assert [row.after for row in rows] == [None, *(row.name for row in rows[:-1])]
    means = [sum(getattr(row.recipe.sparsity, point) for point in DRIVING) / len(DRIVING) for row in rows]
    assert means == sorted(means, reverse=True)
    assert len(rows) >= 6
    assert all(row.recipe.model == row.recipe.model.deployed() for row in rows)
    assert [row.recipe.sparsity.basis for row in rows] == [True] + [False] * (len(rows) - 1)


def test_ways_to_be_silent_share_one_goal() -> None:
    rows = {row.name: row.recipe for row in variants("silence", "smoke")}
    goals = {name: recipe.sparsity.goals() for name, recipe in rows.items()}
    lowered = goals.pop("lowered")
    assert all(goal == goals["signed"] for goal in goals.values())
    # A readout has no bias that could be lowered: it falls with the values.
    assert lowered == {**goals["signed"], "readout": 1.0}
    assert (rows["lowered"].lift, rows["lowered"].sparsity.rule) == (True, "lower")
    assert rows["top-k"].sparsity.rule == "top_k"
    assert rows["relu"].model.activation == "relu"
    assert rows["lifted"].lift
    assert [name for name, recipe in rows.items() if recipe.sparsity.basis] == ["turned"]
    assert rows["unsigned"].model.coding == CodingByPoint.all("unsigned")


def test_a_study_on_the_packaged_images_needs_no_folder_even_where_one_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAPIS_DATA", str(tmp_path))
    assert main(["ablate", "relation", *TINY, "--only", "laplacian", "--out", str(tmp_path / "study")]) == EXIT_OK


@pytest.mark.parametrize("study", ["sparsity", "silence"])
def test_spikes_are_compared_with_accuracy(study: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", study, *TINY, "--out", str(tmp_path), "--json"]) == EXIT_OK
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(0 < row["activity"] < 1 for row in rows)
    assert rows[-1]["activity"] < 0.6
    assert (tmp_path / "ablation.png").read_bytes().startswith(b"\x89PNG")


def test_deployment_stages_recover_from_the_exact_network() -> None:
    exact, pow2, w6 = variants("deployment", "cifar10_tiny", [])
    assert (exact.after, pow2.after, w6.after) == (None, "exact W32", "exact W32")
    assert (pow2.recipe.model.weight_bits, w6.recipe.model.weight_bits) == (32, 6)
    assert w6.recipe.model == w6.recipe.model.deployed()


def test_a_study_gives_table_csv_and_plot_and_is_not_run_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "hamming, laplacian,ssa,dot drawn"
    words = ["ablate", "relation", *TINY, "--seeds", "0,1", "--only", names, "--out", str(tmp_path)]
    assert main([*words, "--json"]) == EXIT_OK
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["rows"]) == 8
    with (tmp_path / "ablation.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows[:4]] == ["laplacian", "hamming", "ssa", "dot drawn"]
    assert [row["multiplication_free"] for row in rows[:4]] == ["True", "True", "True", "False"]
    assert [bool(row["log2_gains"]) for row in rows[:4]] == [False, False, True, False]
    for row in rows:
        energies = [float(row[column]) for column in ENERGIES.values()]
        assert float(row["energy_strict_mj"]) >= float(row["energy_mj"])
        assert len(set(energies)) == 6
        assert float(row["ms_per_step"]) > 0
        assert float(row["energy_rate_train_mj"]) > float(row["energy_lenient_mj"])
    assert all(0 <= float(row["top1"]) <= 100 and 0 < float(row["energy_mj"]) < 1 for row in rows)
    assert (tmp_path / "ablation.png").read_bytes().startswith(b"\x89PNG")
    logs = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/steps.csv")}
    assert main(words) == EXIT_OK
    text = capsys.readouterr().out
    assert "87.92" in text
    assert "dot drawn" in text
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/steps.csv")} == logs
    (tmp_path / "hamming-seed1" / "summary.json").unlink()
    assert main([*words, "--finished", "--json"]) == EXIT_OK
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 7
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/steps.csv")} == logs
    assert main([*words, "--set", "optim.lr=0.5"]) == EXIT_BAD_INPUT
    assert "other settings" in capsys.readouterr().err


def test_activation_modes_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", "activation", *TINY, "--out", str(tmp_path)]) == EXIT_OK
    text = capsys.readouterr().out
    assert all(mode in text for mode in ("unsigned", "offset", "signed", "lifted"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["relations"], "did you mean 'relation'"),
        (["relation", "--seeds", "one"], "write it as 0,1,2"),
        (["relation", "--only", "laplacien"], "unknown variant 'laplacien'; did you mean 'laplacian'?"),
        (["relation", "--finished", "--out", "nowhere"], "nowhere holds no finished run of this study and these seeds"),
        (["sparsity", "--only", "0.55"], "'0.55' starts from '0.65'; ask for both"),
        (["deployment", "--recipe", "smoke"], "unknown recipe 'smoke_pow2'"),
    ],
)
def test_bad_input_is_one_clear_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", *words]) == EXIT_BAD_INPUT
    assert message in capsys.readouterr().err
