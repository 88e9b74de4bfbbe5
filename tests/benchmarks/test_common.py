"""What benchmarks share: answers before times, ratios within rounds, rows with their machine, one line for an error."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import click
import pytest

from benchmarks.common import Several, deliver, main, output_options, quartiles, ratio_quartiles, take_turns
from benchmarks.kernels import Task, measure
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK, LapisError


def work(amount: int) -> Callable[[], int]:
    return lambda: sum(range(amount))


def test_a_wrong_answer_is_never_timed() -> None:
    calls = []

    def refuse() -> None:
        raise LapisError("the answer is wrong")

    task = Task("t", "s", {"ours": lambda: calls.append(1)}, refuse, {})
    with pytest.raises(LapisError, match="wrong"):
        measure(task, 1, 3)
    assert not calls


def test_ours_has_a_ratio_of_one_and_more_work_a_greater_one() -> None:
    task = Task("t", "s", {"ours": work(1_000), "theirs": work(100_000)}, lambda: None, {"theirs": 2.0})
    ours, other = measure(task, 2, 5)
    assert (ours.times_ours, ours.times_ours_low, ours.times_ours_high) == (1.0, 1.0, 1.0)
    # A hundred times the work: no clock or scheduler makes it the faster one in the median of five rounds.
    assert other.times_ours > 1
    assert other.times_ours_low <= other.times_ours <= other.times_ours_high
    assert (ours.target, other.target) == (None, 2.0)
    assert (ours.contender, other.contender, other.threads) == ("ours", "theirs", 2)


def test_calls_take_turns() -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    assert take_turns(calls, 2) == {"a": [None, None], "b": [None, None]}
    assert order == ["a", "b", "b", "a"]


def test_a_call_that_fails_is_named_and_leaves_no_half_of_its_rounds() -> None:
    left = iter([1, 2])

    def fails_at_last() -> int:
        try:
            return next(left)
        except StopIteration:
            raise LapisError("it broke") from None

    dropped = []
    results = take_turns(
        {"weak": fails_at_last, "strong": lambda: 7}, 4, lambda name, error: dropped.append((name, str(error)))
    )
    assert results == {"strong": [7, 7, 7, 7]}
    assert dropped == [("weak", "it broke")]


def test_without_someone_to_tell_a_failure_is_raised() -> None:
    def fail() -> None:
        raise LapisError("it broke")

    with pytest.raises(LapisError, match="it broke"):
        take_turns({"weak": fail}, 1)


def test_the_warnings_of_what_is_timed_are_not_shown() -> None:
    def warn() -> None:
        warnings.warn("a rival warns", UserWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        measure(Task("t", "s", {"ours": work(1), "theirs": warn}, warn, {}), 1, 1)
        warn()
    assert [str(one.message) for one in seen] == ["a rival warns"]


def test_no_rounds_is_an_error() -> None:
    with pytest.raises(LapisError, match="at least 1"):
        measure(Task("t", "s", {"ours": work(1)}, lambda: None, {}), 1, 0)


def test_quartiles_are_of_the_values_and_ratios_of_the_rounds() -> None:
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    assert quartiles([5.0, 1.0, 3.0, 2.0, 4.0]) == (2.0, 3.0, 4.0)
    # The second round was slow for both: the ratio is 2 all the same.
    assert ratio_quartiles([2.0, 200.0, 4.0], [1.0, 100.0, 2.0]) == (2.0, 2.0, 2.0)


@dataclass(frozen=True)
class Row:
    name: str
    ms: float | None


@click.command()
@click.option("--sizes", type=Several(click.IntRange(1)), default="1,2")
@output_options
def example(sizes: tuple[int, ...], as_json: bool, out: Path | None) -> None:
    """Two rows."""
    rows = [Row("a, b", float(sum(sizes))), Row("c", None)]
    deliver("example", {"machine": "An Abacus (R)", "isa": "beads"}, rows, as_json, out)


def test_rows_are_printed_and_every_row_of_the_csv_names_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(example, ["--sizes", "3,4", "--json", "--out", str(tmp_path / "new")]) == EXIT_OK
    record = json.loads(capsys.readouterr().out)
    assert record["rows"] == [{"name": "a, b", "ms": 7.0}, {"name": "c", "ms": None}]
    written = tmp_path / "new" / "example-an-abacus-r-beads.csv"
    assert record["written"] == str(written)
    with written.open(newline="") as lines:
        assert list(csv.DictReader(lines))[1] == {"machine": "An Abacus (R)", "isa": "beads", "name": "c", "ms": ""}
    assert main(example, []) == EXIT_OK
    assert capsys.readouterr().out.splitlines() == ["machine An Abacus (R), isa beads", "name  ms", "a, b  3", "c"]


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(example, ["--sizes", "1,x"]) == EXIT_BAD_INPUT
    assert "'x' is not a valid integer" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(example, ["--out", str(tmp_path / "file" / "x")]) == EXIT_BAD_INPUT
    assert "choose another --out" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["engine", "kernels", "memory", "simulator"])
def test_every_benchmark_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(import_module(f"benchmarks.{name}").command, ["--help"]) == EXIT_OK
    text = capsys.readouterr().out
    assert f"python -m benchmarks.{name}" in text
    assert "--json" in text
