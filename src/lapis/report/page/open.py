"""Any model file and any image to a page: packed files without torch, checkpoints with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lapis import assets, pack
from lapis.data.images import decode
from lapis.data.slice import CIFAR10_CLASSES, load_slice
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.report.page.explained import Explained
from lapis.report.page.from_network import explain_network
from lapis.runtime.session import NUMPY, Session

SLICE = "slice:"


def explain_file(model: str, image: str) -> Explained:
    """The run of a model file, or a packaged model's name, on an image file or `slice:N`."""
    path = assets.resolve(model)
    pixels, label = open_image(image)
    about: dict[str, Any] = {"model": path.name, "picture": Path(image).name, "label": label}
    if pack.is_packed(path):
        network = pack.load(path)
        session = Session(network)
        how = "the integer model in numpy" if session.executor == NUMPY else f"the native engine ({session.executor})"
        return explain_network(network, pixels, session.watch, executor=how, **about)
    return _explain_checkpoint(path, pixels, about)


def open_image(image: str) -> tuple[Pixels, str]:
    """Pixels (height, width, 3) and, for an image of the packaged slice, its label."""
    if not image.startswith(SLICE):
        path = Path(image)
        try:
            return decode(path.read_bytes(), image), ""
        except OSError as error:
            raise LapisError(
                f"cannot read image {image}: {error.strerror}; give an image file, or {SLICE}N for a packaged one"
            ) from error
    images, labels = load_slice()
    number = image[len(SLICE) :]
    if not number.isdecimal() or int(number) >= len(images):
        raise LapisError(f"{image!r} names no packaged image; use {SLICE}0 to {SLICE}{len(images) - 1}")
    return images[int(number)], CIFAR10_CLASSES[labels[int(number)]]


def _explain_checkpoint(path: Path, pixels: Pixels, about: dict[str, Any]) -> Explained:
    # Torch is loaded only where a checkpoint needs it.
    try:
        from lapis.convert.trained import preprocess_of
        from lapis.data.transforms import rule_of
        from lapis.nn import load_network
        from lapis.report.page.from_model import explain_model
    except ImportError as error:
        raise LapisError(
            f"{path} is a training checkpoint and needs torch: pip install 'lapis-snn[train]'; a packed file does not"
        ) from error
    network, said = load_network(path)
    prepare = preprocess_of(said, network.config.image_size)
    names = tuple(str(name) for name in said.get("class_names", ()))
    return explain_model(network, prepare.resize(pixels), rule_of(prepare), names, **about)
