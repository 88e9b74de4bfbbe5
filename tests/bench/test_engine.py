"""`lapis bench engine`: rows, files and refusals; times themselves are not judged."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lapis import native
from lapis.bench.contenders import CONTENDERS
from lapis.bench.engine import SHAPES, command, growth, plot_growth, stage_macs
from lapis.cli import main
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.runtime.engine import STAGES


@pytest.fixture(autouse=True)
def needs_the_library() -> None:
    if not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")


def _run(tmp_path: Path, *words: str) -> dict[str, object]:
    result = CliRunner().invoke(command, [*words, "--out", str(tmp_path), "--json"], catch_exceptions=False)
    assert result.exit_code == EXIT_OK, result.output
    content = json.loads(result.stdout)
    assert isinstance(content, dict)
    return content


def test_engines_take_turns_and_tell_time_and_memory(tmp_path: Path) -> None:
    content = _run(
        tmp_path, "--shape", "tiny", "--engine", "lapis", "--engine", "torch", "--threads", "1", "--batch", "2",
        "--rounds", "3",
    )  # fmt: skip
    rows = content["rows"]
    assert isinstance(rows, list)
    assert [row["engine"] for row in rows] == [CONTENDERS["lapis"].label, CONTENDERS["torch"].label]
    assert rows[0]["times_ours"] == 1.0
    assert all(row["median_ms"] > 0 and row["peak_mb"] > 1 and row["load_s"] > 0 for row in rows)
    written = Path(str(content["written"]))
    with open(written, encoding="utf-8", newline="") as lines:
        assert len(list(csv.DictReader(lines))) == 2


def test_stages_are_held_against_the_multipliers_limit(tmp_path: Path) -> None:
    rows = _run(tmp_path, "--stages", "--shape", "tiny", "--rounds", "2")["rows"]
    assert isinstance(rows, list)
    assert [row["stage"] for row in rows] == list(STAGES) * 2
    if native.isa() != "scalar":
        assert all(row["share_of_limit"] > 0 for row in rows if row["stage"] in stage_macs(SHAPES["tiny"]))


def test_growth_is_measured_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = growth((32, 64), 1)
    assert [row["tokens"] for row in rows] == [5, 17]
    plot_growth(rows, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 1000


def test_a_short_soak_holds(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--soak", "50", "--json"], catch_exceptions=False)
    content = json.loads(result.stdout)
    assert content["wrong"] == 0
    assert content["predictions"] == 50


@pytest.mark.parametrize("words", [["--shape", "huge"], ["--engine", "none"]])
def test_unknown_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "engine", *words]) == EXIT_BAD_INPUT
    assert "use" in capsys.readouterr().err


def test_every_contender_names_what_it_lacks() -> None:
    for contender in CONTENDERS.values():
        assert set(contender.missing()) <= set(contender.modules)
    assert CONTENDERS["lapis"].missing() == ()
