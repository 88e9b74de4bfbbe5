"""Write docs/format-vector.json: what an executor of a packed file must answer to images that need no picture file.

The meaning of every field is in docs/format.md, "Test vector". The answers are those of the integer model. With
--fixture the small networks docs/format-vector.safetensors, -table, -narrow and -dot are made anew first, from random
numbers.

    python -m tools.format_vector
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.synthetic import random_network
from lapis._util.files import write_text
from lapis.config import AFFINITY_BITS, Coding, CodingByPoint, LapisConfig, MinCodeByPoint
from lapis.deploy import integer
from lapis.deploy.arithmetic import Int64
from lapis.deploy.network import Network
from lapis.errors import LapisError
from lapis.pack import load, save
from lapis.preprocess import Interpolation, Pixels, Preprocess
from lapis.trace import POINTS, Trace

ROOT = Path(__file__).resolve().parents[1]
VECTOR = ROOT / "docs" / "format-vector.json"
PACKAGED = Path("models/lapis_tiny.cifar10_dense.safetensors")
DEFAULT = Path("models/lapis_tiny.cifar10.safetensors")
FIXTURE = Path("docs/format-vector.safetensors")
TABLE = Path("docs/format-vector-table.safetensors")
NARROW = Path("docs/format-vector-narrow.safetensors")
DOT = Path("docs/format-vector-dot.safetensors")
FORMULA = ("per_row", "per_column", "per_product", "per_colour", "start")


def pixels(image: dict[str, Any]) -> Pixels:
    """(per_row y + per_column x + per_product y x + per_colour colour + start) mod 256: (height, width, 3)."""
    y, x, colour = np.ogrid[: image["height"], : image["width"], :3]
    per_row, per_column, per_product, per_colour, start = (image[name] for name in FORMULA)
    value = per_row * y + per_column * x + per_product * y * x + per_colour * colour + start
    return np.asarray(value % 256, dtype=np.uint8)


def images(size: int) -> list[dict[str, Any]]:
    """Images at the network's size, which are not resized where nothing is cropped, and at others, which are."""
    rows = [
        ("black", size, size, 0, 0, 0, 0, 0),
        ("white", size, size, 0, 0, 0, 0, 255),
        ("ramp", size, size, 2, 1, 0, 85, 0),
        ("weave", size, size, 3, 5, 7, 31, 11),
        ("small", 32, 32, 8, 5, 1, 60, 3),
        ("tall", 211, 97, 1, 3, 1, 101, 40),
        ("wide", 61, 190, 7, 1, 5, 19, 200),
    ]
    return [dict(zip(("name", "height", "width", *FORMULA), row, strict=True)) for row in rows]


def answer(network: Network, image: dict[str, Any], logits: Int64, trace: Trace) -> dict[str, Any]:
    """The entry of one image, from what an executor gave for it as a batch of one."""
    whole = pixels(image)
    return {
        **image,
        "image_sha256": sha256(whole),
        "resized_sha256": sha256(network.preprocess.resize(whole)),
        "logits": logits[0].tolist(),
        "codes_sha256": {
            str(block): {point: sha256(trace[block, point][0].astype(np.int8)) for point in POINTS}
            for block in (0, network.config.depth - 1)
        },
    }


def sha256(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def small_network() -> Network:
    """Style beit with what the packaged model does not have: padding, all coding, a crop, ReLU, names beyond ASCII."""
    config = LapisConfig(
        style="beit",
        image_size=12,
        patch_size=4,
        classes=5,
        width=10,
        depth=2,
        heads=2,
        mlp_ratio=3,
        window=20,
        activation="relu",
        coding=CodingByPoint("signed", "offset", "signed", "unsigned", "offset", "signed"),
        affinity_bits=AFFINITY_BITS,
        min_code=MinCodeByPoint(attention_in=(2, 5), qk=2, v=(3, 1), readout=2, mlp_in=4, mlp_hidden=(1, 3)),
    ).deployed()
    network, generator = random_network(config, seed=13), np.random.default_rng(13)
    return dataclasses.replace(
        network,
        preprocess=Preprocess(12, mean=(0.5, 0.25, 1e-5), interpolation="bilinear", crop=0.875),
        class_names=("cat", "dög", 'a "quote"', "tab\t\\", "clef \U0001d11e"),
        fraction_bits=14,
        patch_shift=generator.integers(7, 10, 10, dtype=np.uint8),
        head_bias=generator.integers(-(1 << 34), 1 << 34, 5, dtype=np.int64),
        head_exponent=11,
    )


def table_network(relation: str, mode: Coding, seed: int, filter_: Interpolation, **changes: Any) -> Network:
    """Affinities as a table by distance, or as a leak; weights of eight bits."""
    config = LapisConfig(
        image_size=8,
        patch_size=4,
        classes=3,
        width=9,
        depth=2,
        heads=3,
        mlp_ratio=2,
        window=7,
        relation=relation,
        coding=CodingByPoint(qk=mode),
        affinity_bits=AFFINITY_BITS,
    ).deployed(weight_bits=8)
    network = random_network(config.replace(**changes), seed)
    return dataclasses.replace(network, preprocess=Preprocess(8, interpolation=filter_))


def vector() -> list[dict[str, Any]]:
    """The whole content of the file."""
    files = []
    for path in (PACKAGED, DEFAULT, FIXTURE, TABLE, NARROW, DOT):
        network, data = load(ROOT / path), (ROOT / path).read_bytes()
        answers = [
            answer(network, image, *integer.watch(network, network.preprocess.resize(pixels(image))[None]))
            for image in images(network.config.image_size)
        ]
        files.append(
            {
                "file": path.as_posix(),
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                "images": answers,
            }
        )
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/format-vector.json.")
    parser.add_argument("--fixture", action="store_true", help="Make the small networks in docs anew first.")
    try:
        if parser.parse_args().fixture:
            fixtures = {
                FIXTURE: small_network(),
                TABLE: table_network("table", "signed", 29, "nearest"),
                NARROW: dataclasses.replace(
                    table_network("laplacian", "signed", 37, "bicubic", affinity_bits=5),
                    activity={"attention_in": (0.25, 0.5), "mlp_hidden": (0.125, 1.0)},
                ),
                DOT: table_network("dot", "signed", 41, "lanczos"),
            }
            for path, network in fixtures.items():
                print(f"{path}: {save(ROOT / path, network):,} bytes")
        text = json.dumps(vector(), indent=1) + "\n"
        write_text(VECTOR, text)
    except LapisError as error:
        raise SystemExit(f"error: {error}") from error
    print(f"{VECTOR.relative_to(ROOT)}: {len(text):,} bytes")


if __name__ == "__main__":
    main()
