"""The log of a run is read again when the run is resumed, compared or drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapis._util.run_layout import EVALUATIONS_FILE, STEPS_FILE
from lapis.errors import LapisError
from lapis.train.log import read_evaluations, read_steps


def test_a_line_that_a_killed_process_left_incomplete_is_skipped(tmp_path: Path) -> None:
    (tmp_path / STEPS_FILE).write_text("step,loss\n1,0.5\n2,0.4\n3,0.")
    (tmp_path / EVALUATIONS_FILE).write_text('{"step": 1}\n{"step": 2')
    assert [row["step"] for row in read_steps(tmp_path)] == ["1", "2"]
    assert read_evaluations(tmp_path) == [{"step": 1}]


def test_a_run_without_a_log_has_no_lines(tmp_path: Path) -> None:
    assert read_steps(tmp_path) == read_evaluations(tmp_path) == []


@pytest.mark.parametrize(
    "steps", [b"step,loss\n\xff,1\n", b"loss\n1\n", b"step,loss\nx,1\n", b"step,loss\n1," + b"9" * 200_000 + b"\n"]
)
def test_damaged_steps_are_one_error_that_names_the_file(tmp_path: Path, steps: bytes) -> None:
    (tmp_path / STEPS_FILE).write_bytes(steps)
    with pytest.raises(LapisError, match=r"steps\.csv is damaged.*remove it"):
        read_steps(tmp_path)


@pytest.mark.parametrize(
    "lines", [b"\xff\n", b"[]\n", b"7\n", b'{"loss": 1}\n', b'{"step": null}\n', b"[" * 100_000 + b"\n"]
)
def test_damaged_evaluations_are_one_error_that_names_the_file(tmp_path: Path, lines: bytes) -> None:
    (tmp_path / EVALUATIONS_FILE).write_bytes(lines)
    with pytest.raises(LapisError, match=r"evaluations\.jsonl is damaged.*remove it"):
        read_evaluations(tmp_path)
