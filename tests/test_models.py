"""One door: every source opens as what it is, in the form that is asked, or says why not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lapis import Session, assets, models
from lapis.convert import from_model
from lapis.deploy import integer
from lapis.errors import LapisError
from lapis.nn import LapisViT, save_network
from lapis.pack import save
from lapis.preprocess import Preprocess
from tests.networks import small_config, small_model

NAMES = ("a", "b", "c")


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A run's folder with one network."""
    model, _ = small_model(small_config(), 1)
    extra = {"class_names": list(NAMES), "preprocess": Preprocess(8, crop=0.5).to_dict(), "state": "trained"}
    save_network(tmp_path / "run" / "last.safetensors", model, extra)
    return tmp_path / "run"


@pytest.fixture
def packed(trained: Path, tmp_path: Path) -> Path:
    save(tmp_path / "packed.safetensors", models.load(trained).network)
    return tmp_path / "packed.safetensors"


def test_every_kind_says_what_it_is(trained: Path, packed: Path, tmp_path: Path) -> None:
    for source, kind in ((trained, "checkpoint"), (trained / "last.safetensors", "checkpoint"), (packed, "packed")):
        opened = models.load(source)
        assert opened.kind == kind
        assert opened.config == small_config()
        assert opened.preprocess == Preprocess(8, crop=0.5)
        assert opened.class_names == NAMES
    torch.save(LapisViT(small_config().dense()).state_dict(), tmp_path / "weights.pth")
    foreign = models.load(tmp_path / "weights.pth")
    assert foreign.kind == "foreign"
    assert not foreign.config.quantize
    assert models.load("deit_tiny_patch16_224").kind == "foreign"


def test_a_run_and_its_packed_file_answer_alike(trained: Path, packed: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 11, 9, 3), dtype=np.uint8)
    assert (Session(trained).run(list(images)) == Session(packed).run(list(images))).all()


def test_a_run_folder_stands_for_its_best_network(trained: Path) -> None:
    model = models.load(trained).torch()
    save_network(trained / "best.safetensors", model, {"note": "best"})
    assert models.load(trained).metadata["note"] == "best"
    with pytest.raises(LapisError, match=r"holds no best\.safetensors or last\.safetensors or model\.safetensors"):
        models.load(trained.parent)


def test_foreign_weights_have_no_deployed_form_and_say_what_to_do(tmp_path: Path) -> None:
    torch.save(LapisViT(small_config().dense()).state_dict(), tmp_path / "weights.pth")
    with pytest.raises(LapisError, match=r"foreign weights.*lapis train RECIPE --start"):
        _ = models.load(tmp_path / "weights.pth").network


def test_a_missing_file_and_an_unknown_name_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(LapisError, match="no such file or run"):
        models.load(tmp_path / "absent.safetensors")
    with pytest.raises(LapisError, match=r"did you mean 'lapis_tiny\.cifar10'"):
        Session("lapis_tiny_cifar")


def test_what_lies_on_disk_wins_over_a_packaged_name(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assets, "_folder", lambda: tmp_path)
    assert models.find("packed") == packed
    monkeypatch.chdir(tmp_path)
    Path("packed").write_bytes(b"something else")
    assert models.find("packed") == Path("packed")


def test_damaged_metadata_is_one_clear_error(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    for text, word in (("{", "not JSON"), ("[]", "no configuration"), ('{"config": 3}', "no configuration")):
        save_file({"x": torch.zeros(1)}, tmp_path / "bad.safetensors", metadata={"lapis": text})
        with pytest.raises(LapisError, match=word):
            models.load(tmp_path / "bad.safetensors")


def test_a_packed_file_opens_as_a_network_to_train(packed: Path) -> None:
    model = models.load(packed).torch()
    network, again = models.load(packed).network, from_model(model, Preprocess(8, crop=0.5), NAMES)
    images = np.random.default_rng(2).integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)
    ours, theirs = integer.watch(network, images), integer.watch(again, images)
    for key in ours.trace:
        assert (ours.trace[key] == theirs.trace[key]).mean() > 0.99
