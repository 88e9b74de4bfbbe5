"""The machine that a benchmark ran on: its processor, cores, system and instruction set.

Every CSV row carries these facts, and every CSV file has the processor and the instruction set in its name.
"""

from __future__ import annotations

import os
import platform
import re

from lapis import native


def machine() -> dict[str, str]:
    """The facts of this machine that belong to a measured number."""
    return {
        "machine": processor(),
        "cores": str(_cores()),
        "system": f"{platform.system()} {platform.machine()}",
        "isa": native.isa(),
    }


def processor() -> str:
    """The processor's name, from the kernel or else from Python."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or "unknown"


def slug(name: str) -> str:
    """A machine's name as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


def thread_count(threads: int) -> str:
    """'1 thread', '2 threads'."""
    return f"{threads} thread{'' if threads == 1 else 's'}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
