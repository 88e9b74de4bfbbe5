"""Files that the pages take as given: pictures, weights, a trained run. Small, and made from what the package has."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from safetensors.numpy import save_file

from lapis import assets
from lapis.cli import main
from lapis.data.packaged import CIFAR10_CLASSES
from tests.docs.blocks import read_blocks

CLASSES = 10
TRAIN, TEST = 2, 1  # images per class
DEPLOYED = ("model.row_scale=pow2", "model.readout=spikes", "model.weight_bits=6")


def make(name: str, folder: Path) -> None:
    """Put the file or folder that a page calls `name` into `folder`."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    MAKERS[name](path)


def tile(index: int) -> Image.Image:
    """Test image `index` of the packaged picture of 20 x 20."""
    with (files("lapis") / "assets" / "cifar10_test_slice.webp").open("rb") as file:
        whole = Image.open(file).convert("RGB")
    row, column = divmod(index, 20)
    return whole.crop((32 * column, 32 * row, 32 * column + 32, 32 * row + 32))


def _photo(path: Path) -> None:
    tile(len(path.name)).resize((97, 64)).save(path)


def _pictures(path: Path) -> None:
    """One folder per class of CIFAR-10, in train and val; which image lies in which is of no use here."""
    for split, count, first in (("train", TRAIN, 0), ("val", TEST, CLASSES * TRAIN)):
        for number in range(CLASSES * count):
            folder = path / split / CIFAR10_CLASSES[number % CLASSES]
            folder.mkdir(parents=True, exist_ok=True)
            tile(first + number).save(folder / f"{number}.png")


def _pets(path: Path) -> None:
    """Two folders of five photos, named by number."""
    for number in range(10):
        folder = path / ("cat" if number % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        tile(number).resize((64, 48)).save(folder / f"{1 + number // 2}.jpg")


def _imagenet(path: Path) -> None:
    """Two test images, in folders whose names are the numbers of their classes."""
    for number in (3, 7):
        folder = path / "val" / str(number)
        folder.mkdir(parents=True)
        tile(number).resize((64, 64)).save(folder / "image.png")


def _cifar(path: Path) -> None:
    """The official binary layout: a byte of label, then 32 x 32 pixels, colour by colour."""
    folder = path / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "batches.meta.txt").write_text("\n".join(f"class{number}" for number in range(CLASSES)))
    for file, name in enumerate([*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]):
        images = [np.asarray(tile(file * CLASSES + number)).transpose(2, 0, 1) for number in range(CLASSES)]
        (folder / name).write_bytes(b"".join(bytes([label]) + image.tobytes() for label, image in enumerate(images)))


def _packed_model(path: Path) -> None:
    packaged = assets.find("lapis_tiny.cifar10")
    assert packaged is not None
    path.write_bytes(packaged.read_bytes())


def _trained_run(path: Path) -> None:
    pytest.importorskip("torch", reason="a trained run needs torch: pip install 'lapis-snn[train]'")
    settings = [word for one in (*DEPLOYED, "optim.epochs=0.2") for word in ("--set", one)]
    assert main(["train", "smoke", "--out", str(path), "--quiet", *settings]) == 0


def _from_the_clone(path: Path) -> None:
    path.symlink_to(Path(__file__).resolve().parents[2] / path.name)


def _program(path: Path) -> None:
    """The program of the page on deployment, in C or C++ as its name says."""
    page = Path(__file__).resolve().parents[2] / "docs" / "howto" / "deploy.md"
    path.write_text(next(block.text for block in read_blocks(page, page.name) if block.language == path.suffix[1:]))


def _deit_tiny(path: Path) -> None:
    """Tensors with the names and shapes of timm's DeiT-Ti, and random values."""
    width, hidden, generator = 192, 768, np.random.default_rng(0)
    layers = {"patch_embed.proj": (width, 3, 16, 16), "head": (1000, width)}
    norms = ["norm"]
    for block in range(12):
        layers[f"blocks.{block}.attn.qkv"], layers[f"blocks.{block}.attn.proj"] = (3 * width, width), (width, width)
        layers[f"blocks.{block}.mlp.fc1"], layers[f"blocks.{block}.mlp.fc2"] = (hidden, width), (width, hidden)
        norms += [f"blocks.{block}.norm1", f"blocks.{block}.norm2"]

    def draw(*shape: int) -> npt.NDArray[np.float32]:
        return generator.normal(0, 0.02, shape).astype(np.float32)

    tensors = {"cls_token": draw(1, 1, width), "pos_embed": draw(1, 197, width)}
    for name, shape in layers.items():
        tensors |= {f"{name}.weight": draw(*shape), f"{name}.bias": draw(shape[0])}
    for name in norms:
        tensors |= {f"{name}.weight": 1 + draw(width), f"{name}.bias": draw(width)}
    save_file(tensors, path)


MAKERS: dict[str, Callable[[Path], None]] = {
    "photo.png": _photo,
    "photo.jpg": _photo,
    "other.png": _photo,
    "pictures": _pictures,
    "pets": _pets,
    "imagenet": _imagenet,
    "cifar": _cifar,
    "model.safetensors": _packed_model,
    "runs/mine": _trained_run,
    "photos": _pets,
    "research": _from_the_clone,
    "program.c": _program,
    "program.cpp": _program,
    "deit_tiny.safetensors": _deit_tiny,
}
