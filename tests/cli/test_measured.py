"""A packed network is evaluated, sharded, merged and priced from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapis.cli import main
from lapis.data.cifar_sample import CIFAR10_CLASSES, load_sample
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.pack import save
from lapis.runtime import Session
from tests.networks import wide_network

COUNT = 40


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
    images, labels = load_sample()
    records = np.concatenate([labels[:, None].astype(np.uint8), images.transpose(0, 3, 1, 2).reshape(400, -1)], axis=1)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_CLASSES))
    return folder.parent


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == EXIT_OK
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def test_shards_of_a_packed_network_merge_to_the_whole(
    packed: Path, cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("evaluate", str(packed), "--data", str(cifar), "--limit", str(COUNT))
    whole = _json(capsys, *words)
    parts = []
    for shard in range(3):
        parts.append(tmp_path / f"{shard}.json")
        parts[-1].write_text(json.dumps(_json(capsys, *words, "--shard", f"{shard}/3")))
    merged = _json(capsys, "evaluate", "--merge", *map(str, parts))
    kept = (
        "model",
        "state",
        "executor",
        "top1",
        "top5",
        "images",
        "activity",
        "config",
        "classes_matched",
    )
    assert {name: merged[name] for name in kept} == {name: whole[name] for name in kept}
    assert merged["energy"] == whole["energy"]
    assert merged["energy"]["energy_mj"] > 0
    assert whole["images"] == merged["tally"]["images"] == COUNT
    assert main(["evaluate", "--merge", *map(str, parts)]) == EXIT_OK
    merged_text = capsys.readouterr().out
    assert main(list(words)) == EXIT_OK
    assert capsys.readouterr().out == merged_text
    assert main(["evaluate", "--merge", str(parts[0])]) == EXIT_BAD_INPUT
    assert "missing: [1, 2]" in capsys.readouterr().err


def test_the_accuracy_is_that_of_the_sessions_answers(
    packed: Path, cifar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = _json(capsys, "evaluate", str(packed), "--data", str(cifar))
    images, labels = load_sample()
    right = Session(packed).run(list(images)).argmax(axis=1) == labels
    assert record["top1"] == 100 * right.mean()


def test_energy_is_estimated_from_the_activities_of_a_packed_network(
    packed: Path, cifar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated = _json(capsys, "evaluate", str(packed), "--data", str(cifar), "--limit", "64")
    priced = _json(capsys, "energy", str(packed), "--data", str(cifar))
    assert priced["convention"] == "paper"
    assert priced["energy_mj"] == pytest.approx(evaluated["energy"]["energy_mj"], rel=0.05)


@pytest.mark.parametrize("shard", ["3/3", "one", "0/0", "-1/2"])
def test_a_shard_that_does_not_exist_is_refused(
    shard: str, packed: Path, cifar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(packed), "--data", str(cifar), f"--shard={shard}"]) == EXIT_BAD_INPUT
    assert "shard" in capsys.readouterr().err


def test_shards_of_different_networks_do_not_merge(
    packed: Path, cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.safetensors"
    save(other, wide_network(depth=1, classes=10))
    parts = []
    for shard, model in enumerate((packed, other)):
        words = ("evaluate", str(model), "--data", str(cifar), "--limit", "4", "--shard", f"{shard}/2")
        parts.append(tmp_path / f"{shard}.json")
        parts[-1].write_text(json.dumps(_json(capsys, *words)))
    assert main(["evaluate", "--merge", *map(str, parts)]) == EXIT_BAD_INPUT
    assert "different networks" in capsys.readouterr().err


def test_what_is_no_result_does_not_merge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, text in enumerate(("{", "[]", "{}", json.dumps({"tally": {}}))):
        (tmp_path / f"{number}.json").write_text(text)
        assert main(["evaluate", "--merge", str(tmp_path / f"{number}.json")]) == EXIT_BAD_INPUT
        assert capsys.readouterr().err.startswith("lapis: error: ")
