"""Accuracy counted in shards equals accuracy counted at once, and shards are merged only when whole."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lapis.errors import LapisError
from lapis.runtime import Evaluation, Session, evaluate_session, merge
from tests.networks import images_for, wide_network

COUNT = 23


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(wide_network(depth=1))


def test_shards_merge_to_the_whole(session: Session) -> None:
    images = np.random.default_rng(1).integers(0, 256, (COUNT, 20, 20, 3), dtype=np.uint8)
    logits = session.run(images)
    labels = np.where(np.arange(COUNT) % 3 == 0, logits.argmax(axis=1), 0)
    whole = evaluate_session(session, images, labels, batch=4)
    assert whole.correct == int((logits.argmax(axis=1) == labels).sum())
    order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    assert whole.correct5 == int((order == labels[:, None]).any(axis=1).sum())
    shards = [evaluate_session(session, images, labels, batch=5, shard=(i, 4)) for i in range(4)]
    merged = merge(Evaluation.from_dict(json.loads(json.dumps(shard.to_dict()))) for shard in reversed(shards))
    assert (merged.images, merged.correct, merged.correct5) == (COUNT, whole.correct, whole.correct5)
    assert merged.top1 == whole.top1


def test_progress_ends_at_the_count(session: Session) -> None:
    seen: list[tuple[int, int]] = []
    evaluate_session(session, images_for(wide_network(), 7), [0] * 7, batch=3, progress=lambda *step: seen.append(step))
    assert seen == [(3, 7), (6, 7), (7, 7)]


def test_shards_that_do_not_fit_together_are_refused() -> None:
    def part(shard: int, of: int = 2, total: int = 10, images: int = 5) -> Evaluation:
        return Evaluation(images, 1, 2, total, (shard,), of)

    for parts, reason in [
        ([], "no results"),
        ([part(0)], r"missing: \[1\]"),
        ([part(0), part(1), part(1)], r"twice: \[1\]"),
        ([part(0), part(1, of=3)], "different"),
        ([part(0), part(1, images=4)], "cut short"),
    ]:
        with pytest.raises(LapisError, match=reason):
            merge(parts)


@pytest.mark.parametrize("fields", [{}, {"images": 1}, None, {**Evaluation(1, 1, 1, 1).to_dict(), "correct": -1}])
def test_a_damaged_result_is_refused(fields: object) -> None:
    with pytest.raises(LapisError, match="evaluation"):
        Evaluation.from_dict(fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0), (30, 31)])
def test_a_shard_that_holds_nothing_is_refused(session: Session, shard: tuple[int, int]) -> None:
    with pytest.raises(LapisError, match="shard"):
        evaluate_session(session, images_for(wide_network(), 3), [0, 1, 2], shard=shard)


def test_images_and_labels_must_match(session: Session) -> None:
    with pytest.raises(LapisError, match="3 images came with 2 labels"):
        evaluate_session(session, images_for(wide_network(), 3), [0, 1])
