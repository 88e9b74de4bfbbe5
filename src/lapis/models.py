"""Open any network: `lapis.load(source)` finds out what a source is and gives the network in the form that is needed.

| source | kind |
|---|---|
| a name of `lapis.list_models()`, or a packed file | packed |
| a file that training wrote, or a run's folder | checkpoint |
| `hf:ORG/NAME`, a repository of the Hugging Face hub | what its file is: packed, or a checkpoint |
| weights in the names of timm or transformers (safetensors, .pth), or the name of a timm model | foreign |

Torch is loaded only where a form needs it: a packed file runs without it. A packed file is read once, as bytes, and all
its forms come from these.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lapis import assets, hub
from lapis._util import run_layout as runs
from lapis._util.files import read_json
from lapis._util.hints import import_optional
from lapis._util.locks import cached
from lapis.config import LapisConfig, nearest
from lapis.deploy.network import Network, check_class_names
from lapis.errors import LapisError
from lapis.pack.reader import PackedFile, read_metadata
from lapis.preprocess import Interpolation, Preprocess, image_format
from lapis.trace import Point

if TYPE_CHECKING:
    from lapis.nn import LapisViT
    from lapis.runtime import Session

__all__ = ["KINDS", "Model", "list_models", "load"]

Kind = Literal["packed", "checkpoint", "foreign"]
KINDS: dict[Kind, str] = {
    "packed": "a packed network",
    "checkpoint": "a training checkpoint",
    "foreign": "foreign weights: a dense network that never learned to spike",
}
# What commands use where no model is named, and what `lapis finetune` starts from.
DEFAULT_MODEL = "lapis_tiny.imagenet"
WEIGHT_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
# Pillow's numbers, by which transformers names a filter.
INTERPOLATIONS: dict[object, Interpolation] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
# Bytes of a file that tell its kind.
FIRST_BYTES = 64


@dataclass(frozen=True)
class Model:
    """A network that `lapis.load` found. Its forms are made when they are first asked for.

    `path` is the file, None for a timm name; `packed` the file's bytes where it is a packed network; `metadata` what a
    checkpoint records about its training.
    """

    source: str
    kind: Kind
    path: Path | None
    metadata: dict[str, Any] = field(default_factory=dict)
    packed: PackedFile | None = field(default=None, repr=False)

    def predict(self, image: Any, top_k: int = 5) -> list[Any]:
        """The likeliest classes of an image, or of every image of a list: `Session.predict` with its usual settings."""
        return self._session.predict(image, top_k)

    def session(self, threads: int = 1, native: bool = True, low_memory: bool = False) -> Session:
        """The network on this machine; see `lapis.Session`."""
        from lapis.runtime import Session

        return Session(self, threads, native, low_memory)

    @cached
    def network(self) -> Network:
        """The deployed form: a packed file as it is, a checkpoint converted."""
        if self.packed is not None:
            return self.packed.network()
        if self.path is None:
            known = assets.names()
            raise LapisError(
                f"{self.source} is neither a file, a run's folder nor a packaged model; "
                f"{nearest(self.source, known)}packaged models: {', '.join(known) or 'none in this build'}"
            )
        if self.kind == "foreign":
            raise LapisError(
                f"{self.source} is {KINDS[self.kind]}; train it first: lapis train RECIPE --start {self.source}"
            )
        model = self.torch()
        from lapis.convert import from_model

        network = from_model(model, self.preprocess, self.class_names)
        return dataclasses.replace(network, activity=self._recorded_activity())

    def torch(self) -> LapisViT:
        """The network in torch, to train or to evaluate; that of a packed file is rebuilt from its integers."""
        require_torch(f"{self.source} is {KINDS[self.kind]}, and this use of it")
        from lapis.convert import to_model
        from lapis.nn import load_backbone, load_network

        if self.packed is not None:
            return to_model(self.network)
        if self.kind == "checkpoint":
            assert self.path is not None
            return load_network(self.path)
        return load_backbone(self.path or self.source)

    @property
    def config(self) -> LapisConfig:
        """The configuration; for foreign weights it follows from their shapes."""
        if self.packed is not None:
            return self.packed.config
        if self.kind == "checkpoint":
            return LapisConfig.from_dict(self.metadata["config"])
        return self.torch().config

    @property
    def preprocess(self) -> Preprocess:
        """How images are prepared for the network; ImageNet's rule where the file has none."""
        if self.packed is not None:
            return self.packed.preprocess
        known = self.metadata.get("preprocess")
        return Preprocess(self.config.image_size) if known is None else Preprocess.from_dict(known)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, or nothing where the file has none."""
        if self.packed is not None:
            return self.packed.class_names
        names = self.metadata.get("class_names", [])
        if not isinstance(names, list):
            raise LapisError(f"{self.source}: class_names must be a list of words")
        check_class_names(names)
        return tuple(names) if len(names) == self.config.classes else ()

    @cached
    def _session(self) -> Session:
        return self.session()

    def _recorded_activity(self) -> dict[Point, tuple[float, ...]]:
        """What the run beside a checkpoint counted for this configuration; empty where it counted nothing."""
        assert self.path is not None
        file = self.path.parent / runs.ACTIVITY_FILE
        if not file.is_file():
            return {}
        from lapis.energy import load_tally

        tally, config = load_tally(file)
        if config != self.config or len({block for block, _ in tally.fired}) != self.config.depth:
            return {}
        return {
            point: tuple(tally.activity(point, block) for block in range(self.config.depth))
            for point in tally.activities()
        }


def load(source: str | Path) -> Model:
    """Open what `source` names: a file, a run's folder, a packaged model, a name of the hub, or one that timm may know.

    A file or folder with that name comes before a packaged model, so that the package cannot hide it.
    """
    if not isinstance(source, (str, Path)):
        raise LapisError(f"a model is a name or a path, not {type(source).__name__}; see lapis.list_models()")
    name, path = str(source), find(source)
    if path is None:
        return Model(name, "foreign", None)
    metadata, packed = read_metadata(path)
    if packed is not None:
        return Model(name, "packed", path, packed=packed)
    if runs.CHECKPOINT_KEY in metadata:
        return Model(name, "checkpoint", path, runs.checkpoint_metadata(path, metadata[runs.CHECKPOINT_KEY]))
    with path.open("rb") as file:
        picture = image_format(file.read(FIRST_BYTES))
    if picture:
        raise LapisError(f"{path} is a {picture} image, not a network; the model comes first, then the images")
    return Model(name, "foreign", path, _transformers_metadata(path))


def _transformers_metadata(path: Path) -> dict[str, Any]:
    """Class names and preprocessing of a folder of Hugging Face transformers, as checkpoints record them."""
    names = runs.transformers_config(path).get("id2label", {})
    found: dict[str, Any] = {"class_names": [str(names[key]) for key in sorted(names, key=int)]} if names else {}
    file = path.parent / "preprocessor_config.json"
    rule = read_json(file) if names and file.is_file() else {}
    if isinstance(rule.get("size"), dict) and {"image_mean", "image_std"} <= rule.keys():
        # {"height": 224, "width": 224}, or {"shortest_edge": 256}
        short, kept = (next(iter(rule.get(name, rule["size"]).values())) for name in ("size", "crop_size"))
        interpolation = INTERPOLATIONS.get(rule.get("resample"), "bilinear")
        crop = kept / short if rule.get("do_center_crop") else 1.0
        found["preprocess"] = Preprocess(kept, rule["image_mean"], rule["image_std"], interpolation, crop).to_dict()
    return found


def list_models() -> dict[str, str]:
    """The models that come with Lapis, by name, and what each is."""
    return {
        name: assets.MODELS[name].what if name in assets.MODELS else "a network of models/" for name in assets.names()
    }


def find(source: str | Path) -> Path | None:
    """The file that `source` names; None for a bare name that timm may know."""
    path = Path(source)
    if path.is_dir():
        for name in runs.NETWORK_FILES:
            if (path / name).is_file():
                return path / name
        raise LapisError(
            f"{path} holds no {' or '.join(runs.NETWORK_FILES)}; name a file, or a folder that a run wrote"
        )
    if path.is_file():
        return path
    if hub.is_name(source):
        return hub.fetch(str(source))
    packaged = assets.find(str(source))
    if packaged is None and (path.suffix in WEIGHT_SUFFIXES or len(path.parts) > 1):
        raise LapisError(
            f"no such file or run: {path}; {nearest(str(source), assets.names())}"
            f"packaged models: {', '.join(assets.names())}"
        )
    return packaged


def require_torch(what: str) -> None:
    """Raise an error that says how to install torch, where it is missing."""
    import_optional("torch", "train", what)
