"""docs/trust.md names tests and targets that exist, and shows the recorded counts."""

from __future__ import annotations

import re

from tools.trust import PAGE, ROOT, filled, read

TEXT = PAGE.read_text()


def test_every_test_and_target_of_the_page_exists() -> None:
    files = re.findall(r"`(tests/[\w/]+\.py)`", TEXT)
    assert len(files) > 10
    assert [file for file in files if not (ROOT / file).is_file()] == []
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"`make (\w+)`", TEXT)) <= set(targets)


def test_the_counts_are_those_of_the_record() -> None:
    assert filled(TEXT) == TEXT


def test_no_recorded_run_failed() -> None:
    record = read()
    assert record
    for name, entry in record.items():
        assert entry["counts"].get("failed", 0) == 0, name
        assert entry["counts"].get("races", 0) == 0, name
