"""The accuracy of a session is that of its answers, counted one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lapis.errors import LapisError
from lapis.preprocess import Preprocess
from lapis.runtime import Session, evaluate_session
from lapis.trace import Tally
from tests.networks import images_for, small_config, small_network, wide_network

COUNT = 23


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(wide_network(depth=1))


def test_correct_answers_are_counted(session: Session) -> None:
    images = np.random.default_rng(1).integers(0, 256, (COUNT, 20, 20, 3), dtype=np.uint8)
    logits = session.run(images)
    labels = np.where(np.arange(COUNT) % 3 == 0, logits.argmax(axis=1), 0)
    whole = evaluate_session(session, images, labels, batch=4)
    assert whole.top1_correct == int((logits.argmax(axis=1) == labels).sum())
    order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    assert whole.top5_correct == int((order == labels[:, None]).any(axis=1).sum())
    assert whole.top1 == 100 * whole.top1_correct / COUNT
    other = evaluate_session(session, images, labels, batch=5)
    assert (other.hits, other.top5_correct) == (whole.hits, whole.top5_correct)


def test_progress_ends_at_the_count(session: Session) -> None:
    seen: list[tuple[int, int]] = []
    evaluate_session(session, images_for(wide_network(), 7), [0] * 7, batch=3, progress=lambda *step: seen.append(step))
    assert seen == [(3, 7), (6, 7), (7, 7)]


def test_images_and_labels_must_match(session: Session) -> None:
    with pytest.raises(LapisError, match="3 images came with 2 labels"):
        evaluate_session(session, images_for(wide_network(), 3), [0, 1])


def test_nothing_to_evaluate_on_is_an_error(session: Session) -> None:
    with pytest.raises(LapisError, match="no images to evaluate on"):
        evaluate_session(session, [], [])


def test_spikes_are_counted_on_images_that_are_cropped_once() -> None:
    network, _ = small_network(small_config())
    session = Session(replace(network, preprocess=Preprocess(network.config.image_size, crop=0.5)))
    images = np.random.default_rng(0).integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)
    expected = Tally()
    expected.add(session.watch(images).trace)
    assert evaluate_session(session, images, [0] * 5, watched=5).tally == expected
