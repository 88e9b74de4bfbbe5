"""Real weights, real images: DeiT-Ti imported at 96 pixels, calibrated on CIFAR-10, as integers and as spikes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lapis.config import CodingByPoint, preset
from lapis.convert.executors import stagewise_executor
from lapis.convert.fold import from_model
from lapis.convert.verification import spiking_executor, verify
from lapis.data.packaged import packaged_images
from lapis.deploy.simulate import Events
from lapis.nn import calibrate, load_backbone
from lapis.nn.pixels import normalise
from lapis.pack import load, save
from lapis.preprocess import Preprocess

MIXED = CodingByPoint(attention_in="signed", qk="signed", v="signed", readout="signed", mlp_in="signed")


@pytest.mark.parametrize("coding", [CodingByPoint(), MIXED], ids=["unsigned", "mixed"])
def test_an_imported_backbone_answers_alike_as_integers_and_as_spikes(
    coding: CodingByPoint, deit_weights: Path, tmp_path: Path
) -> None:
    preprocess = Preprocess(96)
    images = np.stack([preprocess.resize(image) for image in packaged_images().pixels[:9]])
    config = preset("lapis_tiny", image_size=96, classes=10, coding=coding).deployed()
    torch.manual_seed(0)
    model = load_backbone(deit_weights, config)
    calibrate(model, [normalise(torch.from_numpy(images[1:]), preprocess)])
    save(tmp_path / "packed.safetensors", from_model(model, preprocess))
    network, events = load(tmp_path / "packed.safetensors"), Events()
    executors = {"spikes": spiking_executor(network, events), "stages": stagewise_executor(model, network)}
    report = verify(network, executors, [(images[:1], None)])
    spikes, stages = report.agreements
    assert (spikes.differing, spikes.logits_differing, spikes.codes) == (0, 0, 12 * 37 * 192 * 10)
    assert stages.passed
    assert events.window_steps == 5 * 12 * 15
