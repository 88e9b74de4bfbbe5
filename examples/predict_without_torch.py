"""Classify images with a packed model. Needs numpy and Pillow, not torch.

Run it:  python examples/predict_without_torch.py runs/example/packed.safetensors [IMAGE ...]
"""

from __future__ import annotations

import sys

from lapis import Session
from lapis.data.slice import CIFAR10_CLASSES, load_slice


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    session = Session(sys.argv[1], threads=1)
    print(f"{session.config.classes} classes, {session.memory()['weights']:,} bytes of weights, by {session.executor}")
    if len(sys.argv) > 2:
        for name, best in zip(sys.argv[2:], session.predict(sys.argv[2:], k=3), strict=True):
            print(name, ", ".join(f"{one.name} {one.score:.0%}" for one in best))
    else:
        # Without images of your own, four of the packaged ones.
        images, labels = load_slice()
        for label, best in zip(labels[-4:], session.predict(images[-4:], k=3), strict=True):
            print(f"a {CIFAR10_CLASSES[label]}:", ", ".join(f"{one.name} {one.score:.0%}" for one in best))


if __name__ == "__main__":
    main()
