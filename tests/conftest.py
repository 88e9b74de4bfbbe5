"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from lapis.train.processor import spare_matrix_unit
from tests.skipped import summary_lines

# Before any test lets torch compute.
spare_matrix_unit()

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
    module: ModuleType = pytest.importorskip("timm", reason="timm is not installed: pip install 'lapis-snn[timm]'")
    return module
