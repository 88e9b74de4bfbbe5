"""Fixtures that more than one part of the suite needs."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

# No test judges wall time, on however slow a machine.
settings.register_profile("lapis", deadline=None)
settings.load_profile("lapis")

# Operators vanish with the library object that declared them.
_KEPT_ALIVE: list[Any] = []


@pytest.fixture(scope="session")
def timm() -> ModuleType:
    """timm, imported beside a CPU torch.

    torchvision on the registry is a CUDA build, whose import fails on two operators that it cannot load. Declaring
    them is enough: nothing here calls them.
    """
    torch = pytest.importorskip("torch")
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT_ALIVE.append(library)
    try:
        module = importlib.import_module("timm")
    except ImportError as error:
        pytest.skip(f"timm is not installed: {error}")
    return module
