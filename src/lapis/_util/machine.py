"""The processor's name."""

from __future__ import annotations

import platform


def processor() -> str:
    """The processor's name, from the kernel or else from Python."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or "unknown"
