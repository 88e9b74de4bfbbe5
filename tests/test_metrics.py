"""Counting right answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lapis._util.metrics import Accuracy, interval95, paired_test
from lapis.config import LapisConfig
from lapis.convert.torch_executor import DeployedEvaluator
from lapis.data.loader import PixelBatch
from lapis.energy import energy_of
from lapis.errors import LapisError
from lapis.nn import LapisViT, calibrate
from lapis.preprocess import Preprocess
from lapis.train.evaluate import evaluate

SMALL = LapisConfig(image_size=8, patch_size=4, classes=7, width=8, depth=1, heads=2)


def some_batches() -> list[PixelBatch]:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (10, 8, 8, 3), generator=generator, dtype=torch.uint8)
    labels = torch.randint(7, (10,), generator=generator)
    return [PixelBatch(pixels[a:b], labels[a:b]) for a, b in ((0, 4), (4, 8), (8, 10))]


def network(config: LapisConfig = SMALL) -> DeployedEvaluator:
    torch.manual_seed(0)
    model = LapisViT(config)
    calibrate(model, torch.randn(4, 3, 8, 8))
    return DeployedEvaluator(model, Preprocess(8))


def test_counts_agree_with_torch() -> None:
    logits, labels = torch.randn(50, 12), torch.randint(12, (50,))
    scores = Accuracy()
    scores.count(logits.numpy(), labels.numpy())
    assert scores.top1_correct == int((logits.argmax(1) == labels).sum())
    assert scores.top5_correct == int((logits.topk(5).indices == labels[:, None]).any(1).sum())
    assert scores.loss == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-5)


def test_of_equal_logits_the_lower_class_wins() -> None:
    scores = Accuracy()
    scores.count(np.zeros((3, 6), np.float32), np.array([0, 4, 5]))
    assert (scores.top1_correct, scores.top5_correct, scores.images) == (1, 2, 3)


def test_parts_add_up_to_the_whole() -> None:
    model = network()
    whole = evaluate(model, some_batches(), watched=100)
    parts = Accuracy.merged([evaluate(model, [batch], watched=100) for batch in some_batches()])
    assert (parts.images, parts.top1_correct, parts.top5_correct) == (
        whole.images,
        whole.top1_correct,
        whole.top5_correct,
    )
    assert parts.loss == pytest.approx(whole.loss)
    assert parts.tally == whole.tally


def test_only_the_first_images_are_watched_and_the_mode_is_given_back() -> None:
    model = network().train()
    scores = evaluate(model, some_batches(), watched=4)
    assert (scores.images, scores.tally.images) == (10, 4)
    assert model.training
    energy = energy_of(SMALL, scores.tally)
    assert energy is not None
    assert energy["energy_mj"] > 0
    assert "activity" in scores.as_dict()


def test_a_dense_network_has_no_activity_and_no_energy_of_spikes() -> None:
    config = SMALL.replace(relation="dot", quantize=False)
    scores = evaluate(network(config), some_batches())
    assert scores.tally.images == 0
    assert energy_of(config, scores.tally) is None
    assert "activity" not in scores.as_dict()


def test_nothing_to_evaluate_is_an_error() -> None:
    with pytest.raises(LapisError, match="no image"):
        evaluate(network(), [])


def test_an_interval_narrows_with_images_and_stays_in_range() -> None:
    assert interval95(50, 100) == pytest.approx((40.38, 59.62), abs=0.01)  # the textbook's example
    assert interval95(10, 10)[1] == pytest.approx(100.0)
    assert interval95(0, 10)[0] == pytest.approx(0.0)
    low, high = interval95(900, 1000)
    assert 90 - low < 2.5
    assert high - 90 < 2.5


def pairs(both: int, first: int, second: int, neither: int) -> tuple[list[bool], list[bool]]:
    return [True] * (both + first) + [False] * (second + neither), (
        [True] * both + [False] * first + [True] * second + [False] * neither
    )


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 5, 1.0), (6, 0, 2 / 64), (1, 5, 2 * 7 / 64), (3000, 3000, 1.0), (0, 2000, 0.0)],
)
def test_the_paired_test_is_a_fair_coin(first: int, second: int, p: float) -> None:
    found = paired_test(*pairs(10, first, second, 10))
    assert found["p"] == p
    assert paired_test(*pairs(10, second, first, 10))["p"] == p
    assert (found["only_first"], found["only_second"]) == (first, second)
    low, high = found["difference_interval95"]
    assert low < found["difference"] < high or abs(found["difference"]) > 95


def test_the_interval_of_a_difference_agrees_with_the_test() -> None:
    """Agresti and Min's example: 1,600 voters asked twice, 944 and 880 approve: 0.04 +- 0.0195 or so."""
    found = paired_test(*pairs(794, 150, 86, 570))
    assert found["difference"] == pytest.approx(4.0)
    assert found["difference_interval95"] == pytest.approx((2.1, 5.9), abs=0.1)
    assert found["p"] == pytest.approx(3.7e-5, rel=0.05)
