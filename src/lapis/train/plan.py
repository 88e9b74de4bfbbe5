"""The stages that lead from any network to a deployed one for other images, and how long each of them trains."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lapis.config import DEPLOYED, DEPLOYED_BITS, FLOAT_WEIGHTS, LapisConfig
from lapis.data.class_folders import SplitImages
from lapis.data.loader import Augment
from lapis.errors import LapisError
from lapis.models import Model
from lapis.preprocess import NORMALISATIONS, Preprocess
from lapis.train.objective import check_teacher
from lapis.train.recipe import SIGNED, Checkpointing, Data, Distill, Optim, Recipe

# In a folder of its own, so that no network that is named after its images can replace it.
START_FILE = "0_start/start.safetensors"
# Bytes of a name; file systems take 255 with the suffix.
MAX_NAME = 240
# A set is seen this often, but not for more images than that in all, and at least once.
MOST_EPOCHS, USUAL_EPOCHS = 40.0, 20.0
LEAST_SEEN, MOST_SEEN = 4_000, 100_000
# From this size on, a start knows photographs and an image costs several times as much: half of the epochs do.
LARGE_SIZE, LARGE_SHARE = 192, 0.5
LARGEST_BATCH, SMALLEST_BATCH = 64, 4
# Steps per epoch that a batch should leave, so that small sets still take several.
STEPS_PER_EPOCH = 8
# Epochs of each stage as a share of the first, as in the recipes of CIFAR-10.
LATER_STAGES = {"pow2": 0.25, "w6": 0.5}
RATES = {"exact": 2e-4, "pow2": 1e-4, "w6": 1e-4}
WARMUP_SHARE = 0.05
# A batch that would keep more than this is taken in parts, whose gradients are added; and what a process takes besides.
STEP_BYTES, PROCESS_BYTES = 2 << 30, 600 << 20


@dataclass(frozen=True)
class Plan:
    """What a fine-tuning will do: the images of `folder`, the stages with their recipes, and where files go.

    A `fast` one fits the head only; without it, the same plan goes on from there.
    """

    folder: Path
    out: Path
    name: str
    source: str
    images: SplitImages
    stages: dict[str, Recipe]
    fast: bool = False

    def stage_folder(self, stage: str) -> Path:
        return self.out / f"{1 + list(self.stages).index(stage)}_{stage}"

    def steps(self, stage: str) -> int:
        """Optimizer steps of a stage."""
        optim = self.stages[stage].optim
        return max(1, round(optim.epochs * (len(self.images.train) // optim.batch)))

    def memory_bytes(self) -> int:
        """About how much memory the largest stage takes, on a CPU."""
        return PROCESS_BYTES + max(
            bytes_per_image(recipe.model) * -(-recipe.optim.batch // recipe.optim.accumulate)
            for recipe in self.stages.values()
        )

    def to_dict(self) -> dict[str, Any]:
        """What a continued fine-tuning must have in common with its beginning."""
        return {
            "images": self.images.fingerprint(),
            "start": self.source,
            "stages": {stage: recipe.to_dict() for stage, recipe in self.stages.items()},
        }


@dataclass(frozen=True)
class Choices:
    """What a person may choose: epochs of the first stage, a teacher, settings for every stage, and the head only."""

    epochs: float | None = None
    teacher: Model | None = None
    settings: tuple[str, ...] = ()
    fast: bool = False


def make_plan(folder: Path, images: SplitImages, opened: Model, out: Path, name: str, choices: Choices) -> Plan:
    """The plan for these images from this start; each stage starts from the one before."""
    if len(os.fsencode(name)) > MAX_NAME:
        raise LapisError(
            f"the folder's name has {len(os.fsencode(name))} bytes, and the network is named after it; rename it to at "
            f"most {MAX_NAME}"
        )
    stages: dict[str, Recipe] = {}
    plan = Plan(folder, out, name, opened.source, images, stages, choices.fast)
    previous = out / START_FILE
    # The images are normalised as the start's were.
    preprocess, calibrate = opened.preprocess, min(64, len(images.train))
    data = Data("folder", normalisation_name(preprocess), preprocess.crop, calibrate=calibrate)
    first = choices.epochs or usual_epochs(len(images.train), opened.config.image_size)
    configs = stage_configs(opened.config.replace(classes=len(images.classes)))
    if choices.fast and len(configs) > 1:
        raise LapisError(f"--fast keeps the weights of its start, and {opened.source} is not a deployed network")
    for stage, config in configs.items():
        epochs = first * (LATER_STAGES.get(stage, 1.0) if stages else 1.0)
        recipe = Recipe(
            name=f"{name}_{stage}",
            model=config,
            start=str(previous),
            data=data,
            # Images that are seen often, those of a small set, are varied more.
            augment=Augment(smallest_area=0.35 if epochs > USUAL_EPOCHS else 0.5),
            optim=_optim(stage, len(images.train), epochs, config),
            distill=_distill(choices.teacher, config),
            # One test, at the end: the held-out images never choose a network.
            checkpoint=Checkpointing(evaluate_epochs=epochs, log_steps=10),
        )
        stages[stage] = _settled(recipe, choices.settings, images)
        if choices.teacher is not None:
            check_teacher(stages[stage], choices.teacher.config)
        previous = plan.stage_folder(stage)
    return plan


def stage_configs(start: LapisConfig) -> dict[str, LapisConfig]:
    """The configuration of every stage, the last one deployed: one stage if the start is deployed already."""
    spiking = all(getattr(start, name) == value for name, value in DEPLOYED.items())
    if spiking and start.weight_bits != FLOAT_WEIGHTS:
        return {f"w{start.weight_bits}": start}
    stages = {}
    if not spiking:
        exact = start.replace(quantize=True, relation="laplacian", row_scale="exact", readout="real")
        exact = exact.replace(weight_bits=FLOAT_WEIGHTS, coding=start.coding if start.quantize else SIGNED)
        stages["exact"] = exact
    base = stages.get("exact", start)
    return stages | {"pow2": base.deployed(FLOAT_WEIGHTS), "w6": base.deployed(DEPLOYED_BITS)}


def usual_epochs(images: int, image_size: int) -> float:
    """Epochs of a first stage: more for a small set, fewer for a large one or for large images, which cost more."""
    share = LARGE_SHARE if image_size >= LARGE_SIZE else 1.0
    seen = share * min(max(USUAL_EPOCHS * images, LEAST_SEEN), MOST_SEEN)
    return float(min(max(1, round(seen / images)), MOST_EPOCHS))


def usual_batch(images: int) -> int:
    """A power of two that leaves some steps per epoch."""
    wanted = 1 << max(1, images // STEPS_PER_EPOCH).bit_length() - 1
    return min(max(wanted, SMALLEST_BATCH), LARGEST_BATCH)


def bytes_per_image(config: LapisConfig) -> int:
    """About what a training step keeps of one image in FP32, from peaks that were measured at 128, 224 and 320 px."""
    per_token = config.width * (14 + 2 * config.mlp_ratio)
    return round(4 * config.depth * config.tokens * (per_token + 3.5 * config.heads * config.tokens))


def _optim(stage: str, images: int, epochs: float, config: LapisConfig) -> Optim:
    batch = usual_batch(images)
    rate = RATES.get(stage, RATES["w6"]) * math.sqrt(batch / LARGEST_BATCH)
    parts = min(batch, -(-batch * bytes_per_image(config) // STEP_BYTES))
    return Optim(
        lr=rate, batch=batch, accumulate=parts, epochs=epochs, warmup_epochs=WARMUP_SHARE * epochs, precision="fp32"
    )


def normalisation_name(preprocess: Preprocess) -> str:
    """What recipes call the normalisation of a start."""
    named = [name for name, rule in NORMALISATIONS.items() if rule == (preprocess.mean, preprocess.std)]
    if not named:
        raise LapisError(
            f"the start normalises images by mean {preprocess.mean} and std {preprocess.std}, which has no name here; "
            f"use a start with one of {', '.join(NORMALISATIONS)}"
        )
    return named[0]


def _distill(teacher: Model | None, student: LapisConfig) -> Distill:
    if teacher is None:
        return Distill()
    count = min(4, student.depth, teacher.config.depth)
    # The last block of each of `count` parts of a network: 2, 5, 8, 11 of 12 blocks in 4 parts.
    depths = (student.depth, teacher.config.depth)
    ours, theirs = (tuple(depth * (index + 1) // count - 1 for index in range(count)) for depth in depths)
    return Distill(teacher.source, student_blocks=ours, teacher_blocks=theirs)


def _settled(recipe: Recipe, settings: tuple[str, ...], images: SplitImages) -> Recipe:
    """The recipe with a person's settings; what follows from the folder stays."""
    changed = recipe.with_overrides(list(settings))
    if changed.model.classes != len(images.classes):
        raise LapisError(
            f"model.classes={changed.model.classes}, but the folder has {len(images.classes)} classes; they are counted"
        )
    if changed.start != recipe.start or changed.data.dataset != recipe.data.dataset:
        raise LapisError("the start and the images of a fine-tuning are not settings; use --start and the folder")
    if changed.optim.batch > len(images.train):
        raise LapisError(f"optim.batch={changed.optim.batch} exceeds the {len(images.train)} training images")
    if changed.optim.epochs != recipe.optim.epochs:
        changed = replace(changed, checkpoint=replace(changed.checkpoint, evaluate_epochs=changed.optim.epochs))
    return changed
