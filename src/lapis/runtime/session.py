"""Run a packed model without torch: `Session("model.safetensors").run(images)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from PIL import Image

from lapis import models
from lapis import native as kernels
from lapis.config import FLOAT_WEIGHTS
from lapis.deploy import integer
from lapis.deploy.arithmetic import Float32, Int64, real_logits
from lapis.deploy.network import Network
from lapis.errors import LapisError
from lapis.pack.reader import Header, read_header
from lapis.preprocess import Pixels, Readable, read_image
from lapis.runtime.engine import Engine, check_threads
from lapis.trace import Watched

ImageLike = Readable | Pixels
ImagesLike = ImageLike | Sequence[ImageLike]

NUMPY = "numpy"


@dataclass(frozen=True)
class Prediction:
    """One class of an answer; `score` is its share of the softmax of the logits."""

    index: int
    name: str
    score: float
    logit: float


class Session:
    """A deployed network on this machine: images of any size in, logits or class names out.

    An image is an array (height, width, 3) of bytes, a path, the bytes of a file (also as BytesIO or an open file), or
    an image of Pillow's.

    `model` is what `lapis.models.open` takes (a packed file, a packaged name, hf:ORG/NAME, a run) or a Network; torch
    is loaded only to convert a training checkpoint. `threads` work on one batch together. With native=False, or where
    the native library is missing, numpy gives the same answers, more slowly. With low_memory=True the native engine
    keeps 6-bit weights in 6 bits and one form of each layer: the same answers, a little later. A session may be called
    from several threads (calls take turns) and in processes forked at any moment, even while it predicts. Any number
    of sessions may exist at once.
    """

    def __init__(
        self, model: str | Path | Network, threads: int = 1, native: bool = True, low_memory: bool = False
    ) -> None:
        self.threads = check_threads(threads)
        found = model if isinstance(model, Network) else models.open(model)
        described, self._engine = _start(found, native, self.threads, low_memory)
        # Weights are kept only once: in the engine's layout, or as they were read.
        self._network = described if isinstance(described, Network) and self._engine is None else None
        self.executor = NUMPY if self._engine is None else kernels.isa()
        self.config = described.config
        self.preprocess = described.preprocess
        self.class_names = described.class_names
        self._head_exponent = described.head_exponent

    def run(self, images: ImagesLike) -> Float32:
        """Logits (B, classes)."""
        pixels = self.read(images)
        if self._engine is None:
            return self._real(integer.run(self._numpy(), pixels))
        return self._real(self._engine.run(pixels))

    def watch(self, images: ImagesLike) -> Watched:
        """Logits, and the codes at every measuring point."""
        logits, trace = self.watch_integers(images)
        return Watched(self._real(logits), trace)

    def watch_integers(self, images: ImagesLike) -> Watched:
        """As `watch`, with integer logits, which are the same for every executor."""
        pixels = self.read(images)
        if self._engine is None:
            return integer.watch(self._numpy(), pixels)
        return self._engine.watch(pixels)

    def predict(self, images: ImagesLike, k: int = 5) -> list[list[Prediction]]:
        """The k likeliest classes of every image, best first; equal logits in the order of the classes."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise LapisError(f"k={k!r} is not a number of classes; use an integer of at least 1")
        return [self._ranked(row, k) for row in self.run(images)]

    def read(self, images: ImagesLike) -> Pixels:
        """Images of any kind, one or many, as the (B, size, size, 3) bytes that the network takes."""
        size = self.config.image_size
        if isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim == 4:
            if images.shape[1:] == (size, size, 3) and len(images) and self.preprocess.crop == 1.0:
                return images
            items: Sequence[ImageLike] = list(images)
        elif _is_readable(images) or (isinstance(images, np.ndarray) and images.ndim != 4):
            items = [images]
        else:
            # A type guard narrows only where it holds.
            items = list(images)  # type: ignore[arg-type]
        if not items:
            raise LapisError("no image was given; give at least one array (height, width, 3) of bytes, or a file")
        return np.stack([self.preprocess.resize(_pixels(item)) for item in items])

    def name_of(self, index: int) -> str:
        """The name of a class, or its number where the file has no names."""
        return self.class_names[index] if self.class_names else str(index)

    def memory(self) -> dict[str, int]:
        """Bytes of the stored weights and of working memory, which is 0 for numpy."""
        if self._engine is not None:
            weights, working = self._engine.memory()
            return {"weights": weights, "working": working}
        network = self._numpy()
        arrays: list[npt.NDArray[Any]] = [network.patch_weight, network.position, network.head_weight]
        arrays += [getattr(block, name).weight for block in network.blocks for name in ("qkv", "proj", "fc1", "fc2")]
        return {"weights": sum(array.nbytes for array in arrays), "working": 0}

    def profile(self, images: ImagesLike) -> dict[str, int]:
        """CPU nanoseconds of the first thread in each stage of one run."""
        if self._engine is None:
            raise LapisError("stages are timed in the native engine only; this session runs in numpy")
        return self._engine.profile(self.read(images))

    def _real(self, logits: Int64) -> Float32:
        return real_logits(logits, self._head_exponent)

    def _numpy(self) -> Network:
        assert self._network is not None
        return self._network

    def _ranked(self, logits: Float32, k: int) -> list[Prediction]:
        order = np.argsort(-logits, kind="stable")[:k]
        share = np.exp(logits.astype(np.float64) - float(logits.max()))
        share /= share.sum()
        return [Prediction(int(i), self.name_of(int(i)), float(share[i]), float(logits[i])) for i in order]


def _start(
    found: Network | models.Opened, native: bool, threads: int, low_memory: bool
) -> tuple[Network | Header, Engine | None]:
    """What describes a network, and the engine that runs it; without one it is a Network, for numpy.

    The library reads the tensors of a packed file itself, so only the header is read here.
    """
    native = native and kernels.available()
    if native and not isinstance(found, Network) and found.kind == "packed" and found.path is not None:
        header = read_header(found.path)
        if header.config.weight_bits != FLOAT_WEIGHTS:
            return header, Engine.of_file(found.path, header.config, threads, low_memory)
    network = found if isinstance(found, Network) else found.network()
    return network, Engine(network, threads, low_memory) if native and network.exact else None


def _is_readable(image: object) -> TypeGuard[Readable]:
    """Whether this is one image that Pillow reads, and not an array or a collection of images."""
    return isinstance(image, (str, Path, bytes, bytearray, memoryview, Image.Image)) or hasattr(image, "read")


def _pixels(image: Any) -> npt.NDArray[Any]:
    return read_image(image) if _is_readable(image) else np.asarray(image)
