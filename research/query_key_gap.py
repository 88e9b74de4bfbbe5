"""How far apart the queries and keys of a network lie: `python research/query_key_gap.py MODEL [MODEL ...]`.

Prints, for each block, the mean over channels of ((mean q - mean k) / T)**2 of codes, with means over the tokens of 24
packaged images, and the share of queries that stand at the end of the window. Where the first is near 1 a head no
longer compares (docs/training.md, Queries and keys that drift apart).
"""

from __future__ import annotations

import argparse

import numpy as np

from lapis import Session
from lapis.data.packaged import packaged_images

IMAGES = 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="packed files, packaged names or runs")
    names = parser.parse_args().models
    images = packaged_images()
    pixels = [images[index] for index in range(IMAGES)]
    for name in names:
        session = Session(name)
        depth, window, trace = session.config.depth, session.config.window, session.watch(pixels).trace
        gaps, ends = [], []
        for block in range(depth):
            q, k = (trace[block, point].reshape(-1, session.config.width).astype(np.float64) for point in ("q", "k"))
            gaps.append(float(np.square((q.mean(axis=0) - k.mean(axis=0)) / window).mean()))
            ends.append(float((np.abs(q) == window).mean()))
        print(f"{name}: mean gap {np.mean(gaps):.3f}")
        print("  gap of each block:", " ".join(f"{gap:.2f}" for gap in gaps))
        print("  queries at T:     ", " ".join(f"{end:.2f}" for end in ends))


if __name__ == "__main__":
    main()
