"""The benchmark runner: answers before times, ratios within rounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from lapis.bench.runner import Task, measure, quartiles, ratio_quartiles, take_turns
from lapis.errors import LapisError


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
    assert order == ["a", "b", "a", "b"]


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
