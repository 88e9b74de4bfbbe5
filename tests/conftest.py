"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings

from lapis.config import LapisConfig
from lapis.train.processor import spare_matrix_unit
from tests.skipped import summary_lines

# Before any test lets torch compute.
spare_matrix_unit()

SmallModel = Callable[..., tuple[Any, npt.NDArray[np.uint8]]]

# No test judges wall time, on however slow a machine.
settings.register_profile("lapis", deadline=None)
settings.load_profile("lapis")

# Where the real data and weights lie beside a checkout; LAPIS_SHARED names another place.
SHARED = Path(os.environ.get("LAPIS_SHARED", Path(__file__).resolve().parents[2] / "shared" / "data"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per reason of skipped tests, with how to run them."""
    # A skip's longrepr is (file, line, reason).
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    for line in summary_lines(reasons):
        terminalreporter.write_line(line, yellow=True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with CIFAR-10, DeiT-Ti and ImageNet images; tests that need it skip where it is not."""
    if not SHARED.is_dir():
        pytest.skip(f"no data at {SHARED}; set LAPIS_SHARED to run this test")
    return SHARED


@pytest.fixture(scope="session")
def deit_weights(shared_data: Path) -> Path:
    return shared_data / "deit_tiny_patch16_224" / "model.safetensors"


@pytest.fixture(scope="session")
def timm() -> ModuleType:
    """timm, imported beside a CPU torch: its torchvision is built for CUDA and misses two operators."""
    import torch

    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return pytest.importorskip("timm", reason="timm is not installed: pip install 'lapis-snn[timm]'")


@pytest.fixture(scope="session")
def small_model() -> SmallModel:
    """A factory of calibrated networks with random weights: small_model(config, seed) -> (model, images)."""
    return build_small_model


def build_small_model(config: LapisConfig, seed: int = 0) -> tuple[Any, npt.NDArray[np.uint8]]:
    """Weights large enough that activations leave the quantizers' middle, and smooth images of their size."""
    import torch

    from lapis.nn import LapisViT, calibrate
    from lapis.preprocess import Preprocess

    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    preprocess = Preprocess(config.image_size)
    images = np.stack([preprocess.resize(image) for image in coarse])
    torch.manual_seed(seed)
    model = LapisViT(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("log_step", "log_tau")):
                continue
            spread = 1.0 if "norm" in name or "gamma" in name or "position" in name else 0.3
            parameter.add_(torch.randn_like(parameter) * spread * (0.3 if "norm" in name else 1.0))
    calibrate(model, [torch.from_numpy(preprocess.normalise(images)).permute(0, 3, 1, 2)])
    return model, images
