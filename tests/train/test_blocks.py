"""The loss of distillation block by block."""

from __future__ import annotations

import pytest
import torch

from lapis.nn import LapisViT
from lapis.nn.model import Tapped
from lapis.nn.pixels import normalise
from lapis.nn.symmetry import equalise
from lapis.preprocess import Preprocess
from lapis.train.objective import BlockObjective, block_errors
from lapis.train.recipe import Distill
from tests.networks import small_config, small_model

CONFIG = small_config(depth=4)


def pair() -> tuple[LapisViT, LapisViT, torch.Tensor]:
    """A spiking student with the weights of a dense teacher, and images."""
    student, pixels = small_model(CONFIG)
    images = normalise(torch.from_numpy(pixels), Preprocess(CONFIG.image_size))
    teacher = LapisViT(CONFIG.dense())
    teacher.load_state_dict({name: student.state_dict()[name] for name in teacher.state_dict()})
    return student.train(), teacher.eval().requires_grad_(False), images


def teach(teacher: LapisViT, images: torch.Tensor) -> Tapped:
    with torch.no_grad():
        return teacher.tap(images, tuple(range(CONFIG.depth)))


def targets(images: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(images), CONFIG.classes)


def test_a_network_that_is_its_teacher_has_no_loss() -> None:
    _, teacher, images = pair()
    for whole in (False, True):
        terms = BlockObjective(teacher, Distill(), whole)(images, targets(images), teach(teacher, images))
        assert float(terms.loss) == pytest.approx(0, abs=1e-6)


def test_gradients_stay_inside_a_block() -> None:
    student, teacher, images = pair()
    output = teach(teacher, images)
    BlockObjective(student, Distill(), whole=False)(images, targets(images), output).loss.backward()
    found = {name: p.grad.clone() for name, p in student.named_parameters() if p.grad is not None}
    student.zero_grad()
    # The same gradient comes from each block alone, fed with the teacher's tokens.
    x = student.embed(images).detach()
    for block, target in zip(student.blocks, output.features, strict=True):
        error, added = (block(x) - target).square(), (target - x).square()
        (error.mean() / added.mean() + 0.3 * error[:, 0].mean() / added[:, 0].mean()).backward()
        x = target
    for name, parameter in student.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-6)
    assert "patch_embed.proj.weight" not in found
    assert "head.weight" not in found


def test_the_whole_learns_from_images_to_answers() -> None:
    student, teacher, images = pair()
    terms = BlockObjective(student, Distill(), whole=True)(images, targets(images), teach(teacher, images))
    terms.loss.backward()
    assert float(terms.logit) > 0
    for name in ("patch_embed.proj.weight", "head.weight", "blocks.0.attn.qkv.weight"):
        assert student.get_parameter(name).grad is not None


def test_block_errors_are_those_that_the_objective_averages() -> None:
    student, teacher, images = pair()
    errors = block_errors(student, teacher, images)
    student.eval()
    terms = BlockObjective(student, Distill(), whole=False)(images, targets(images), teach(teacher, images))
    assert len(errors) == CONFIG.depth
    assert sum(errors) / len(errors) == pytest.approx(float(terms.feature), rel=1e-5)


def test_equalising_changes_nothing_in_the_dense_network() -> None:
    _, teacher, images = pair()
    before = teacher(images)
    tokens = [teacher.embed(images), *teach(teacher, images).features]
    copy = LapisViT(CONFIG.dense())
    copy.load_state_dict(teacher.state_dict())
    equalise(copy.eval(), teacher, tokens[:-1])
    assert not torch.equal(copy.blocks[0].norm1.weight, teacher.blocks[0].norm1.weight)
    torch.testing.assert_close(copy(images), before, rtol=1e-4, atol=1e-5)


def test_unsigned_channels_are_negated_where_most_of_their_power_is_negative() -> None:
    config = small_config(depth=2, coding=dict.fromkeys(("attention_in", "qk", "v", "mlp_in"), "unsigned"))
    student, pixels = small_model(config)
    images = normalise(torch.from_numpy(pixels), Preprocess(config.image_size))
    teacher = LapisViT(config.dense())
    teacher.load_state_dict({name: student.state_dict()[name] for name in teacher.state_dict()})
    tokens = [teacher.eval().embed(images), *teacher.tap(images, range(2)).features[:-1]]
    with torch.no_grad():
        equalise(student, teacher, tokens)
        dense = LapisViT(config.dense())
        dense.load_state_dict({name: student.state_dict()[name] for name in dense.state_dict()})
        torch.testing.assert_close(dense.eval()(images), teacher(images), rtol=1e-4, atol=1e-5)
        for block, x in zip(dense.blocks, tokens, strict=True):
            normed = block.norm1(x)
            q, k, v = block.attn.qkv(normed).chunk(3, dim=-1)
            for seen in (normed, v, torch.cat([q, k])):
                assert bool(((seen * seen.abs()).flatten(0, -2).sum(dim=0) >= -1e-5).all())
