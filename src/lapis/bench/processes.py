"""Child processes that run one of our modules, and the peak memory of a process.

The stderr of a child is not shown; if the child fails, its last line is given as the reason.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lapis.errors import LapisError

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
# Written to clear_refs, it makes the kernel reset the peak.
RESET_PEAK = "5"
LONGEST_REASON = 300


def run_module(module: str, *words: str) -> str:
    """What `python -m module words` prints; LapisError with the last line of its stderr if it fails."""
    done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LapisError(last_line(done.stderr) or f"it ended with exit code {done.returncode}")
    return done.stdout


def last_line(text: str) -> str:
    """The last line that is not blank, cut to a readable length; empty if there is none."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:LONGEST_REASON] if lines else ""


def peak_memory_bytes() -> int:
    """The peak memory of this process, since its start or since `reset_peak_memory`."""
    try:
        lines = STATUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LapisError(f"this system does not show a process's peak memory (VmHWM in {STATUS}); use Linux")


def reset_peak_memory() -> None:
    """Reset the peak to the memory that this process holds now."""
    try:
        CLEAR_REFS.write_text(RESET_PEAK)
    except OSError as error:
        raise LapisError(f"this system does not reset a process's peak memory ({CLEAR_REFS}); use Linux") from error
