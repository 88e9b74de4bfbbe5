"""Laplacian attention in Hugging Face transformers, and weights with its names in Lapis: the real package."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import lapis
from lapis.cli import main
from lapis.errors import LapisError
from lapis.nn import LapisAttention, load_backbone
from lapis.nn.pretrained import import_beside_torchvision
from tests.distilled import shorten, write_photos
from tests.networks import small_config, small_model

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
import_beside_torchvision("transformers.modeling_utils")
import transformers  # noqa: E402

from lapis.bridges.transformers import calibrate  # noqa: E402

SIZE, PATCH, WIDTH, HEADS, DEPTH, CLASSES = 32, 8, 32, 4, 2, 5
# Sums are taken in another order than in transformers.
TOLERANCE = 1e-4
SIZES: dict[str, Any] = {
    "image_size": SIZE, "patch_size": PATCH, "hidden_size": WIDTH, "num_hidden_layers": DEPTH,
    "num_attention_heads": HEADS, "num_labels": CLASSES, "layer_norm_eps": 1e-6,
}  # fmt: skip
BEIT = {"use_relative_position_bias": True, "layer_scale_init_value": 0.1, "use_mask_token": False}
FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "vit": (transformers.ViTConfig, transformers.ViTForImageClassification, {"intermediate_size": 4 * WIDTH}),
    "deit": (transformers.DeiTConfig, transformers.DeiTForImageClassification, {"intermediate_size": 4 * WIDTH}),
    "beit": (
        transformers.BeitConfig,
        transformers.BeitForImageClassification,
        {"intermediate_size": 4 * WIDTH, **BEIT},
    ),
    "dinov2": (transformers.Dinov2Config, transformers.Dinov2ForImageClassification, {"mlp_ratio": 4}),
}
# Not trained there: its logits are the mean of two classifiers.
WITH_TEACHER = (
    transformers.DeiTConfig,
    transformers.DeiTForImageClassificationWithTeacher,
    {"intermediate_size": 4 * WIDTH},
)


@pytest.fixture
def images() -> Tensor:
    return torch.randn(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(7))


def make(family: str, implementation: str = "eager", **changes: Any) -> Any:
    """A network with random weights large enough that attention is not flat."""
    config, model, fields = FAMILIES.get(family, WITH_TEACHER)
    torch.manual_seed(3)
    made = model._from_config(config(**SIZES | fields | changes), attn_implementation=implementation).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if not parameter.isnan().any():
                parameter.add_(0.2 * torch.randn(parameter.shape))
    return made


def attentions(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "relation")]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_and_keeps_tau_in_its_folder(family: str, images: Tensor, tmp_path: Path) -> None:
    dense = make(family)
    dense.save_pretrained(tmp_path / "dense")
    model = type(dense).from_pretrained(tmp_path / "dense", attn_implementation="lapis")
    assert len(attentions(model)) == DEPTH
    with pytest.raises(LapisError, match="tau is not known yet"):
        model(images)
    calibrate(model, {"pixel_values": images})
    before = [layer.relation.log_tau.detach().clone() for layer in attentions(model)]
    assert all(tau.shape == (HEADS,) and tau.isfinite().all() for tau in before)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(images, labels=torch.tensor([0, 1, 2])).loss.backward()
    optimizer.step()
    after = [layer.relation.log_tau for layer in attentions(model)]
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    model.eval().save_pretrained(tmp_path / "lapis")
    again = type(dense).from_pretrained(tmp_path / "lapis", attn_implementation="lapis").eval()
    for old, new in zip(after, attentions(again), strict=True):
        assert torch.equal(old, new.relation.log_tau)
    assert torch.equal(model(images).logits, again(images).logits)


def test_values_and_gradients_are_those_of_lapis_attention() -> None:
    theirs = make("vit", "lapis").vit.layers[0].attention
    ours = LapisAttention(WIDTH, HEADS, quantize=False)
    x = torch.randn(2, 17, WIDTH, generator=torch.Generator().manual_seed(1))
    lapis.nn.calibrate(ours, x)
    with torch.no_grad():
        theirs.relation.log_tau.copy_(ours.relation.log_tau)
        ours.qkv.weight.copy_(torch.cat([theirs.q_proj.weight, theirs.k_proj.weight, theirs.v_proj.weight]))
        ours.qkv.bias.copy_(torch.cat([theirs.q_proj.bias, theirs.k_proj.bias, theirs.v_proj.bias]))
        ours.proj.load_state_dict(theirs.o_proj.state_dict())
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    made = [ours(inputs[0]), theirs(inputs[1])[0]]
    torch.testing.assert_close(*made)
    for output in made:
        output.square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    torch.testing.assert_close(ours.relation.log_tau.grad, theirs.relation.log_tau.grad)
    assert ours.qkv.weight.grad is not None
    torch.testing.assert_close(ours.qkv.weight.grad[:WIDTH], theirs.q_proj.weight.grad)


def test_a_masked_patch_changes_nothing(images: Tensor) -> None:
    model = make("vit")
    calibrate(model, images)
    mask = torch.ones(3, 17, dtype=torch.long)
    mask[:, -1] = 0
    other = images.clone()
    other[:, :, -PATCH:, -PATCH:] = 3.0
    assert torch.equal(model(images, attention_mask=mask).logits, model(other, attention_mask=mask).logits)
    assert not torch.equal(model(images).logits, model(other).logits)


def test_beit_has_its_position_bias(images: Tensor) -> None:
    model = make("beit")
    calibrate(model, images)
    before = model(images).logits
    with torch.no_grad():
        model.beit.layers[0].relative_position_bias.relative_position_bias_table.mul_(-3.0)
    assert not torch.allclose(before, model(images).logits)


def test_another_model_is_refused(images: Tensor) -> None:
    with pytest.raises(LapisError, match="Linear is none of ViT, DeiT, Beit, Dinov2"):
        calibrate(nn.Linear(1, 1), images)


@pytest.mark.parametrize("family", [*FAMILIES, "deit with teacher"])
@pytest.mark.parametrize("form", ["model", "folder"])
def test_imported_logits_are_those_of_transformers(family: str, form: str, images: Tensor, tmp_path: Path) -> None:
    model = make(family)
    model.save_pretrained(tmp_path)
    ours = load_backbone(model) if form == "model" else lapis.load(tmp_path).torch()
    assert ours.config.heads == HEADS
    expected = model(images).logits
    torch.testing.assert_close(ours(images), expected, rtol=TOLERANCE, atol=TOLERANCE)
    parts = ours.forward_head(ours.forward_features(images))
    torch.testing.assert_close(parts, expected, rtol=TOLERANCE, atol=TOLERANCE)
    assert all(one.shape == (3, ours.config.tokens, WIDTH) for one in ours.tap(images, range(DEPTH)).features)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_student_has_the_backbone_of_every_family(family: str, images: Tensor, tmp_path: Path) -> None:
    model = make(family)
    model.save_pretrained(tmp_path)
    dense = lapis.load(tmp_path).config
    student = load_backbone(tmp_path / "model.safetensors", dense.replace(relation="laplacian", quantize=True))
    assert type(student) is lapis.nn.LapisViT
    theirs = model.state_dict()
    (weight,) = (theirs[name] for name in theirs if re.search(r"layers?\.1\..*(fc2|output\.dense)\.weight$", name))
    assert (student.blocks[1].mlp.fc2.weight == weight).all()
    assert torch.equal(student.state_dict()["head.weight"], model.classifier.weight[:, :WIDTH])


@pytest.mark.parametrize("family", ["vit", "deit", "dinov2"])
def test_what_was_trained_there_keeps_its_tau_here(family: str, images: Tensor, tmp_path: Path) -> None:
    model = make(family)
    calibrate(model, images)
    model.save_pretrained(tmp_path)
    ours = lapis.load(tmp_path).torch()
    assert ours.config.relation == "laplacian"
    torch.testing.assert_close(ours(images), model(images).logits, rtol=TOLERANCE, atol=TOLERANCE)
    deployed = load_backbone(tmp_path / "model.safetensors", ours.config.replace(quantize=True, relation="laplacian"))
    assert not lapis.nn.is_calibrated(deployed)


def test_what_a_lapis_vit_has_not_is_one_error(images: Tensor) -> None:
    with pytest.raises(LapisError, match="hidden_act='relu'"):
        load_backbone(make("vit", hidden_act="relu"))
    with pytest.raises(LapisError, match="use_mean_pooling"):
        load_backbone(make("beit", use_mean_pooling=False))
    beit = make("beit")
    calibrate(beit, images)
    with pytest.raises(LapisError, match="whole steps"):
        load_backbone(beit)


def test_class_names_and_preprocessing_come_from_the_folder(tmp_path: Path) -> None:
    model = make("vit", id2label={number: f"thing {number}" for number in range(CLASSES)})
    model.save_pretrained(tmp_path)
    half = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 3, "do_center_crop": True}
    rule = half | {"size": {"shortest_edge": 40}, "crop_size": {"height": SIZE, "width": SIZE}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(rule))
    opened = lapis.load(tmp_path)
    assert opened.class_names == tuple(f"thing {number}" for number in range(CLASSES))
    assert opened.preprocess == lapis.Preprocess(SIZE, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "bicubic", 0.8)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_is_start_and_teacher_of_a_training(family: str, tmp_path: Path) -> None:
    make(family, num_labels=10).save_pretrained(tmp_path / "dense")
    sizes = [f"model.image_size={SIZE}", f"model.patch_size={PATCH}", f"model.width={WIDTH}", f"model.depth={DEPTH}"]
    styles = {"beit": ["model.style=beit"], "dinov2": ["model.layer_scale=true"]}
    sizes += styles.get(family, [])
    changes = [*sizes, f"model.heads={HEADS}", "model.mlp_ratio=4", "distill.feature=0", "optim.epochs=0.02"]
    words = ["train", "smoke", "--out", str(tmp_path / "run"), "--quiet", *(f"--set={change}" for change in changes)]
    assert main([*words, "--start", str(tmp_path / "dense"), "--teacher", str(tmp_path / "dense")]) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_is_distilled(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
    make(family).save_pretrained(tmp_path / "dense")
    write_photos(tmp_path / "photos")
    words = [
        "distill",
        str(tmp_path / "dense"),
        "--images",
        str(tmp_path / "photos"),
        "-o",
        str(tmp_path / "m.safetensors"),
    ]
    assert main([*words, "--threads", "1", "-q"]) == 0
    assert lapis.Session(tmp_path / "m.safetensors").run(Image.new("RGB", (50, 40))).shape == (1, CLASSES)


def test_the_pipeline_names_an_image(images: Tensor) -> None:
    model = make("vit", "lapis")
    calibrate(model, images)
    processor = transformers.ViTImageProcessorPil(size={"height": SIZE, "width": SIZE})
    classify = transformers.pipeline("image-classification", model=model, image_processor=processor)
    answers = classify(Image.new("RGB", (50, 40), "green"), top_k=2)
    assert [set(answer) for answer in answers] == [{"label", "score"}] * 2


def test_a_published_network_opens_in_transformers(images: Tensor, tmp_path: Path, timm: ModuleType) -> None:
    config = small_config(classes=CLASSES)
    ours = small_model(config)[0].eval()
    ours.about = {"class_names": [f"thing {number}" for number in range(CLASSES)]}
    ours.save_pretrained(tmp_path)
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    assert model.config.id2label == dict(enumerate(ours.about["class_names"]))
    x = images[:, :, : config.image_size, : config.image_size]
    assert torch.equal(model(x).logits, ours(x))
    picture = Image.new("RGB", (50, 40), "green")
    (answer,) = transformers.pipeline("image-classification", model=str(tmp_path))(picture, top_k=1)
    assert answer["label"] in ours.about["class_names"]
