"""Evidence per class and rollout, against their definitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lapis.deploy import integer
from lapis.report.page import evidence
from lapis.report.page.evidence import by_occlusion, centred, describe_occlusion, mean_attention, rollout
from lapis.report.page.explain import explain_network
from lapis.runtime.session import Session


def test_occlusion_is_the_score_that_is_lost_with_the_patch(explain_deployed: Callable[[str], Any]) -> None:
    made = explain_deployed("unsigned")
    explained, found = made.explained, made.explained.evidence
    assert found.classes == tuple(np.argsort(-explained.logits, kind="stable")[:5])
    hidden = explained.image.copy()
    hidden[8:16, 16:24] = np.round(explained.image.reshape(-1, 3).mean(axis=0))
    without = made.source.real_logits(integer.run(made.source, hidden[None]))[0]
    lost = (centred(explained.logits) - centred(without))[list(found.classes)]
    np.testing.assert_allclose(found.values[:, 1, 2], lost, atol=1e-6)


def test_a_fine_grid_is_hidden_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "MAX_TILES", 9)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 20, 3), dtype=np.uint8)

    def brightness(images: np.ndarray) -> np.ndarray:
        """Class 0 counts the pixels of the first tile of 4 x 4 patches of one pixel that are as they were."""
        same = (images == pixels).all(axis=-1)
        return np.stack([same[:, :8, :8].sum(axis=(1, 2)), np.zeros(len(images))], axis=1)

    found = by_occlusion(brightness, pixels, np.array([64.0, 0.0]), 4)
    assert (found.side, found.values.shape) == (2, (2, 3, 3))
    assert "tile of 2 × 2 patches" in describe_occlusion(found.side)
    assert np.count_nonzero(found.values[0]) == 1
    assert found.values[0, 0, 0] == -found.values[1, 0, 0] > 0


def test_torch_and_integers_give_like_evidence(explain_torch: Any, explain_deployed: Any) -> None:
    in_torch, deployed = (make("unsigned").explained.evidence for make in (explain_torch, explain_deployed))
    assert set(in_torch.classes) == set(deployed.classes)


def test_an_image_is_cropped_once(explain_deployed: Callable[[str], Any]) -> None:
    network = explain_deployed("unsigned").source
    cropped = dataclasses.replace(network, preprocess=dataclasses.replace(network.preprocess, crop=0.5))
    image = np.random.default_rng(1).integers(0, 256, (40, 31, 3), dtype=np.uint8)
    explained = explain_network(cropped, image, evidence=False)
    np.testing.assert_array_equal(explained.logits, Session(cropped).run(image)[0])
    assert explained.evidence is None


@pytest.mark.parametrize("name", ["unsigned", "signed", "relative"])
def test_rollout_is_a_share_of_every_token(explain_deployed: Callable[[str], Any], name: str) -> None:
    explained = explain_deployed(name).explained
    share = rollout(explained)
    assert share is not None
    assert share.shape == (explained.config.tokens,)
    assert (share > 0).all()
    assert share.sum() == pytest.approx(1)
    np.testing.assert_allclose(mean_attention(explained, 0).sum(axis=-1), 1)
