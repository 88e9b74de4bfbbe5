"""Lapis networks as timm models: import this module, then call `timm.create_model("lapis_small_patch16_224")`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from timm.models import register_model

from lapis.config import PRESETS
from lapis.nn.model import LapisViT
from lapis.nn.pretrained import load_backbone

# Arguments that timm passes by default and that Lapis does not use.
IGNORED = ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")


def _entry(name: str, preset_name: str) -> Callable[..., LapisViT]:
    def create(pretrained: bool = False, checkpoint: str | None = None, **options: Any) -> LapisViT:
        for ignored in IGNORED:
            options.pop(ignored, None)
        changes = {_OPTION_NAMES.get(key, key): value for key, value in options.items() if value is not None}
        drop_path_rate = changes.pop("drop_path_rate", 0.0)
        headless = changes.get("classes") == 0 and changes.pop("classes") == 0
        config = PRESETS[preset_name].replace(**changes)
        if pretrained and checkpoint is None:
            raise ValueError(f"{name} has no weights online; pass checkpoint=FILE with a backbone's weights")
        model = LapisViT(config) if checkpoint is None else load_backbone(checkpoint, config)
        model.set_drop_path_rate(drop_path_rate)
        if headless:
            model.reset_classifier(0)
        return model

    create.__name__ = create.__qualname__ = name
    create.__module__ = __name__
    create.__doc__ = f"The `{preset_name}` preset as a timm model."
    return create


_OPTION_NAMES = {"num_classes": "classes", "img_size": "image_size", "in_chans": "image_channels"}

for _preset in PRESETS:
    _name = f"{_preset}_patch16_224"
    setattr(sys.modules[__name__], _name, register_model(_entry(_name, _preset)))
