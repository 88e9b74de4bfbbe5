"""Open any network: `open(source)` finds out what a source is and gives the network in the form that is needed.

| source | kind |
|---|---|
| the name of a packaged model, or a packed file | packed |
| a file that training wrote, or a run's folder | checkpoint |
| `hf:ORG/NAME`, a repository of the Hugging Face hub | what its file is: packed, or a checkpoint |
| weights in timm's names (safetensors, .pth), or the name of a timm model | foreign |

Torch is loaded only where a form needs it: a packed file runs without it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lapis import assets, hub, pack
from lapis._util import run_layout as runs
from lapis._util.hints import install_command
from lapis._util.locks import cached
from lapis.config import LapisConfig, nearest
from lapis.deploy.network import DEFAULT_FRACTION_BITS, Network, check_class_names, check_trained_slice
from lapis.energy import load_tally
from lapis.errors import LapisError
from lapis.pack.format import METADATA_KEY
from lapis.pack.reader import read_metadata
from lapis.preprocess import Preprocess
from lapis.trace import Point

if TYPE_CHECKING:
    from lapis.nn import LapisViT

__all__ = ["KINDS", "Opened", "open"]

Kind = Literal["packed", "checkpoint", "foreign"]
KINDS: dict[Kind, str] = {
    "packed": "a packed network",
    "checkpoint": "a training checkpoint",
    "foreign": "foreign weights: a dense network that never learned to spike",
}
# What commands use where no model is named.
DEFAULT_MODEL = "lapis_tiny_cifar10"
WEIGHT_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")


@dataclass(frozen=True)
class Opened:
    """A source and its kind. The network is read when it is first needed.

    `path` is the file, None for a timm name. `metadata` is what a checkpoint records about its training.
    """

    source: str
    kind: Kind
    path: Path | None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> LapisConfig:
        """The configuration; for foreign weights it follows from their shapes."""
        if self.kind == "packed":
            return self._packed.config
        if self.kind == "checkpoint":
            return LapisConfig.from_dict(self.metadata["config"])
        return self.model().config

    @property
    def preprocess(self) -> Preprocess:
        """How images are prepared for the network; ImageNet's rule where the file has none."""
        if self.kind == "packed":
            return self._packed.preprocess
        known = self.metadata.get("preprocess")
        return Preprocess(self.config.image_size) if known is None else Preprocess.from_dict(known)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, or nothing where the file has none."""
        if self.kind == "packed":
            return self._packed.class_names
        names = self.metadata.get("class_names", [])
        if not isinstance(names, list):
            raise LapisError(f"{self.source}: class_names must be a list of words")
        check_class_names(names)
        return tuple(names) if len(names) == self.config.classes else ()

    @property
    def trained_slice(self) -> tuple[int, ...]:
        """The numbers of the packaged test images that it was trained on."""
        if self.kind == "packed":
            return self._packed.trained_slice
        numbers = self.metadata.get(runs.TRAINED_SLICE, [])
        if not isinstance(numbers, list):
            raise LapisError(f"{self.source}: {runs.TRAINED_SLICE} must be a list of numbers")
        check_trained_slice(numbers)
        return tuple(numbers)

    def network(self, fraction_bits: int = DEFAULT_FRACTION_BITS) -> Network:
        """The deployed form: a packed file as it is, a checkpoint converted."""
        if self.kind == "packed":
            return self._packed
        if self.kind == "foreign":
            raise LapisError(self._not_deployable())
        model = self.model()
        from lapis.convert import from_model

        network = from_model(model, self.preprocess, self.class_names, fraction_bits, self.trained_slice)
        return dataclasses.replace(network, activity=self._recorded_activity())

    def model(self) -> LapisViT:
        """The network in torch, to train or to evaluate; that of a packed file is rebuilt from its integers."""
        require_torch(f"{self.source} is {KINDS[self.kind]}, and this use of it")
        from lapis.convert import to_model
        from lapis.nn import load_backbone, load_network

        if self.kind == "packed":
            return to_model(self._packed)
        if self.kind == "checkpoint":
            assert self.path is not None
            return load_network(self.path)
        return load_backbone(self.path or self.source)

    def _recorded_activity(self) -> dict[Point, tuple[float, ...]]:
        """What the run beside a checkpoint counted for this configuration; empty where it counted nothing."""
        assert self.path is not None
        file = self.path.parent / runs.ACTIVITY_FILE
        if not file.is_file():
            return {}
        tally, config = load_tally(file)
        if config != self.config or tally.blocks() != self.config.depth:
            return {}
        return {
            point: tuple(tally.activity(point, block) for block in range(self.config.depth))
            for point in tally.activities()
        }

    @cached
    def _packed(self) -> Network:
        assert self.path is not None
        return pack.load(self.path)

    def _not_deployable(self) -> str:
        if self.path is not None:
            return f"{self.source} is {KINDS[self.kind]}; train it first: lapis train RECIPE --start {self.source}"
        known = assets.names()
        return (
            f"{self.source} is neither a file, a run's folder nor a packaged model; "
            f"{nearest(self.source, known)}packaged models: {', '.join(known) or 'none in this build'}"
        )


def open(source: str | Path) -> Opened:
    """Open what `source` names: a file, a run's folder, a packaged model, a name of the hub, or one that timm may know.

    A file or folder with that name comes before a packaged model, so that the package cannot hide it.
    """
    name, path = str(source), find(source)
    if path is None:
        return Opened(name, "foreign", None)
    entries = read_metadata(path) if path.suffix == ".safetensors" else {}
    if METADATA_KEY in entries:
        return Opened(name, "packed", path)
    if runs.CHECKPOINT_KEY in entries:
        return Opened(name, "checkpoint", path, runs.checkpoint_metadata(path, entries[runs.CHECKPOINT_KEY]))
    return Opened(name, "foreign", path)


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
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise LapisError(f"{what} needs torch: {install_command('train')} ({error})") from error
