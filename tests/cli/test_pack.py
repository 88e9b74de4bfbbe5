"""`lapis pack`, and `lapis info` of what it wrote, as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.synthetic import random_network
from lapis.cli import main
from lapis.deploy import integer
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.nn import save_network
from lapis.pack import load, save
from lapis.preprocess import Preprocess
from tests.networks import images_for, small_config, small_model

CONFIG = small_config(width=8)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "trained.safetensors"
    preprocess = Preprocess(CONFIG.image_size, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), crop=0.875)
    save_network(path, small_model(CONFIG)[0], {"preprocess": preprocess.to_dict(), "class_names": ["a", "b", "c"]})
    return path


def test_a_checkpoint_is_packed_with_its_names_and_preprocessing(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "packed.safetensors"
    assert main(["pack", str(checkpoint), "-o", str(target), "--json"]) == EXIT_OK
    record = json.loads(capsys.readouterr().out)
    assert record["bytes"] == target.stat().st_size
    network = load(target)
    assert network.class_names == ("a", "b", "c")
    assert (network.preprocess.mean, network.preprocess.crop, network.fraction_bits) == ((0.5, 0.5, 0.5), 0.875, 16)


def test_without_a_target_the_file_lies_beside_the_checkpoint(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", str(checkpoint)]) == EXIT_OK
    assert checkpoint.with_suffix(".packed.safetensors").is_file()
    assert "bytes" in capsys.readouterr().out


def test_a_packed_file_is_packed_again_with_narrower_affinities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide, narrow, again = (tmp_path / f"{name}.safetensors" for name in ("wide", "narrow", "again"))
    save(wide, random_network(CONFIG))
    assert main(["pack", str(wide), "--affinity-bits", "2", "-o", str(narrow), "--json"]) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["affinity_bits"] == 2
    images = images_for(load(wide), 2)
    network = load(narrow)
    assert network.config == CONFIG.replace(affinity_bits=2)
    assert max(int(tables.table.max()) for tables in network.tables) < 1 << 2
    assert (integer.run(network, images) != integer.run(load(wide), images)).any()
    assert main(["info", str(narrow)]) == EXIT_OK
    assert "2-bit affinities" in capsys.readouterr().out
    # The width is all that was changed, so the usual one gives the first file again.
    assert main(["pack", str(narrow), "--affinity-bits", "15", "-o", str(again)]) == EXIT_OK
    assert again.read_bytes() == wide.read_bytes()


def test_a_checkpoint_is_packed_with_the_width_that_is_asked_for(checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "packed.safetensors"
    assert main(["pack", str(checkpoint), "-o", str(target), "--affinity-bits", "4"]) == EXIT_OK
    assert load(target).config == CONFIG.replace(affinity_bits=4)


def test_info_shows_what_is_inside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "n.safetensors"
    save(packed, random_network(CONFIG))
    assert main(["info", str(packed), "--tensors", "--json"]) == EXIT_OK
    record = json.loads(capsys.readouterr().out)
    assert record["repacks_to_the_same_bytes"] is True
    assert sum(tensor["bytes"] for tensor in record["tensors"].values()) < record["bytes"]
    assert main(["info", str(packed)]) == EXIT_OK
    assert "the same bytes" in capsys.readouterr().out


def test_what_cannot_be_packed_says_why(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "n.safetensors"
    save(packed, random_network(CONFIG))
    for arguments, word in (
        (["pack", str(packed)], "packed already"),
        (["pack", str(packed), "--affinity-bits", "8"], "--out"),
        (["pack", str(packed), "-o", str(packed), "--affinity-bits", "8"], "is an input"),
        (["pack"], "Missing argument"),
        (["pack", str(tmp_path / "missing.safetensors")], "no such file or run"),
        (["info", str(checkpoint), "--tensors"], "lapis pack"),
    ):
        assert main(arguments) == EXIT_BAD_INPUT
        assert word in capsys.readouterr().err
