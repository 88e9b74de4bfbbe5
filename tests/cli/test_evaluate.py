"""`lapis evaluate`, on real images and on every kind of model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from lapis import Session
from lapis.cli import main
from lapis.convert.fold import from_model
from lapis.data.class_folders import load_folder
from lapis.data.images import spread
from lapis.data.loader import TestBatches
from lapis.data.packaged import CIFAR10_CLASSES, packaged_images
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.nn import load_backbone, save_network
from lapis.nn.pixels import normalise
from lapis.pack import save
from lapis.preprocess import Preprocess
from tests.networks import small_config, small_model

SmallModel = Callable[..., tuple[Any, npt.NDArray[np.uint8]]]
DEPLOYED = small_config(image_size=16, patch_size=8, classes=10, width=16, depth=1)  # fmt: skip
# timm's model gets this on the 1,000 images, measured with a 224 centre crop.
DEIT_TINY_TOP1 = 70.8
REAL_IMAGES = 60


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty images of the packaged sample as class folders."""
    folder = tmp_path_factory.mktemp("images")
    sample = packaged_images()
    images, labels = sample.pixels, sample.labels
    for index in range(30):
        (folder / str(labels[index])).mkdir(exist_ok=True)
        Image.fromarray(images[index]).save(folder / str(labels[index]) / f"{index}.png")
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["evaluate", *words, "--json"]) == EXIT_OK
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def test_a_checkpoint_and_its_packed_form_give_the_same_answers(
    tmp_path: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, _ = small_model(DEPLOYED)
    preprocess = Preprocess(16)
    save_network(tmp_path / "trained.safetensors", model, {"preprocess": preprocess.to_dict(), "state": "trained"})
    save(tmp_path / "packed.safetensors", from_model(model, preprocess=preprocess))
    trained = run(capsys, str(tmp_path / "trained.safetensors"), "--data", str(tree))
    packed = run(capsys, str(tmp_path / "packed.safetensors"), "--data", str(tree))
    assert trained["images"] == packed["images"] == 30
    # Float sums may flip a code here and there, and with it at most an image or two.
    assert abs(trained["top1"] - packed["top1"]) <= 100 * 2 / 30
    assert trained["activity"]["mlp_hidden"] == pytest.approx(packed["activity"]["mlp_hidden"], abs=0.01)
    assert trained["energy"]["energy_mj"] == pytest.approx(packed["energy"]["energy_mj"], rel=0.02)
    assert (trained["state"], packed["state"]) == ("trained", "packed")


def test_a_packed_network_has_the_same_scores_in_torch(
    tmp_path: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "packed.safetensors"
    save(file, from_model(small_model(DEPLOYED)[0], preprocess=Preprocess(16, crop=0.8)))
    engine, torch_cpu = (run(capsys, str(file), "--data", str(tree), *words) for words in ([], ["--device", "cpu"]))
    assert torch_cpu["executor"] == "torch, cpu"
    assert engine["executor"] != torch_cpu["executor"]
    for fact in ("top1", "top5", "images", "activity", "energy", "config"):
        assert engine[fact] == torch_cpu[fact], fact


def test_classes_are_matched_by_name_whatever_their_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, _ = small_model(DEPLOYED)
    names = ("zebra", *CIFAR10_CLASSES[1:])  # sorts last among folders, and is the first class of the network
    save(tmp_path / "packed.safetensors", from_model(model, class_names=names))
    sample = packaged_images()
    images, labels = sample.pixels, sample.labels
    for index in range(60):
        (tmp_path / "images" / names[labels[index]]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[index]).save(tmp_path / "images" / names[labels[index]] / f"{index}.png")
    record = run(capsys, str(tmp_path / "packed.safetensors"), "--data", str(tmp_path / "images"))
    answers = Session(tmp_path / "packed.safetensors").run(list(images[:60])).argmax(axis=1)
    assert record["correct"] == int((answers == labels[:60]).sum())
    assert record["classes_matched"] == "by name"
    (tmp_path / "images" / "cat").rename(tmp_path / "images" / "kitten")
    words = ["evaluate", str(tmp_path / "packed.safetensors"), "--data", str(tmp_path / "images")]
    assert main(words) == EXIT_BAD_INPUT
    assert "the network has no class 'kitten'" in capsys.readouterr().err


def test_a_packed_network_is_evaluated_without_torch(tmp_path: Path, tree: Path) -> None:
    model, _ = small_model(DEPLOYED)
    save(tmp_path / "packed.safetensors", from_model(model))
    words = ["evaluate", str(tmp_path / "packed.safetensors"), "--data", str(tree), "--json"]
    code = f"import sys; sys.modules['torch'] = None; from lapis.cli import main; sys.exit(main({words!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_OK, done.stderr
    assert json.loads(done.stdout)["images"] == 30


def test_foreign_weights_are_evaluated_as_the_dense_network_they_are(
    tree: Path, deit_weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # DeiT-Ti knows 1000 classes; these folders are named by numbers below that.
    record = run(capsys, str(deit_weights), "--data", str(tree), "--size", "32", "--limit", "6")
    assert (record["state"], record["config"]["image_size"], record["images"]) == ("dense", 32, 6)


def test_two_networks_are_compared_image_by_image(
    tmp_path: Path, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    save_network(one, small_model(DEPLOYED)[0], {"preprocess": Preprocess(16).to_dict()})
    network = from_model(small_model(DEPLOYED.replace(heads=1))[0], preprocess=Preprocess(16))
    save(other, network)
    words = [str(one), "--data", str(tree), "--compare", str(other)]
    record = run(capsys, *words)
    compared, alone = record["compare"], run(capsys, str(other), "--data", str(tree))
    assert compared["other"] == alone
    assert compared["difference"] == pytest.approx(record["top1"] - alone["top1"])
    assert compared["only_first"] - compared["only_second"] == round((record["top1"] - alone["top1"]) * 30 / 100)
    assert alone["interval95"][0] < alone["top1"] < alone["interval95"][1]
    itself = run(capsys, str(other), "--data", str(tree), "--compare", str(other))["compare"]
    assert (itself["only_first"], itself["only_second"], itself["p"]) == (0, 0, 1.0)
    assert main(["evaluate", *words]) == EXIT_OK
    assert "McNemar's exact p = " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{model}", "--compare", "{few}"], "f.safetensors: the images have 10 classes, the network 3"),
        (["{model}", "--compare", "absent.safetensors"], "no such file"),
        (["absent.safetensors"], "no such file"),
        (["{model}", "--size", "32"], "is a training checkpoint"),
        (["{model}", "--crop", "7"], "crop=7"),
        (["{model}", "--normalise", "mean"], "use imagenet, half, cifar"),
        (["{model}", "--data", "{empty}"], "no test images"),
        (["{model}", "--device", "gpu"], "use auto, cpu or cuda"),
        (["{model}", "--device", "cuda"], "use --device cpu"),
        (["{few}"], "the images have 10 classes, the network 3"),
    ],
)
def test_bad_input_is_one_clear_line(
    words: list[str], message: str, tmp_path: Path, tree: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    places = {"model": tmp_path / "m.safetensors", "few": tmp_path / "f.safetensors", "empty": tmp_path / "empty"}
    places["empty"].mkdir()
    save_network(places["model"], small_model(DEPLOYED)[0])
    save_network(places["few"], small_model(DEPLOYED.replace(classes=3))[0])
    filled = [word.format(**places) for word in words]
    data = [] if "--data" in filled else ["--data", str(tree)]
    assert main(["evaluate", *filled, *data]) == EXIT_BAD_INPUT
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_an_unreadable_image_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = packaged_images().pixels
    for index in range(4):
        (tmp_path / "data" / str(index)).mkdir(parents=True)
        Image.fromarray(images[index]).save(tmp_path / "data" / str(index) / "a.png")
    (tmp_path / "data" / "2" / "a.png").write_bytes(b"broken")
    model, _ = small_model(DEPLOYED)
    save_network(tmp_path / "trained.safetensors", model)
    save(tmp_path / "packed.safetensors", from_model(model))
    for name in ("trained", "packed"):
        record = run(capsys, str(tmp_path / f"{name}.safetensors"), "--data", str(tmp_path / "data"))
        assert record["images"] == 3
        assert record["state"] == ("packed" if name == "packed" else "of unknown training")
        assert "2/a.png" in record["unreadable"][0]


def test_deit_agrees_with_timm_image_by_image(
    shared_data: Path, deit_weights: Path, timm: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shared_data / "imagenet-val-1000"
    images = spread(load_folder(folder), REAL_IMAGES)
    theirs = timm.create_model("deit_tiny_patch16_224").eval()
    theirs.load_state_dict(load_safetensors(deit_weights))
    ours, preprocess = load_backbone(deit_weights), Preprocess(224, crop=0.875)
    right = 0
    with torch.no_grad():
        for batch in TestBatches(images, preprocess, batch=20):
            pixels = normalise(batch.pixels, preprocess)
            answer = theirs(pixels).argmax(1)
            assert torch.equal(ours(pixels).argmax(1), answer)
            right += int((answer == batch.labels).sum())
    record = run(capsys, str(deit_weights), "--data", str(folder), "--limit", str(REAL_IMAGES))
    assert record["images"] == REAL_IMAGES
    assert record["top1"] == pytest.approx(100 * right / REAL_IMAGES)
    # A sample of 60 from a set with 70.8 %: three standard deviations are 18 points.
    assert abs(record["top1"] - DEIT_TINY_TOP1) < 18
    assert record["state"] == "dense"


def load_safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path)
