"""A LapisViT has the habits of a timm model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from lapis.config import preset
from lapis.convert import from_model, to_model
from lapis.deploy import integer
from lapis.deploy.network import check_deployable, check_packed
from lapis.energy.counts import patch_embedding
from lapis.errors import LapisError
from lapis.nn import LapisViT, calibrate, load_network, save_network
from lapis.nn.pixels import normalise
from lapis.preprocess import Preprocess
from tests.networks import small_config, small_model

GREY = Preprocess(8, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


@pytest.fixture
def registered(timm: ModuleType) -> ModuleType:
    import lapis.nn.timm_models  # noqa: F401

    return timm


def test_lapis_networks_are_timm_models(registered: ModuleType) -> None:
    model = registered.create_model("lapis_small_patch16_224", num_classes=10, drop_path_rate=0.1)
    assert isinstance(model, LapisViT)
    assert model.config == preset("lapis_small", classes=10)
    assert [block.drop_path for block in model.blocks][::11] == [0.0, 0.1]
    assert "lapis_large_patch16_224" in registered.list_models("lapis_*")


def test_timm_options_reach_the_network(registered: ModuleType) -> None:
    grey = registered.create_model("lapis_tiny_patch16_224", in_chans=1, img_size=32, depth=1)
    calibrate(grey, torch.randn(2, 1, 32, 32))
    assert grey(torch.randn(2, 1, 32, 32)).shape == (2, 1000)
    features = registered.create_model("lapis_tiny_patch16_224", num_classes=0, img_size=32, depth=1)
    calibrate(features, torch.randn(2, 3, 32, 32))
    assert features(torch.randn(2, 3, 32, 32)).shape == (2, features.num_features)
    with pytest.raises(LapisError, match="unknown configuration field 'drop_rate'"):
        registered.create_model("lapis_tiny_patch16_224", drop_rate=0.1)


def test_the_data_settings_are_those_that_timm_asks_for(registered: ModuleType) -> None:
    model = registered.create_model("lapis_tiny_patch16_224", img_size=96, depth=1)
    found = registered.data.resolve_model_data_config(model)
    expected = Preprocess(96)
    assert found["input_size"] == (3, 96, 96)
    assert (found["mean"], found["std"], found["crop_pct"]) == (expected.mean, expected.std, expected.crop)
    assert model.pretrained_cfg == model.default_cfg
    assert model.default_cfg["num_classes"] == 1000


@pytest.mark.parametrize("style", ["vit", "beit"])
def test_features_and_head_make_the_forward_pass(style: str) -> None:
    model, _ = small_model(small_config(style=style))
    images = torch.randn(3, 3, 8, 8)
    features = model.forward_features(images)
    assert features.shape == (3, model.config.tokens, model.num_features)
    torch.testing.assert_close(model.forward_head(features), model(images))
    pooled = model.forward_head(features, pre_logits=True)
    torch.testing.assert_close(model.get_classifier()(pooled), model(images))


def test_a_new_classifier_changes_the_classes_and_nothing_else(tmp_path: Path) -> None:
    model, images = small_model(small_config())
    batch = torch.randn(3, 3, 8, 8)
    before = model.forward_features(batch)
    model.reset_classifier(7)
    assert (model.num_classes, model.config.classes, model.classifier.out_features) == (7, 7, 7)
    assert (model.forward_features(batch) == before).all()
    assert model(batch).shape == (3, 7)
    save_network(tmp_path / "net.safetensors", model)
    assert (load_network(tmp_path / "net.safetensors")(batch) == model(batch)).all()
    assert integer.run(from_model(model), images).shape == (3, 7)
    with pytest.raises(LapisError, match="use 'token'"):
        model.reset_classifier(7, global_pool="avg")


def test_a_network_without_a_classifier_gives_features_and_is_not_saved(tmp_path: Path) -> None:
    model, _ = small_model(small_config())
    images = torch.randn(2, 3, 8, 8)
    expected = model.forward_head(model.forward_features(images), pre_logits=True)
    model.reset_classifier(0)
    assert model.num_classes == 0
    torch.testing.assert_close(model(images), expected)
    for refused in (lambda: save_network(tmp_path / "net.safetensors", model), lambda: from_model(model)):
        with pytest.raises(LapisError, match=r"reset_classifier\(num_classes\)"):
            refused()
    assert list(tmp_path.iterdir()) == []


def test_parameters_without_decay_are_all_but_weights_and_biases() -> None:
    model = LapisViT(small_config(style="beit"))
    kept = model.no_weight_decay()
    assert {"cls_token", "blocks.0.attn.relation.log_tau", "blocks.1.attn.relation.position.table"} <= kept
    assert all(not name.endswith((".weight", ".bias")) for name in kept)
    assert {name for name, _ in model.named_parameters()} - kept >= {"head.weight", "blocks.0.attn.qkv.weight"}
    assert "pos_embed" in LapisViT(small_config()).no_weight_decay()


def test_stochastic_depth_acts_in_training_alone_and_keeps_the_mean() -> None:
    config = small_config(depth=3)
    torch.manual_seed(0)
    plain = LapisViT(config)
    images = torch.randn(2, 3, 8, 8)
    calibrate(plain, [images])
    dropping = LapisViT(config, drop_path_rate=0.5)
    dropping.load_state_dict(plain.state_dict())
    assert [block.drop_path for block in dropping.blocks] == [0.0, 0.25, 0.5]
    assert (dropping.eval()(images) == plain.eval()(images)).all()
    assert from_model(dropping).blocks[2].proj.scale.tolist() == from_model(plain).blocks[2].proj.scale.tolist()
    block = dropping.blocks[2].train()
    ones = torch.ones(20_000, 1, 1)
    kept = block._kept(ones)
    assert set(kept.flatten().tolist()) == {0.0, 2.0}
    # 20,000 draws: the standard deviation of the mean is 0.007.
    assert abs(float(kept.mean()) - 1) < 0.05


@pytest.mark.parametrize("rate", [-0.1, 1.0, True])
def test_a_rate_that_is_no_share_is_refused(rate: Any) -> None:
    with pytest.raises(LapisError, match="drop_path_rate"):
        LapisViT(small_config(), drop_path_rate=rate)


def _grey_model() -> LapisViT:
    torch.manual_seed(0)
    model = LapisViT(small_config(image_channels=1)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith(("log_step", "log_tau")):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    calibrate(model, [torch.randn(8, 1, 8, 8)])
    return model


def test_a_grey_network_deploys_as_one_that_weighs_the_colours_itself() -> None:
    model = _grey_model()
    grey = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 1), dtype=np.uint8)
    images = np.repeat(grey, 3, axis=3)
    network = from_model(model, GREY)
    assert network.config == model.config.replace(image_channels=3)
    stream = integer.embed(network, images) * 2.0**-network.fraction_bits
    tokens = model.patch_embed(normalise(torch.from_numpy(images), GREY)[:, :1]).detach()
    assert model.pos_embed is not None
    expected = tokens.numpy() + model.pos_embed.detach().numpy()[:, 1:]
    np.testing.assert_allclose(stream[:, 1:], expected, atol=2e-3)  # patch weights have 16 bits
    assert integer.run(network, images).shape == (4, 3)


def test_channels_that_cannot_be_deployed_are_refused_with_the_reason() -> None:
    with pytest.raises(LapisError, match="image_channels=4 has no spiking form"):
        check_deployable(small_config(image_channels=4))
    with pytest.raises(LapisError, match="a Preprocess with three equal ones"):
        from_model(_grey_model())


def test_the_energy_of_the_patches_follows_the_channels() -> None:
    assert 3 * patch_embedding(small_config(image_channels=1)) == patch_embedding(small_config())


def test_layer_scale_is_folded_sign_and_all_and_the_network_is_rebuilt_without_it() -> None:
    model, _ = small_model(small_config(layer_scale=True))
    gamma = model.blocks[0].gamma_1
    assert gamma is not None
    with torch.no_grad():
        gamma[0] = -0.7
    network = from_model(model)
    assert network.config == model.config.replace(layer_scale=False)
    again = from_model(to_model(network), network.preprocess)
    for block, other in zip(network.blocks, again.blocks, strict=True):
        assert (block.proj.weight == other.proj.weight).all()
        np.testing.assert_allclose(block.proj.scale, other.proj.scale, rtol=1e-6)
    assert (network.blocks[0].proj.scale >= 0).all()
    codes = np.random.default_rng(0).integers(0, 16, (5, 6)).astype(np.int8)
    readout = model.blocks[0].attn.readout
    assert readout is not None
    real = (model.blocks[0].attn.proj(torch.from_numpy(codes) * readout.step) * gamma).detach().numpy()
    pre = (network.blocks[0].proj.pre(codes) - 0.5) * 2.0**-network.fraction_bits
    np.testing.assert_allclose(pre, real, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("field", [{"layer_scale": True}, {"image_channels": 1}])
def test_no_packed_network_has_a_field_of_training(field: dict[str, Any]) -> None:
    network = from_model(small_model(small_config())[0])
    config = network.config.replace(**field)
    assert field.items() <= config.to_dict().items()
    with pytest.raises(LapisError, match="convert it first"):
        check_packed(config)
    with pytest.raises(LapisError, match="convert it first"):
        dataclasses.replace(network, config=config)
