"""Time the engine in a browser beside the native one, on one thread: python research/browser_speed.py [MODEL].

Every round runs each executor for a moment, one after the other, so that a busy machine slows all of them alike. The
figure of an executor is the least processor time per image of all rounds: time in which other programs held the core is
not counted. The first column of ratios is against native AVX2. Needs playwright and Chromium.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lapis import Session, models, native
from lapis._util.machine import processor
from lapis._util.terminal import echo
from lapis.data.packaged import CIFAR10_CLASSES
from lapis.report.page.live import LIVE_SCRIPTS, MODULES, live_payload, packaged_samples
from lapis.report.page.page import fill, write_html

CHROMIUM = "/usr/bin/chromium"
BASE = "avx2"
# Browsers tell the processor's time in steps of 10 ms.
ROUNDS, IMAGES = 5, 40
# Runs after which a browser has compiled the module for speed.
WARM = 30
RUN = "(count) => { for (let n = 0; n < count; n++) Lapis.live.engine.run(Lapis.run.data.pixels); }"

# Runs that many images; the processor's seconds that it took are returned.
Runner = Callable[[int], float]


def native_runner(isa: str, model: str) -> Runner:
    """The native engine with one instruction set."""
    with native.force(isa):
        session = Session(model)
    pixels = session.read(packaged_samples(CIFAR10_CLASSES)[0].image)

    def run(count: int) -> float:
        begun = time.process_time()
        for _ in range(count):
            session.run(pixels)
        return time.process_time() - begun

    return run


def browser_runner(browser: Any, page: Path) -> Runner:
    """The engine of a live page, in a tab of its own, which stops its other work first."""
    tab = browser.new_context().new_page()
    tab.goto(page.as_uri())
    tab.evaluate("Lapis.ready")
    tab.evaluate("Lapis.live.weighed")
    clock = tab.context.new_cdp_session(tab)
    clock.send("Performance.enable")

    def seconds() -> float:
        metrics = clock.send("Performance.getMetrics")["metrics"]
        return next(float(metric["value"]) for metric in metrics if metric["name"] == "ProcessTime")

    def run(count: int) -> float:
        begun = seconds()
        tab.evaluate(RUN, count)
        return seconds() - begun

    return run


def live_page(folder: Path, model: str, module: str) -> Path:
    """A live page with one module only."""
    opened = models.load(model)
    if opened.path is None:
        raise SystemExit(f"{model} is not a file; give a packed file or a packaged name")
    data = live_payload(opened.network, opened.path.read_bytes(), model, packaged_samples(CIFAR10_CLASSES))
    data["engines"] = [each for each in data["engines"] if each["name"] == MODULES[module]]
    path = folder / f"{module}.html"
    write_html(path, fill("explain", model, data, LIVE_SCRIPTS, live=True))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", nargs="?", default="lapis_tiny.cifar10_dense")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--headless=new", "--no-sandbox"])
        stack.callback(browser.close)
        runners = {f"native {isa}": native_runner(isa, arguments.model) for isa in (BASE, "scalar")}
        for module in MODULES:
            page = live_page(folder, arguments.model, module)
            runners[f"Chromium, {MODULES[module]}"] = browser_runner(browser, page)
        best = measure(runners, arguments.rounds)
        echo(f"{arguments.model}, {processor()}, Chromium {browser.version}: processor time per image, one thread")
        base = best[f"native {BASE}"]
        for name, seconds in best.items():
            echo(f"{name:<36} {1e3 * seconds:8.2f} ms {seconds / base:7.2f} x native {BASE}")


def measure(runners: dict[str, Runner], rounds: int) -> dict[str, float]:
    """The least seconds per image of each runner, the rounds interleaved."""
    for run in runners.values():
        run(WARM)
    best = dict.fromkeys(runners, float("inf"))
    for _ in range(rounds):
        for name, run in runners.items():
            best[name] = min(best[name], run(IMAGES) / IMAGES)
    return best


if __name__ == "__main__":
    main()
