"""The loss of the paper, term by term."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.nn import LapisViT
from lapis.nn.model import Tapped
from lapis.nn.symmetry import _good_rotations, rotate_tokens
from lapis.train.objective import Objective, feature_distillation, logit_distillation, soft_cross_entropy
from lapis.train.recipe import Distill

DENSE = LapisConfig(image_size=8, patch_size=4, classes=3, width=8, depth=2, heads=2, relation="dot", quantize=False)
BLOCKS = Distill(student_blocks=(0, 1), teacher_blocks=(0, 1))


def test_cross_entropy_of_hard_targets_is_the_usual_one() -> None:
    logits, labels = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    ours = soft_cross_entropy(logits, torch.nn.functional.one_hot(labels, 3).float())
    assert torch.allclose(ours, torch.nn.functional.cross_entropy(logits, labels))


def test_logit_distillation_is_the_tempered_divergence() -> None:
    student, teacher = torch.tensor([[0.0, 4.0]]), torch.tensor([[8.0, 0.0]])
    p = 1 / (1 + math.exp(1.0))  # softmax(student / 4)[0]
    q = 1 / (1 + math.exp(-2.0))
    expected = 16 * (q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)))
    assert float(logit_distillation(student, teacher, 4.0)) == pytest.approx(expected, rel=1e-5)
    assert float(logit_distillation(teacher, teacher, 4.0)) == pytest.approx(0, abs=1e-6)


def test_features_are_compared_after_layer_norm() -> None:
    features = torch.randn(2, 5, 8)
    assert float(feature_distillation(features, 3 * features + 7)) == pytest.approx(0, abs=1e-5)
    assert float(feature_distillation(features, -features)) == pytest.approx(4, rel=1e-3)


def test_features_that_do_not_line_up_are_refused() -> None:
    with pytest.raises(LapisError, match="same number of tokens"):
        feature_distillation(torch.zeros(1, 5, 8), torch.zeros(1, 17, 8))


def test_the_loss_is_the_weighted_sum_of_its_terms() -> None:
    torch.manual_seed(0)
    objective, teacher = Objective(LapisViT(DENSE), BLOCKS, 12), LapisViT(DENSE.replace(width=12))
    images, targets = torch.randn(2, 3, 8, 8), torch.eye(3)[:2]
    terms = objective(images, targets, teacher.tap(images, (0, 1)))
    assert all(float(term.detach()) > 0 for term in terms[:4])
    assert torch.allclose(terms.loss, 0.5 * terms.ce + 0.5 * terms.logit + 0.5 * terms.feature)
    assert objective.project is not None
    assert tuple(objective.project.weight.shape) == (12, 8)
    terms.loss.backward()
    assert objective.project.weight.grad is not None


@pytest.mark.parametrize("turned", [False, True])
def test_a_student_that_is_its_teacher_in_any_basis_has_nothing_to_distil(turned: bool) -> None:
    torch.manual_seed(0)
    teacher = LapisViT(DENSE).eval()
    student = copy.deepcopy(teacher)
    if turned:
        few = torch.randn(1, 40, DENSE.width)
        rotate_tokens(student, _good_rotations(few, keep_mean=True)[0])
    objective, images = Objective(student, BLOCKS, 8), torch.randn(4, 3, 8, 8)
    taught = teacher.tap(images, (0, 1))
    objective.align(images, taught)
    assert objective.project is not None
    assert torch.allclose(objective.project.weight, torch.eye(8), atol=1e-3) is not turned
    terms = objective(images, torch.eye(3)[[0, 1, 2, 0]], taught)
    assert float(terms.logit) == pytest.approx(0, abs=1e-5)
    assert float(terms.feature) == pytest.approx(0, abs=1e-5)


def test_without_a_teacher_the_loss_is_cross_entropy_alone() -> None:
    terms = Objective(LapisViT(DENSE), Distill(), None)(torch.randn(2, 3, 8, 8), torch.eye(3)[:2], None)
    assert torch.equal(terms.loss.detach(), terms.ce)
    assert float(terms.logit) == float(terms.feature) == 0


def test_no_gradient_reaches_the_teacher() -> None:
    student, teacher = LapisViT(DENSE), LapisViT(DENSE)
    images = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        taught = teacher.tap(images, (0, 1))
    Objective(student, BLOCKS, 8)(images, torch.eye(3)[:2], Tapped(*taught)).loss.backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
