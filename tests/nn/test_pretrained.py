"""Backbones from elsewhere give here what they give there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lapis._util.run_layout import CHECKPOINT_KEY
from lapis.config import LapisConfig, preset
from lapis.errors import LapisError
from lapis.nn import LapisViT, calibrate, import_timm, load_backbone
from lapis.nn.checkpoint import read_network
from lapis.nn.pretrained import resize_channels, resize_offsets, resize_positions

# The bound on logits; float32 sums in another order stay well below it.
LOGITS_ATOL = 1e-4


def _images(count: int, size: int) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def test_without_timm_one_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(LapisError, match="pip install timm"):
        import_timm()
    with pytest.raises(LapisError, match=r"'vit_tiny_patch16_224' is not a file.*pip install timm"):
        load_backbone("vit_tiny_patch16_224")


def test_deit_tiny_reproduces_timm_on_its_real_weights(timm: ModuleType, deit_weights: Path) -> None:
    theirs = timm.create_model("deit_tiny_patch16_224")
    theirs.load_state_dict(load_file(deit_weights))
    ours = load_backbone(deit_weights)
    images = _images(4, 224)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs.eval()(images), rtol=0, atol=LOGITS_ATOL)


@pytest.mark.parametrize("name", ["beit_base_patch16_224", "beitv2_base_patch16_224"])
def test_beit_reproduces_timm_on_random_weights(timm: ModuleType, name: str) -> None:
    torch.manual_seed(0)
    theirs = timm.create_model(name, num_classes=11).eval()
    with torch.no_grad():
        for key, parameter in theirs.named_parameters():
            # Make position, layer scale and biases matter: timm starts them at zero or near it.
            if any(word in key for word in ("table", "gamma", "bias")):
                parameter.normal_(0, 0.3)
        images = _images(1, 224)
        torch.testing.assert_close(load_backbone(theirs)(images), theirs(images), rtol=0, atol=LOGITS_ATOL)


def _random(theirs: Any) -> Any:
    """timm's own random weights, with positions, layer scale and biases large enough to matter."""
    with torch.no_grad():
        for key, parameter in theirs.named_parameters():
            if key.endswith(("gamma", "bias", "pos_embed", "cls_token")):
                parameter.normal_(0, 0.3)
    return theirs.eval()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("deit3_small_patch16_224", {"depth": 3}),
        ("deit3_medium_patch16_224", {"depth": 3, "num_classes": 7}),
        ("vit_small_patch14_dinov2", {"depth": 3, "num_classes": 11, "img_size": 56}),
        ("vit_tiny_patch16_224", {"depth": 3, "in_chans": 1, "num_classes": 3}),
    ],
)
def test_timm_backbones_give_the_same_logits_on_random_weights(
    timm: ModuleType, name: str, options: dict[str, int]
) -> None:
    torch.manual_seed(0)
    theirs = _random(timm.create_model(name, pretrained=False, **options))
    ours = load_backbone(theirs)
    assert ours.config.layer_scale == ("tiny" not in name)
    images = torch.randn(2, options.get("in_chans", 3), *theirs.patch_embed.img_size)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=LOGITS_ATOL)
        torch.testing.assert_close(
            ours.forward_features(images), theirs.forward_features(images), rtol=0, atol=10 * LOGITS_ATOL
        )


def test_a_distilled_deit_of_timm_gives_the_mean_of_its_two_classifiers(timm: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = _random(timm.create_model("deit_tiny_distilled_patch16_224", depth=2, img_size=64, num_classes=5))
    images = _images(2, 64)
    with torch.no_grad():
        torch.testing.assert_close(load_backbone(theirs)(images), theirs(images), rtol=0, atol=LOGITS_ATOL)
        features = {name: one for name, one in theirs.state_dict().items() if not name.startswith("head")}
        save_file(features, tmp_path / "headless.safetensors")
        student = load_backbone(tmp_path / "headless.safetensors", load_backbone(theirs).config)
        assert torch.equal(student.state_dict()["pos_embed"][:, 1:], theirs.pos_embed[:, 2:])
        save_file(features | {"pos_embed": torch.zeros(18)}, tmp_path / "damaged.safetensors")
        with pytest.raises(LapisError, match="distillation token do not fit"):
            load_backbone(tmp_path / "damaged.safetensors")
    # At another size the positions of the patches are interpolated, the two tokens keep theirs.
    assert load_backbone(theirs, image_size=96)(_images(1, 96)).shape == (1, 5)


def test_a_backbone_without_a_head_gives_its_features_and_takes_any_number_of_classes(timm: ModuleType) -> None:
    torch.manual_seed(0)
    theirs = _random(timm.create_model("vit_small_patch14_dinov2", pretrained=False, img_size=56, depth=2))
    with pytest.raises(LapisError, match="no classifier; pass a configuration"):
        load_backbone(theirs)
    config = preset("lapis_small", depth=2, image_size=56, patch_size=14, classes=5, layer_scale=True)
    ours = load_backbone(theirs, config.dense())
    images = _images(2, 56)
    with torch.no_grad():
        pooled = ours.forward_head(ours.forward_features(images), pre_logits=True)
        torch.testing.assert_close(pooled, theirs(images), rtol=0, atol=LOGITS_ATOL)
        assert ours(images).shape == (2, 5)
    with pytest.raises(LapisError, match="layer_scale=True"):
        load_backbone(theirs, config.replace(layer_scale=False))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("vit_small_patch14_reg4_dinov2", {"img_size": 56}, "register tokens"),
        ("vit_base_patch16_clip_224", {}, "a norm before its first block"),
        ("vit_base_patch16_siglip_224", {}, "attention pooling"),
    ],
)
def test_what_a_lapis_network_has_no_place_for_is_refused_by_name(
    timm: ModuleType, name: str, options: dict[str, int], words: str
) -> None:
    theirs = timm.create_model(name, pretrained=False, depth=1, **options)
    for config in (None, preset("lapis_tiny")):
        with pytest.raises(LapisError, match=words):
            load_backbone(theirs, config)


def test_colour_weights_become_those_of_other_channels_as_timm_makes_them(timm: ModuleType) -> None:
    from timm.models import adapt_input_conv

    weight = torch.randn(8, 3, 4, 4)
    for channels in (1, 2, 3, 4, 7):
        torch.testing.assert_close(resize_channels(weight, channels), adapt_input_conv(channels, weight.clone()))


def test_a_vit_state_dict_in_a_pth_file_is_read_as_weights_only(tmp_path: Path, deit_weights: Path) -> None:
    torch.save({"model": load_file(deit_weights)}, tmp_path / "deit.pth")
    images = _images(1, 224)
    with torch.no_grad():
        assert (load_backbone(tmp_path / "deit.pth")(images) == load_backbone(deit_weights)(images)).all()


class _Payload:
    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return (Path.touch, (Path("/tmp/lapis-was-executed"),))


def test_a_hostile_pickle_is_refused_and_not_executed(tmp_path: Path) -> None:
    torch.save({"model": _Payload()}, tmp_path / "bad.pth")
    with pytest.raises(LapisError, match="weights only"):
        load_backbone(tmp_path / "bad.pth")
    assert not Path("/tmp/lapis-was-executed").exists()


def _tensors(config: LapisConfig) -> dict[str, Tensor]:
    """A small dense checkpoint in timm's names."""
    torch.manual_seed(0)
    return dict(LapisViT(config.replace(relation="dot", quantize=False)).state_dict())


SMALL = LapisConfig(image_size=32, patch_size=8, width=64, depth=2, heads=1, classes=5)


def test_any_size_and_number_of_classes_can_be_asked_for(tmp_path: Path) -> None:
    save_file(_tensors(SMALL), tmp_path / "vit.safetensors")
    model = load_backbone(tmp_path / "vit.safetensors", SMALL.replace(image_size=48, classes=3))
    calibrate(model, _images(2, 48))
    assert model(_images(2, 48)).shape == (2, 3)
    source = load_file(tmp_path / "vit.safetensors")
    assert (model.blocks[1].attn.qkv.weight == source["blocks.1.attn.qkv.weight"]).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"blocks.0.attn.qkv.weight": None}, "misses blocks.0.attn.qkv.weight"),
        ({"surprise": torch.zeros(1)}, "has unknown surprise"),
        ({"norm.weight": torch.zeros(7)}, r"norm.weight has shape \(7,\), this network needs \(64,\)"),
        ({"norm.weight": torch.full((64,), float("nan"))}, "norm.weight holds NaN"),
        ({"cls_token": None}, "not the weights of a ViT"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_an_error_naming_the_tensor(
    tmp_path: Path, change: dict[str, Tensor | None], words: str
) -> None:
    tensors = {name: tensor for name, tensor in {**_tensors(SMALL), **change}.items() if tensor is not None}
    save_file(tensors, tmp_path / "vit.safetensors")
    with pytest.raises(LapisError, match=words):
        load_backbone(tmp_path / "vit.safetensors")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("patch_embed.proj.weight", (64,)),
        ("patch_embed.proj.weight", (0, 3, 8, 8)),
        ("pos_embed", (17,)),
        ("head.weight", ()),
        ("blocks.0.mlp.fc1.weight", (256,)),
        ("blocks.0.attn.relative_position_bias_table", (52,)),
    ],
)
def test_a_tensor_without_the_axes_that_tell_sizes_is_one_error(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    save_file({**_tensors(SMALL), name: torch.zeros(shape)}, tmp_path / "vit.safetensors")
    with pytest.raises(LapisError, match=f"{name} has shape"):
        load_backbone(tmp_path / "vit.safetensors")


def test_weights_without_positions_are_one_error(tmp_path: Path) -> None:
    save_file({n: t for n, t in _tensors(SMALL).items() if n != "pos_embed"}, tmp_path / "vit.safetensors")
    with pytest.raises(LapisError, match="no tensor 'pos_embed'"):
        load_backbone(tmp_path / "vit.safetensors")


# A few kilobytes that name a network of gigabytes, or one of many parts.
@pytest.mark.parametrize(
    "change",
    [
        {"width": 1 << 20},
        {"depth": 1 << 30},
        {"classes": 1 << 40},
        {"mlp_ratio": 1 << 30},
        {"image_size": 1 << 20},
        {"patch_size": 1 << 20, "image_size": 1 << 20},
        {"style": "beit", "image_size": 1 << 12},
    ],
    ids=str,
)
def test_nothing_is_built_for_a_configuration_that_is_larger_than_its_file(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    def build(config: LapisConfig) -> LapisViT:
        raise AssertionError(f"a network of {config} was to be built")

    path = tmp_path / "checkpoint.safetensors"
    config = json.dumps({"config": {**SMALL.to_dict(), **change}})
    save_file(LapisViT(SMALL).state_dict(), path, metadata={CHECKPOINT_KEY: config})
    with pytest.raises(LapisError, match=r"this network needs|blocks, and its configuration|out of proportion"):
        read_network(path, build)


def test_a_damaged_or_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{")
    with pytest.raises(LapisError, match="not a readable safetensors"):
        load_backbone(tmp_path / "cut.safetensors")
    with pytest.raises(LapisError, match="no such file"):
        load_backbone(tmp_path / "none.safetensors")


def test_positions_keep_their_class_token_and_stay_put_at_the_same_grid() -> None:
    positions = torch.randn(1, 17, 6)
    assert resize_positions(positions, 4) is positions
    resized = resize_positions(positions, 7)
    assert resized.shape == (1, 50, 6)
    assert (resized[:, 0] == positions[:, 0]).all()
    assert (resize_positions(positions[:, 1:], 4) == positions * (torch.arange(17) > 0)[:, None]).all()
    # A constant embedding is constant at every size.
    torch.testing.assert_close(resize_positions(torch.ones(1, 17, 6), 7), torch.ones(1, 50, 6))
    with pytest.raises(LapisError, match="not a square grid"):
        resize_positions(torch.zeros(1, 15, 6), 4)


def test_offset_tables_keep_corners_centre_and_class_entries() -> None:
    table = torch.randn(7 * 7 + 3, 2)
    resized = resize_offsets(table, 6)
    assert resized.shape == (11 * 11 + 3, 2)
    assert (resized[-3:] == table[-3:]).all()
    old, new = table[:-3].view(7, 7, 2), resized[:-3].view(11, 11, 2)
    for mine, theirs in ((new[0, 0], old[0, 0]), (new[10, 10], old[6, 6]), (new[5, 5], old[3, 3])):
        torch.testing.assert_close(mine, theirs)
