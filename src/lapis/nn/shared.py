"""Networks that are shared: the three methods by which torch models are commonly saved, loaded and published.

A folder holds `model.safetensors`, a checkpoint as training writes it, and `config.json`, which timm reads.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch import nn
from typing_extensions import Self

from lapis import hub
from lapis._util.files import new_folder, write_text
from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.nn.checkpoint import read_network, save_network
from lapis.preprocess import Preprocess

if TYPE_CHECKING:
    from lapis.nn.model import LapisViT

# The timm model that takes every field of a configuration; see `lapis.nn.timm_models`.
ARCHITECTURE = "lapis_vit"
# What timm calls some fields of a configuration.
TIMM_NAMES = {"classes": "num_classes", "image_size": "img_size", "image_channels": "in_chans"}


class Shared(nn.Module):
    """A network that is saved to a folder, loaded from a folder or the hub, and published there.

    `about` is what its file records beside the configuration, such as preprocessing and class names.
    """

    config: LapisConfig
    about: dict[str, Any]

    @classmethod
    def from_pretrained(cls, source: str | Path) -> Self:
        """The network that `save_pretrained` wrote to a folder, or that `ORG/NAME` holds on the hub; to evaluate."""
        folder = Path(source)
        if folder.is_dir():
            path = folder / hub.CHECKPOINT_FILE
            if not path.is_file():
                raise LapisError(f"{folder} holds no {hub.CHECKPOINT_FILE}; name a folder that save_pretrained wrote")
        else:
            path = _fetch_checkpoint(str(source))
        model, about = read_network(path, cls)
        model.about = about
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the network to a folder, with the configuration that timm's loaders read."""
        folder, model = Path(folder), cast("LapisViT", self)
        with new_folder(folder):
            save_network(folder / hub.CHECKPOINT_FILE, model, self.about)
            write_text(folder / hub.CONFIG_FILE, json.dumps(timm_config(model), indent=1) + "\n")

    def push_to_hub(
        self,
        repository: str,
        private: bool | None = None,
        token: str | None = None,
        message: str = "Upload a Lapis network",
    ) -> str:
        """Upload what `save_pretrained` writes to `ORG/NAME` on the hub, and return the repository's address."""
        hub.require(repository)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return hub.upload(Path(folder), repository, private, token, message)

    @property
    def preprocess(self) -> Preprocess:
        """How images are prepared: as its file says, else by ImageNet's rule."""
        known = self.about.get("preprocess")
        rule = Preprocess(self.config.image_size) if known is None else Preprocess.from_dict(known)
        # A network that was built at another size keeps the rest of the rule.
        return dataclasses.replace(rule, size=self.config.image_size)


def timm_config(model: LapisViT) -> dict[str, Any]:
    """What timm needs to build the network and to prepare images for it."""
    arguments = {TIMM_NAMES.get(name, name): value for name, value in model.config.to_dict().items()}
    named = {"label_names": model.about["class_names"]} if model.about.get("class_names") else {}
    return {
        "architecture": ARCHITECTURE,
        "num_classes": model.num_classes,
        "num_features": model.num_features,
        "model_args": arguments,
        "pretrained_cfg": {**model.default_cfg, **named},
    }


def _fetch_checkpoint(source: str) -> Path:
    name = hub.parse(source)
    revision = "" if name.revision is None else f"@{name.revision}"
    return hub.fetch(f"{hub.PREFIX}{name.repository}/{name.file or hub.CHECKPOINT_FILE}{revision}")
