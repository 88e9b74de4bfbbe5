"""What ends a command before it has begun is one line too: Ctrl-C and a lack of memory while packages load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lapis.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED

WORDS = [sys.executable, "-m", "lapis.cli", "energy", "lapis_tiny", "--activity", "all=0.3"]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ("KeyboardInterrupt", EXIT_INTERRUPTED, "interrupted"),
        ("MemoryError", EXIT_BAD_INPUT, "not enough memory"),
        ("ImportError('libx.so: failed to map segment from shared object')", EXIT_BAD_INPUT, "not enough memory"),
    ],
)
@pytest.mark.parametrize("package", ["numpy", "click"])
def test_an_end_while_packages_load_is_one_line(package: str, error: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise {error}\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(WORDS, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
