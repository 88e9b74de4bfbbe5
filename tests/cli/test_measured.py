"""A packed network is evaluated and priced from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapis.cli import main
from lapis.data.packaged import CIFAR10_CLASSES, packaged_images
from lapis.errors import EXIT_OK
from lapis.pack import save
from lapis.runtime import Session
from tests.networks import wide_network


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "net.safetensors"
    save(path, wide_network(depth=2, classes=10))
    return path


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packaged sample in CIFAR's own binary layout."""
    folder = tmp_path_factory.mktemp("data") / "cifar-10-batches-bin"
    folder.mkdir()
    sample = packaged_images()
    images, labels = sample.pixels, sample.labels
    records = np.concatenate([labels[:, None].astype(np.uint8), images.transpose(0, 3, 1, 2).reshape(400, -1)], axis=1)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_CLASSES))
    return folder.parent


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == EXIT_OK
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def test_the_accuracy_is_that_of_the_sessions_answers(
    packed: Path, cifar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = _json(capsys, "evaluate", str(packed), "--data", str(cifar))
    sample = packaged_images()
    images, labels = sample.pixels, sample.labels
    right = Session(packed).run(list(images)).argmax(axis=1) == labels
    assert record["top1"] == 100 * right.mean()


def test_energy_is_estimated_from_the_activities_of_a_packed_network(
    packed: Path, cifar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated = _json(capsys, "evaluate", str(packed), "--data", str(cifar), "--limit", "64")
    priced = _json(capsys, "energy", str(packed), "--data", str(cifar))
    assert priced["convention"] == "paper"
    assert priced["energy_mj"] == pytest.approx(evaluated["energy"]["energy_mj"], rel=0.05)
