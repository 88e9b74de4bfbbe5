"""First weights from anywhere, and what of them survives a change of stage."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lapis.config import CodingByPoint, LapisConfig
from lapis.convert import from_model
from lapis.errors import LapisError
from lapis.nn import LapisViT, calibrate, is_calibrated, save_network
from lapis.nn.block import TransformerBlock
from lapis.nn.quantizer import Linear, required
from lapis.nn.relations import with_tau
from lapis.pack import save
from lapis.train.objective import load_teacher
from lapis.train.recipe import Distill, Recipe, Sparsity
from lapis.train.start import prepare_student, start_network
from tests.networks import shaken_network, small_config, small_model

EXACT = LapisConfig(image_size=16, patch_size=8, classes=3, width=16, depth=2, heads=2)
DEPLOYED = EXACT.deployed()


@pytest.fixture
def exact(tmp_path: Path) -> tuple[LapisViT, Path]:
    torch.manual_seed(3)
    model = LapisViT(EXACT)
    calibrate(model, [torch.randn(4, 3, 16, 16)])
    save_network(tmp_path / "exact.safetensors", model)
    return model, tmp_path / "exact.safetensors"


def test_a_recovery_stage_keeps_what_was_learnt_and_lacks_only_what_is_new(exact: tuple[LapisViT, Path]) -> None:
    model, path = exact
    recovered = start_network(DEPLOYED, str(path), 0)
    mine, old = recovered.state_dict(), model.state_dict()
    assert all(torch.equal(mine[name], tensor) for name, tensor in old.items())
    fresh = {name.split(".", 2)[2] for name in mine.keys() - old.keys() if name.startswith("blocks.0")}
    assert {name.rsplit(".", 1)[0] for name in fresh} == {
        "attn.readout", "attn.qkv.quantizer", "attn.proj.quantizer", "mlp.fc1.quantizer", "mlp.fc2.quantizer",
    }  # fmt: skip
    assert not is_calibrated(recovered)
    calibrate(recovered, torch.randn(2, 3, 16, 16), missing_only=True)
    assert is_calibrated(recovered)
    assert torch.equal(recovered.state_dict()["blocks.0.attn.qk.log_step"], old["blocks.0.attn.qk.log_step"])


def test_a_quantizer_that_means_something_else_starts_anew(exact: tuple[LapisViT, Path]) -> None:
    _, path = exact
    signed = start_network(EXACT.replace(coding=CodingByPoint(qk="signed", v="offset")), str(path), 0)
    attention = signed.blocks[0].attn
    assert not required(attention.qk).is_ready
    assert not required(attention.v).is_ready
    assert not with_tau(attention.relation).is_ready
    assert required(attention.input).is_ready
    shorter = start_network(EXACT.replace(window=7), str(path), 0)
    assert not required(shorter.blocks[0].mlp.input).is_ready
    gaussian = start_network(EXACT.replace(relation="gaussian"), str(path), 0)
    assert not with_tau(gaussian.blocks[0].attn.relation).is_ready


def test_a_dense_network_becomes_a_spiking_one_and_back(tmp_path: Path) -> None:
    dense = LapisViT(EXACT.replace(relation="dot", quantize=False))
    save_network(tmp_path / "dense.safetensors", dense)
    spiking = start_network(EXACT, str(tmp_path / "dense.safetensors"), 0)
    assert torch.equal(spiking.blocks[1].mlp.fc1.weight, dense.blocks[1].mlp.fc1.weight)
    save_network(tmp_path / "spiking.safetensors", spiking)
    back = start_network(dense.config, str(tmp_path / "spiking.safetensors"), 0)
    assert torch.equal(back(torch.ones(1, 3, 16, 16)), dense(torch.ones(1, 3, 16, 16)))


def test_another_size_and_class_count_are_taken_in(exact: tuple[LapisViT, Path]) -> None:
    model, path = exact
    larger = start_network(EXACT.replace(image_size=32, classes=7), str(path), 0)
    assert larger.pos_embed is not None
    assert larger.pos_embed.shape[1] == 17
    assert larger.classifier.weight.shape[0] == 7
    assert torch.equal(larger.norm.weight, model.norm.weight)
    with pytest.raises(LapisError, match="width=16, the recipe has 32"):
        start_network(EXACT.replace(width=32), str(path), 0)


def test_random_weights_depend_on_the_seed_alone() -> None:
    one, two, other = (start_network(EXACT, "", seed).classifier.weight for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_a_packed_file_is_a_start(tmp_path: Path) -> None:
    model, _ = small_model(small_config(), 3)
    save(tmp_path / "packed.safetensors", from_model(model))
    again = start_network(small_config(), str(tmp_path / "packed.safetensors"), 0)
    assert is_calibrated(again)
    for new, old in zip(again.blocks, model.blocks, strict=True):
        for ours, theirs in zip(_layers(new), _layers(old), strict=True):
            assert torch.equal(_codes(ours), _codes(theirs))
    dense_weights = start_network(
        small_config(weight_bits=32, row_scale="exact"), str(tmp_path / "packed.safetensors"), 0
    )
    assert torch.equal(dense_weights.blocks[0].mlp.fc1.weight, again.blocks[0].mlp.fc1.weight)


def _layers(block: TransformerBlock) -> tuple[Linear, ...]:
    return block.attn.qkv, block.attn.proj, block.mlp.fc1, block.mlp.fc2


def _codes(layer: Linear) -> torch.Tensor:
    assert layer.quantizer is not None
    return layer.quantizer.codes(layer.weight)


@pytest.mark.parametrize("stage", ["labels", "whole"])
@pytest.mark.parametrize("rotated", [False, True])
def test_a_student_of_its_own_start_is_fitted_to_it(stage: str, rotated: bool, tmp_path: Path) -> None:
    """Nearer to the dense answers than calibration alone, under deadlines that reach the goals."""
    dense, images = shaken_network(EXACT.replace(image_size=32).dense())
    path = str(tmp_path / "dense.safetensors")
    save_network(path, dense)
    config = dense.config.replace(quantize=True, relation="laplacian").deployed()
    goals = Sparsity(v=0.4, mlp_in=0.4, rotate_basis=rotated)
    recipe = Recipe(
        config, stage=stage, start=path, distill=Distill(path, feature=0.0), sparsity=goals  # type: ignore[arg-type]
    )  # fmt: skip
    teacher = load_teacher(recipe, torch.device("cpu"))
    assert teacher is not None
    student = prepare_student(recipe, images, teacher)
    assert is_calibrated(student)
    trace = student.eval().watch(images).trace
    for point in ("v", "mlp_in"):
        assert sum(float((trace[block, point] != 0).mean()) for block in (0, 1)) / 2 <= 0.5
    plain = LapisViT(student.config)
    plain.load_state_dict(dense.state_dict(), strict=False)
    calibrate(plain, images)
    with torch.no_grad():
        target = teacher(images).logits
        torch.testing.assert_close(target, dense(images), atol=1e-4, rtol=1e-4)  # rotation changes no answer
        assert float((student(images) - target).norm()) < 0.8 * float((plain(images) - target).norm())


def test_blocks_of_another_start_cannot_be_rotated_with_the_teacher() -> None:
    with pytest.raises(LapisError, match="must start from its weights"):
        Recipe(EXACT, stage="blocks", start="a", distill=Distill("b"), sparsity=Sparsity(rotate_basis=True))
