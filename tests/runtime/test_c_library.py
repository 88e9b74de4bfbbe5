"""The C library by itself: csrc/lapis.h opens packed files, resizes pictures and answers as Session does."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import random_network
from lapis import assets, native
from lapis.config import CodingByPoint, LapisConfig
from lapis.data.packaged import packaged_images
from lapis.deploy import integer
from lapis.errors import LapisError
from lapis.pack import load, pack
from lapis.preprocess import Preprocess
from lapis.runtime import Session, engine
from lapis.runtime.engine import RefusedFileError
from tests.networks import small_config
from tests.pack.damage import CONFIG, DAMAGES, Damage
from tests.runtime.c_network import CNetwork
from tools.format_vector import ROOT, VECTOR, answer, pixels

pytestmark = pytest.mark.skipif(not native.available(), reason="the native library is not built")

FILES: list[dict[str, Any]] = json.loads(VECTOR.read_text())
REAL_IMAGES = 32


@pytest.fixture(scope="module")
def sound() -> dict[LapisConfig, bytes]:
    return {config: pack(random_network(config)) for config in {damage.config for damage in DAMAGES}}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: f"rule {damage.rule}: {damage.word}")
def test_a_file_that_breaks_a_rule_is_refused_for_that_rule(sound: dict[LapisConfig, bytes], damage: Damage) -> None:
    with pytest.raises(RefusedFileError) as caught, CNetwork(damage.change(sound[damage.config])):
        pass
    assert (caught.value.status, caught.value.rule) == (engine.BAD_FILE, damage.rule)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file["file"])
def test_it_answers_the_test_vector(file: dict[str, Any]) -> None:
    network = load(ROOT / file["file"])
    with CNetwork(ROOT / file["file"]) as c:
        for image in file["images"]:
            assert hashlib.sha256(c.prepare(pixels(image)).tobytes()).hexdigest() == image["resized_sha256"]
            assert answer(network, image, *c.watch(pixels(image))) == image


@pytest.mark.parametrize("name", assets.names())
def test_it_answers_real_images_as_session_does(name: str) -> None:
    images = packaged_images().pixels[:REAL_IMAGES]
    path = assets.find(name)
    assert path is not None
    session = Session(load(path))
    with CNetwork(path, threads=2) as c:
        logits = c.run(images)
        assert c.class_names == session.class_names
        wanted = session.predict(list(images), top_k=5)
        for row, best in zip(logits, wanted, strict=True):
            assert c.best(row, 5) == [one.index for one in best]
            assert [np.float32(c.real(int(row[one.index]))) for one in best] == [np.float32(one.logit) for one in best]
        assert (c.run(images[:1]) == logits[:1]).all()


@given(
    height=st.integers(1, 150),
    width=st.integers(1, 150),
    size=st.integers(1, 24),
    interpolation=st.sampled_from(["nearest", "bilinear", "bicubic", "lanczos"]),
    crop=st.floats(0.1, 1.0),
    seed=st.integers(0, 1 << 16),
)
@settings(max_examples=40, deadline=None)
def test_it_resizes_pictures_as_python_does(
    height: int, width: int, size: int, interpolation: Any, crop: float, seed: int
) -> None:
    config = small_config(image_size=size, patch_size=size, width=2, heads=1, depth=1, mlp_ratio=1)
    preprocess = Preprocess(size, interpolation=interpolation, crop=crop)
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    with CNetwork(_packed(config, preprocess)) as c:
        assert (c.prepare(image) == preprocess.resize(image)).all()


def _packed(config: LapisConfig, preprocess: Preprocess) -> bytes:
    return pack(dataclasses.replace(random_network(config), preprocess=preprocess))


def test_a_batch_of_pictures_of_any_size_is_answered_one_by_one() -> None:
    images = np.random.default_rng(3).integers(0, 256, (19, 13, 9, 3), dtype=np.uint8)
    with CNetwork(pack(random_network(CONFIG)), threads=2, flags=engine.LOW_MEMORY) as c:
        assert (c.run(images) == np.concatenate([c.run(image[None]) for image in images])).all()


def test_a_picture_that_is_too_narrow_is_refused_by_both() -> None:
    narrow = np.zeros((1, 200_000, 3), np.uint8)
    with pytest.raises(LapisError, match="too narrow"):
        Preprocess(128).resize(narrow)
    config = small_config(image_size=128, patch_size=16, depth=1)
    with CNetwork(pack(random_network(config))) as c, pytest.raises(RefusedFileError, match="too narrow"):
        c.prepare(narrow)


def test_what_is_no_file_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(RefusedFileError) as caught, CNetwork(path):
            pass
        assert caught.value.status == engine.CANNOT_READ


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "model.safetensors"
    os.mkfifo(pipe)
    for path, reason in ((pipe, "it is not a regular file"), (Path(os.devnull), "fewer than 8 bytes")):
        # In a process of its own, which may be ended if it waits.
        script = (
            f"from tests.runtime.c_network import CNetwork; from pathlib import Path; CNetwork(Path({str(path)!r}))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
        )
        assert reason in done.stderr


def test_valid_files_that_the_engine_does_not_run_are_told_apart() -> None:
    many = small_config(image_size=128, window=63, coding=CodingByPoint(v="signed"))
    with pytest.raises(RefusedFileError) as caught, CNetwork(pack(random_network(many))):
        pass
    assert caught.value.status == engine.UNSUPPORTED


@pytest.mark.parametrize(("threads", "flags"), [(0, 0), (257, 0), (1, 2)])
def test_arguments_out_of_range_are_refused(threads: int, flags: int) -> None:
    with pytest.raises(RefusedFileError, match=r"threads=\d+ must be 1 to 256"), CNetwork(b"", threads, flags):
        pass


def test_names_in_any_script_reach_the_program() -> None:
    names = ("cat", "Käse", "\U0001f600\u732b")
    data = pack(dataclasses.replace(random_network(small_config(classes=3)), class_names=names))
    with CNetwork(data) as c:
        assert c.class_names == names


def test_classes_that_round_to_the_same_real_logit_keep_their_order() -> None:
    with CNetwork(pack(random_network(small_config(classes=3)))) as c:
        large = 1 << 40
        assert c.real(large) == c.real(large + 1)
        assert c.best(np.array([large, large + 1, large], np.int64), 3) == [0, 1, 2]
        assert c.best(np.array([1, 1 << 41, -5], np.int64), 2) == [1, 0]


def test_a_session_of_a_file_equals_one_of_its_network(tmp_path: Path) -> None:
    path = tmp_path / "f.safetensors"
    path.write_bytes(pack(random_network(CONFIG)))
    images = np.random.default_rng(1).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    of_file, of_network = Session(path), Session(load(path))
    assert of_file.executor == of_network.executor != "numpy"
    assert (of_file.run(images) == of_network.run(images)).all()
    assert of_file.memory() == of_network.memory()


def test_a_model_that_is_replaced_while_it_is_opened_is_one_of_the_two(tmp_path: Path) -> None:
    path, image = tmp_path / "f.safetensors", np.zeros((1, 8, 8, 3), np.uint8)
    networks = [
        dataclasses.replace(random_network(CONFIG, seed), class_names=tuple(f"{seed} {one}" for one in "abc"))
        for seed in (1, 2)
    ]
    answers = {network.class_names: integer.run(network, image).tolist() for network in networks}
    files, done = [pack(network) for network in networks], threading.Event()
    path.write_bytes(files[0])

    def replace() -> None:
        for turn in itertools.count():
            (tmp_path / "next").write_bytes(files[turn % 2])
            os.replace(tmp_path / "next", path)
            if done.is_set():
                return

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        seen = set()
        for _ in range(200):
            with Session(path) as session:
                assert session.run_integers(image).tolist() == answers[session.class_names]
                seen.add(session.class_names)
    finally:
        done.set()
        writer.join()
    assert len(seen) == 2
