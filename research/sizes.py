"""The packed sizes of the paper's networks beside ours; weights are random, because sizes do not depend on them.

python research/sizes.py [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.synthetic import random_network
from lapis.config import preset
from lapis.pack import pack

# Preset, classes and the paper's size in MB of 10**6 bytes.
PAPER_SIZES = (
    ("lapis_small", 10, 18.0),
    ("lapis_small", 100, 18.2),
    ("lapis_base", 1000, 70.7),
    ("lapis_large", 1000, 238.1),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="The packed sizes of the paper's networks beside ours.")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    as_json = parser.parse_args().json
    rows = []
    for name, classes, paper in PAPER_SIZES:
        size = len(pack(random_network(preset(name, classes=classes).deployed())))
        rows.append({"preset": name, "classes": classes, "bytes": size, "paper_megabytes": paper})
        if not as_json:
            print(f"{name:14} {classes:5} classes {size:13,} bytes  {size / 1e6:7.2f} MB, paper {paper:6.1f} MB")
    if as_json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
