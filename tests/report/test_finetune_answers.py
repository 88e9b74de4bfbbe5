"""Right and wrong answers, counted per class and sorted by how sure the network was."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.synthetic import random_network
from lapis._util.metrics import Accuracy
from lapis.data.images import ArrayImages
from lapis.report.finetune import Answers, answer_images
from lapis.runtime.session import Session
from tests.networks import small_config

NAMES = ("a", "b", "c")


def made() -> Answers:
    """Five answers: two right, and three wrong with the shares 0.9, 0.5 and 0.6."""
    shares = np.array([[0.8, 0.1, 0.1], [0.05, 0.9, 0.05], [0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
    labels = np.array([0, 0, 1, 0, 2])
    return Answers(Accuracy(5, 2, 5), np.arange(5), labels, shares)


def test_a_row_of_the_matrix_is_the_truth_and_a_column_the_answer() -> None:
    assert made().confusion.tolist() == [[1, 2, 0], [1, 0, 0], [0, 0, 1]]


def test_the_worst_mistakes_are_the_surest() -> None:
    assert made().worst(9) == [1, 3, 2]
    assert made().worst(1) == [1]


def test_the_commonest_confusion_comes_first_and_right_answers_are_none() -> None:
    assert made().confused(5) == [(0, 1, 2), (1, 0, 1)]


def test_answers_are_those_of_the_session() -> None:
    network = random_network(small_config(classes=3))
    size = network.config.image_size
    pixels = np.random.default_rng(1).integers(0, 256, (70, size, size, 3), dtype=np.uint8)
    labels = np.arange(70) % 3
    session = Session(network)
    answers = answer_images(session, ArrayImages(pixels, labels, NAMES), watched=5)
    assert (answers.predicted == session.run(pixels).argmax(axis=1)).all()
    assert answers.shares.sum(axis=1) == pytest.approx(1.0)
    assert answers.confusion.trace() == answers.evaluation.top1_correct
    assert answers.confusion.sum() == 70
    assert answers.evaluation.tally.images >= 5
