"""Classify images with a packed model. Needs numpy and Pillow, not torch.

Run it:  python examples/predict_without_torch.py runs/example/packed.safetensors IMAGE...
"""

from __future__ import annotations

import sys

from lapis import Session


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    session = Session(sys.argv[1], threads=1)
    print(f"{session.config.classes} classes, {session.memory()['weights']:,} bytes of weights, by {session.executor}")
    for name, best in zip(sys.argv[2:], session.predict(sys.argv[2:], top_k=3), strict=True):
        print(name, ", ".join(f"{one.label} {one.score:.0%}" for one in best))


if __name__ == "__main__":
    main()
