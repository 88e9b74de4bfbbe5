"""The GPU kernels in Triton's interpreter, on the CPU, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lapis.ops.gpu.choice import WORDS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def test_kernels_agree_with_float64_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="triton is not installed: pip install triton")
    environment = os.environ | {"TRITON_INTERPRET": "1", "LAPIS_GPU": WORDS, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "interpreted")]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
