"""The summary of skipped tests says what is missing and how to get it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.skipped import summary_lines

ROOT = Path(__file__).resolve().parents[1]


def test_reasons_that_one_remedy_serves_are_one_line() -> None:
    reasons = [
        "Skipped: this processor has no amx and there is no emulated build; `make emulate` makes one",
        "Skipped: this processor has no avx512bw and there is no emulated build; `make emulate` makes one",
        "Skipped: could not import 'matplotlib': No module named 'matplotlib'",
    ]
    assert summary_lines(reasons) == [
        "2 skipped: instruction sets that this processor lacks"
        "; to run them: apt-get install libsimde-dev; make emulate",
        "1 skipped: no matplotlib; to run them: pip install matplotlib",
    ]


def test_a_reason_without_a_remedy_is_shown_as_it_is() -> None:
    assert summary_lines(["Skipped: this system does not fork"]) == ["1 skipped: this system does not fork"]


def test_a_run_shows_progress_and_ends_with_what_it_skipped(tmp_path: Path) -> None:
    test = tmp_path / "test_one.py"
    body = "def test_one():\n    pytest.skip('no browser at /x')\n"
    test.write_text("import pytest\n\n" + body + body.replace("one", "two"))
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), str(test)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "[100%]" in done.stdout, done.stdout + done.stderr
    assert "2 skipped: no browser; to run them: apt-get install chromium" in done.stdout
