"""The models that travel with the package: they know their images, and every executor gives the same answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lapis import Session, assets, models
from lapis.cli import main
from lapis.data.packaged import CIFAR10_CLASSES, packaged_images
from lapis.deploy import integer
from lapis.deploy.simulate import simulate
from lapis.errors import EXIT_OK

# Right answers, and those right among five, of 1,000 images spread over the test set: `lapis evaluate NAME --data DIR
# --limit 1000`. The hash of docs/same-bits.md is of all 10,000.
RECORDED = {
    "lapis_tiny.cifar10": (931, 1000),
    "lapis_tiny.cifar10_dense": (931, 1000),
    "lapis_tiny.cifar10_sparse": (913, 996),
}
# The same of 500 validation images of ImageNet, one for every second class.
RECORDED_IMAGENET = {"lapis_tiny.imagenet": (327, 440), "lapis_tiny.imagenet_half": (308, 440)}


@pytest.fixture(scope="module", params=RECORDED)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def session(name: str) -> Session:
    return Session(name)


def test_every_packaged_model_is_described() -> None:
    assert assets.names() == sorted(assets.MODELS)
    assert {*RECORDED, *RECORDED_IMAGENET} == set(assets.MODELS)


def test_it_is_deployed_as_the_paper_deploys(session: Session) -> None:
    assert session.config == session.config.deployed()
    assert (session.config.weight_bits, session.config.affinity_bits, session.config.window) == (6, 5, 15)
    assert session.class_names == CIFAR10_CLASSES


def test_it_knows_the_packaged_images(session: Session) -> None:
    sample = packaged_images()
    images, labels = sample.pixels, sample.labels
    right = (session.run(list(images)).argmax(axis=1) == labels).mean()
    assert right > 0.8


def test_engine_spikes_and_integers_agree_on_every_code(session: Session, name: str) -> None:
    network = models.load(name).network
    pixels = session.read(list(packaged_images().pixels[:3]))
    expected = integer.watch(network, pixels)
    by_engine = session.watch(pixels)
    by_spikes = simulate(network, pixels[:1])
    assert (by_engine.logits == network.real_logits(expected.logits)).all()
    assert (by_spikes.logits == expected.logits[:1]).all()
    for key in expected.trace:
        assert (by_engine.trace[key] == expected.trace[key]).all(), key
        assert (by_spikes.trace[key] == expected.trace[key][:1]).all(), key


@pytest.fixture(scope="module")
def cifar10(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the official file of test images."""
    grid = np.asarray(Image.open(shared_data / "cifar10" / "test_batch.webp").convert("RGB"))
    pixels = grid.reshape(100, 32, 100, 32, 3).transpose(0, 2, 4, 1, 3).reshape(10_000, 3072)
    digits = (shared_data / "cifar10" / "test_batch.labels").read_bytes().strip()
    labels = np.frombuffer(digits, np.uint8)[:, None] - ord("0")
    folder = tmp_path_factory.mktemp("cifar10")
    (folder / "cifar-10-batches-bin").mkdir()
    rows = np.concatenate([labels, pixels], axis=1).astype(np.uint8)
    (folder / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(rows.tobytes())
    return folder


def test_its_accuracy_on_the_test_set_is_the_recorded_one(
    cifar10: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _counts(name, cifar10, capsys, "--limit", "1000") == (*RECORDED[name], 1000)


@pytest.mark.parametrize("name", RECORDED_IMAGENET)
def test_its_accuracy_on_validation_images_is_the_recorded_one(
    shared_data: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = _counts(name, shared_data / "imagenet-val-1000", capsys, "--limit", "500")
    assert counts == (*RECORDED_IMAGENET[name], 500)


def _counts(name: str, data: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, int, int]:
    assert main(["evaluate", name, "--data", str(data), "--threads", "2", "--json", *words]) == EXIT_OK
    record = json.loads(capsys.readouterr().out)
    return record["correct"], record["correct5"], record["images"]
