"""Lapis networks as timm models: import this module, then call `timm.create_model("lapis_small_patch16_224")`.

`timm.create_model("hf-hub:ORG/NAME", pretrained=True)` and `local-dir:FOLDER` load what `save_pretrained` and
`lapis publish` wrote; `lapis_vit` is the model that their configuration names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from timm.models import load_pretrained, register_model

from lapis.config import PRESETS, LapisConfig
from lapis.nn.model import ARCHITECTURE, TIMM_NAMES, LapisViT
from lapis.nn.pretrained import load_backbone
from lapis.preprocess import Preprocess

# Arguments that timm passes by default and that Lapis does not use.
IGNORED = ("pretrained_cfg_overlay", "pretrained_model_args", "cache_dir")
# Where timm found the configuration of a network of ours, and with it the weights.
PUBLISHED = ("hf-hub", "local-dir")


def _entry(name: str, start: LapisConfig) -> Callable[..., LapisViT]:
    def create(pretrained: bool = False, checkpoint: str | None = None, **options: Any) -> LapisViT:
        for ignored in IGNORED:
            options.pop(ignored, None)
        published = options.pop("pretrained_cfg", None)
        published = published if isinstance(published, dict) and published.get("source") in PUBLISHED else None
        changes = {_OPTION_NAMES.get(key, key): value for key, value in options.items() if value is not None}
        if published is not None:
            changes.setdefault("classes", published["num_classes"])
        drop_path_rate = changes.pop("drop_path_rate", 0.0)
        headless = changes.get("classes") == 0 and changes.pop("classes") == 0
        config = start.replace(**changes)
        if pretrained and checkpoint is None and published is None:
            raise ValueError(f"{name} has no weights online; pass checkpoint=FILE with a backbone's weights")
        model = LapisViT(config) if checkpoint is None else load_backbone(checkpoint, config)
        model.set_drop_path_rate(drop_path_rate)
        if published is not None:
            model.about = _about(published, config)
        if pretrained and published is not None and checkpoint is None:
            load_pretrained(model, published, config.classes, config.image_channels)
        if headless:
            model.reset_classifier(0)
        return model

    create.__name__ = create.__qualname__ = name
    create.__module__ = __name__
    create.__doc__ = f"The timm model {name}."
    return create


def _about(published: dict[str, Any], config: LapisConfig) -> dict[str, Any]:
    """Preprocessing and class names from timm's table, in the form in which checkpoints record them."""
    names = published.get("label_names") or []
    about: dict[str, Any] = {"class_names": names} if len(names) == config.classes else {}
    if "mean" in published:  # networks of other channels than three have none
        rule = {field: published[theirs] for field, theirs in _RULE_NAMES.items() if theirs in published}
        about["preprocess"] = Preprocess.from_dict({"size": config.image_size, **rule}).to_dict()
    return about


_RULE_NAMES = {"mean": "mean", "std": "std", "interpolation": "interpolation", "crop": "crop_pct"}


_OPTION_NAMES = {theirs: ours for ours, theirs in TIMM_NAMES.items()}

for _preset in PRESETS:
    _name = f"{_preset}_patch16_224"
    setattr(sys.modules[__name__], _name, register_model(_entry(_name, PRESETS[_preset])))
setattr(sys.modules[__name__], ARCHITECTURE, register_model(_entry(ARCHITECTURE, LapisConfig())))
