"""What torch must be told about a processor before it computes in bf16."""

from __future__ import annotations

import os
import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# The page of CPUID that gives the shape of AMX's tiles.
TILE_PAGE = 0x1D


def spare_matrix_unit(cpuinfo: Path = CPUINFO) -> bool:
    """Keep oneDNN from AMX where a hypervisor announces it but hides its tiles: it would die of an illegal instruction.

    Counts only before torch's first product. What the user has set stays. True where AMX is kept out.
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
