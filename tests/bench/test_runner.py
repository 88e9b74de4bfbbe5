"""The benchmark runner: answers before times, ratios within rounds."""

from __future__ import annotations

import csv
import io

import pytest

from lapis.bench.runner import Contender, Task, measure, to_csv
from lapis.errors import LapisError


def work(amount: int) -> Contender:
    return Contender(f"sum of {amount}", lambda: sum(range(amount)))


def test_a_wrong_answer_is_never_timed() -> None:
    calls = []

    def refuse() -> None:
        raise LapisError("the answer is wrong")

    task = Task("t", "s", Contender("ours", lambda: calls.append(1)), (), refuse)
    with pytest.raises(LapisError, match="wrong"):
        measure(task, 1, 3)
    assert not calls


def test_ours_has_a_ratio_of_one_and_more_work_a_greater_one() -> None:
    task = Task("t", "s", work(1_000), (work(100_000),), lambda: None, (("sum of 100000", 2.0),))
    ours, other = measure(task, 1, 5)
    assert (ours.ratio, ours.ratio_low, ours.ratio_high) == (1.0, 1.0, 1.0)
    # A hundred times the work: no clock or scheduler makes it the faster one in the median of five rounds.
    assert other.ratio > 1
    assert other.target == 2.0
    assert other.ratio_low <= other.ratio <= other.ratio_high


def test_every_row_of_the_csv_names_the_machine() -> None:
    task = Task("t", "s", work(10), (work(20),), lambda: None)
    rows = list(csv.DictReader(io.StringIO(to_csv(measure(task, 2, 1), {"machine": "abacus"}))))
    assert [row["contender"] for row in rows] == ["sum of 10", "sum of 20"]
    assert {row["machine"] for row in rows} == {"abacus"}
    assert {row["threads"] for row in rows} == {"2"}


def test_no_rounds_is_an_error() -> None:
    with pytest.raises(LapisError, match="at least 1"):
        measure(Task("t", "s", work(1), (), lambda: None), 1, 0)
