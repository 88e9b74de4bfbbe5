"""A setting that torch needs on some processors before it computes in bf16."""

from __future__ import annotations

import os
import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# The CPUID leaf that gives the shape of AMX's tiles.
TILE_PAGE = 0x1D


def avoid_broken_amx(cpuinfo: Path = CPUINFO) -> bool:
    """Keep oneDNN from using AMX where a hypervisor announces it but hides its tiles: oneDNN would crash there.

    It has an effect only before torch's first product. A value that the user has set stays. True if AMX is now off.
    """
    try:
        text = cpuinfo.read_text(encoding="utf-8")
    except OSError:
        return False
    pages = re.search(r"^cpuid level\s*:\s*(\d+)", text, re.MULTILINE)
    if pages is None or " amx_tile" not in text or int(pages[1]) >= TILE_PAGE:
        return False
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    return True
