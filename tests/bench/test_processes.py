"""Child processes give their answer or a reason; peaks of memory are seen."""

from __future__ import annotations

import pytest

from lapis.bench.processes import LONGEST_REASON, last_line, peak_memory_bytes, reset_peak_memory, run_module
from lapis.errors import LapisError

MEGABYTE = 1 << 20


def test_a_module_gives_what_it_prints() -> None:
    assert run_module("json.tool", "--help").startswith("usage")


def test_a_module_that_fails_gives_the_last_line_of_its_stderr() -> None:
    with pytest.raises(LapisError, match=r"No module named lapis\.no_such_module"):
        run_module("lapis.no_such_module")


def test_a_reason_is_one_line_of_readable_length() -> None:
    assert last_line("warning\nValueError: bad\n\n  \n") == "ValueError: bad"
    assert last_line(" \n") == ""
    assert len(last_line("x" * 5000)) == LONGEST_REASON


def test_the_peak_sees_memory_that_was_given_back_until_it_is_reset() -> None:
    reset_peak_memory()
    before = peak_memory_bytes()
    block = bytearray(b"x") * (64 * MEGABYTE)
    del block
    assert peak_memory_bytes() - before > 60 * MEGABYTE
    reset_peak_memory()
    assert peak_memory_bytes() - before < 60 * MEGABYTE
