"""What the demo measures is what a session answers to the same images."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from lapis import pack
from lapis.preprocess import Preprocess
from lapis.report import checks
from lapis.trace import Tally
from tests.networks import small_config, small_network


def test_a_cropped_image_is_cropped_once(tmp_path: Path) -> None:
    network, _ = small_network(small_config())
    cropping = dataclasses.replace(network, preprocess=Preprocess(network.config.image_size, crop=0.5))
    pack.save(tmp_path / "cropping.safetensors", cropping)
    subject = checks.open_subject(tmp_path / "cropping.safetensors")
    images = np.random.default_rng(0).integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)
    expected = Tally()
    expected.add(subject.session.watch(images).trace)
    assert checks.measure_energy(subject, images)[0] == expected
