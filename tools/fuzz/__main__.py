"""Load and run damaged packed files, and count what happens.

    python -m tools.fuzz --loads 1000000 --runs 50000

A file must be rejected with one LapisError of one line, or be a network that runs and whose native engine answers as
the integer model does. Anything else (another exception, a warning, a crash, a wait of seconds, other integers) is a
failure: its file is kept in --failures, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lapis._util.terminal import echo
from tools.fuzz.campaign import Campaign, corpus


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=1_000_000, help="files that are only loaded")
    parser.add_argument("--runs", type=int, default=50_000, help="files that are loaded and run in a forked child")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.0, help="stop each part after so long; 0 for never")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="where files that fail are kept")
    asked = parser.parse_args()
    campaign = Campaign(corpus(), asked.seed, asked.failures, asked.minutes * 60)
    counts = {"loads": campaign.load(asked.loads), "runs": campaign.run(asked.runs)}
    campaign.scratch.cleanup()
    for name, found in counts.items():
        echo(f"{name}: {', '.join(f'{number:,} {what}' for what, number in found.items())}")
    return 1 if any(found["failed"] for found in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
