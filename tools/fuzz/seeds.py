"""Write the corpus: sound files, as small as files of their kind can be.

    python -m tools.fuzz.seeds

Files of other names in the folder were found by a fuzzer and are kept: each once did what no file may.
"""

from __future__ import annotations

import dataclasses

from benchmarks.synthetic import random_network
from lapis.config import CodingByPoint, LapisConfig, MinCodeByPoint
from lapis.pack import pack
from lapis.preprocess import Preprocess
from tools.fuzz.campaign import CORPUS

SMALL = LapisConfig(image_size=8, patch_size=4, classes=3, width=6, depth=2, heads=2).deployed()
SEEDS = {
    "vit": SMALL,
    "beit": SMALL.replace(style="beit", image_size=4, coding=CodingByPoint.all("signed")),
    "table": SMALL.replace(relation="table", weight_bits=8, window=5),
    "min_code": SMALL.replace(min_code=MinCodeByPoint.all(3), activation="relu", depth=1, weight_bits=4),
    "tiles": SMALL.replace(width=33, heads=3, depth=1, mlp_ratio=2, window=20, coding=CodingByPoint(qk="signed")),
    "widest": SMALL.replace(window=63, weight_bits=8, coding=CodingByPoint.all("signed"), depth=1),
    "one": SMALL.replace(image_size=1, patch_size=1, classes=1, width=1, heads=1, depth=1, mlp_ratio=1, window=1),
}


def seed_files() -> dict[str, bytes]:
    """Every seed's file by its name."""
    files = {}
    for name, config in SEEDS.items():
        network = random_network(config)
        if name in ("vit", "tiles"):
            network = dataclasses.replace(
                network,
                class_names=("cat", "Käse", "\u732b"),
                preprocess=Preprocess(config.image_size, interpolation="lanczos", crop=0.875),
                activity={"v": (0.25,) * config.depth},
            )
        files[f"{name}.safetensors"] = pack(network)
    return files


if __name__ == "__main__":
    CORPUS.mkdir(exist_ok=True)
    for name, data in seed_files().items():
        (CORPUS / name).write_bytes(data)
