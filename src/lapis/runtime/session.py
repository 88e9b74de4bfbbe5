"""Run a packed model without torch: `Session("model.safetensors").run(images)`."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from lapis import models
from lapis import native as kernels
from lapis.deploy import integer
from lapis.deploy.arithmetic import Float32, Int64, real_logits
from lapis.deploy.network import Network, named_arrays
from lapis.errors import LapisError
from lapis.pack import PackedFile
from lapis.preprocess import Pixels, Readable, read_image
from lapis.runtime.engine import Engine, check_threads
from lapis.trace import Watched

ImageLike = Readable | Pixels
ImagesLike = ImageLike | Sequence[ImageLike]

NUMPY = "numpy"
_IMAGE = "an array (height, width, 3) of bytes, a path, the bytes of a file, an open file or an image of Pillow's"


@dataclass(frozen=True)
class Prediction(Mapping[str, Any]):
    """One class of an answer; `score` is its share of the softmax of the logits. It reads as a dict, too."""

    label: str
    score: float
    index: int
    logit: float

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def __len__(self) -> int:
        return len(vars(self))


class Session:
    """A deployed network on this machine: images of any size in, logits or class names out.

    An image is an array of bytes (height, width, 3), grey (height, width) or with alpha (height, width, 4), a path, the
    bytes of a file (also as BytesIO or an open file, read from where it stands), or an image of Pillow's.

    `model` is what `lapis.load` takes (a packed file, a packaged name, hf:ORG/NAME, a run), or what it gives, or a
    Network; torch is loaded only to convert a training checkpoint. `threads` work on one batch together. With
    native=False, or where the native library is missing, numpy gives the same answers, more slowly. With
    low_memory=True the native engine keeps 6-bit weights in 6 bits and one form of each layer: the same answers, a
    little later. A session may be called from several threads (calls take turns) and in processes forked at any moment,
    even while it predicts; it pickles and copies by opening its model again. Any number of sessions may exist at once.
    `with` closes it, as `close` does: its memory is freed and it cannot run afterwards.
    """

    def __init__(
        self,
        model: str | Path | models.Model | Network,
        threads: int = 1,
        native: bool = True,
        low_memory: bool = False,
    ) -> None:
        self.threads = check_threads(threads)
        if not isinstance(model, (models.Model, Network)):
            model = models.load(model)
        found: Network | PackedFile = model if isinstance(model, Network) else model.packed or model.network
        self._engine = Engine(found, self.threads, low_memory) if native and kernels.available() else None
        # Weights are kept only once: in the engine's layout, or as they were read.
        self._network = None
        if self._engine is None:
            self._network = found if isinstance(found, Network) else found.network()
        self.executor = NUMPY if self._engine is None else kernels.isa()
        self.config = found.config
        self.preprocess = found.preprocess
        self.class_names = found.class_names
        self._head_exponent = found.head_exponent
        self._closed = False
        self._name = "a network" if isinstance(model, Network) else model.source
        # By which a copy is made: the network that was given, or the source, whose content must be the same then.
        self._source = model if isinstance(model, Network) else model.source
        self._checksum = 0 if isinstance(found, Network) else zlib.crc32(found.data)
        self._settings = (threads, native, low_memory)

    def run(self, images: ImagesLike) -> Float32:
        """Logits (B, classes)."""
        return self.real_logits(self.run_integers(images))

    def run_integers(self, images: ImagesLike) -> Int64:
        """Integer logits (B, classes), which are the same for every executor."""
        pixels = self.read(images)
        return integer.run(self._numpy(), pixels) if self._engine is None else self._engine.run(pixels)

    def watch(self, images: ImagesLike) -> Watched:
        """Logits, and the codes at every measuring point."""
        logits, trace = self.watch_integers(images)
        return Watched(self.real_logits(logits), trace)

    def watch_integers(self, images: ImagesLike) -> Watched:
        """As `watch`, with integer logits."""
        pixels = self.read(images)
        return integer.watch(self._numpy(), pixels) if self._engine is None else self._engine.watch(pixels)

    def predict(self, images: ImagesLike, top_k: int = 5) -> list[Any]:
        """The likeliest classes of an image, best first, or of every image of a list or of an array (B, ...).

        Equal logits come in the order of the classes.
        """
        answers = self.predict_each(images, top_k)
        return answers[0] if is_one(images) else answers

    def predict_each(self, images: ImagesLike, top_k: int = 5) -> list[list[Prediction]]:
        """As `predict`, always with one answer per image."""
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
            raise LapisError(f"top_k={top_k!r} is not a number of classes; use an integer of at least 1")
        return [self._ranked(row, top_k) for row in self.run(images)]

    def read(self, images: ImagesLike) -> Pixels:
        """Images of any kind, one or many, as the (B, size, size, 3) bytes that the network takes."""
        size = self.config.image_size
        whole = isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.shape[1:] == (size, size, 3)
        if whole and len(images) and self.preprocess.crop == 1.0:  # type: ignore[arg-type]
            return images  # type: ignore[return-value]
        if is_one(images):
            return self.preprocess.resize(_pixels(images))[None]
        if isinstance(images, (Mapping, set)) or not hasattr(images, "__iter__"):
            raise LapisError(f"{type(images).__name__} is no image; give {_IMAGE}, or a list of these")
        items = list(images)
        if not items:
            raise LapisError("no image was given; give at least one array (height, width, 3) of bytes, or a file")
        return np.stack([self.preprocess.resize(_pixels(item)) for item in items])

    def name_of(self, index: int) -> str:
        """The name of a class, or its number where the file has no names."""
        if not 0 <= index < self.config.classes:
            raise LapisError(f"class {index} does not exist; classes are 0 to {self.config.classes - 1}")
        return self.class_names[index] if self.class_names else str(index)

    def memory(self) -> dict[str, int]:
        """Bytes of the stored weights and of working memory, which is 0 for numpy."""
        if self._engine is not None:
            weights, working = self._engine.memory()
            return {"weights": weights, "working": working}
        return {"weights": sum(array.nbytes for _, array, _ in named_arrays(self._numpy())), "working": 0}

    def close(self) -> None:
        """Free the memory when the call in flight has ended; the session cannot run afterwards."""
        if self._engine is not None:
            self._engine.close()
        self._network, self._closed = None, True

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.executor}, threads={self.threads}"
        size, classes = self.config.image_size, self.config.classes
        return f"Session({self._name!r}: {size} x {size} pixels, {classes} classes; {state})"

    def __reduce__(self) -> Any:
        return _reopened, (self._source, self._settings, self._checksum)

    def real_logits(self, logits: Int64) -> Float32:
        """Integer logits as the real numbers that they stand for."""
        return real_logits(logits, self._head_exponent)

    def _numpy(self) -> Network:
        if self._network is None:
            raise LapisError("this session was closed; make a new one")
        return self._network

    def _ranked(self, logits: Float32, top_k: int) -> list[Prediction]:
        order = np.argsort(-logits, kind="stable")[:top_k]
        share = np.exp(logits.astype(np.float64) - float(logits.max()))
        share /= share.sum()
        return [Prediction(self.name_of(int(i)), float(share[i]), int(i), float(logits[i])) for i in order]


def _reopened(source: str | Network, settings: tuple[int, bool, bool], checksum: int) -> Session:
    """A session of the same model, where one was pickled or copied."""
    session = Session(source, *settings)
    if session._checksum != checksum:
        raise LapisError(f"{source} has changed since this session was opened; open it anew")
    return session


def is_one(images: object) -> bool:
    """Whether this is one image, and not a collection of them."""
    if isinstance(images, np.ndarray):
        return images.ndim < 4
    return isinstance(images, (str, Path, bytes, bytearray, memoryview, Image.Image)) or hasattr(images, "read")


def _pixels(image: Any) -> npt.NDArray[Any]:
    if isinstance(image, np.ndarray):
        return image
    if not is_one(image):
        raise LapisError(f"{type(image).__name__} is no image; give {_IMAGE}")
    return read_image(image)
