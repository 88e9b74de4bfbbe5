"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

from lapis.train.distributed import avoid_broken_amx
from tests.skipped import summary_lines

# Before any test lets torch compute.
avoid_broken_amx()

# The data of whoever runs the tests is not theirs.
os.environ.pop("LAPIS_DATA", None)

# No test judges wall time, on however slow a machine.
settings.register_profile("lapis", deadline=None, max_examples=40)
settings.load_profile("lapis")

# Where the real data and weights lie beside a checkout; LAPIS_SHARED names another place.
SHARED = Path(os.environ.get("LAPIS_SHARED", Path(__file__).resolve().parents[2] / "shared" / "data"))

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


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
    """timm, imported as the package does it, also beside a torchvision that does not fit torch."""
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    from lapis.nn import import_timm

    if find_spec("timm") is None:
        pytest.skip("timm is not installed: pip install timm")
    return import_timm()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}; Debian has it: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def open_file(chromium: Any) -> Iterator[Callable[..., Any]]:
    """open_file(path, **context) -> a loaded page; a complaint of the browser or a request to a host fails the test."""
    contexts, complaints = [], []

    def on_request(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            complaints.append(request.url)

    def open_it(path: Path, **options: Any) -> Any:
        context = chromium.new_context(**{"viewport": {"width": 1200, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", on_request)
        page.goto(path.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
