"""A recipe holds every setting of a training run. It is frozen; a changed copy is made by naming the settings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from lapis._util import overrides
from lapis._util.overrides import check_range
from lapis.config import CodingByPoint, LapisConfig, MinCodeByPoint
from lapis.data.loader import Augment
from lapis.errors import LapisError
from lapis.preprocess import Preprocess, normalisation

Dataset = Literal["cifar10", "cifar100", "imagenet", "sample", "folder", "unlabelled"]
# Datasets that hold out images by a rule of their own.
HOLDING_OUT = ("folder", "unlabelled")
Precision = Literal["fp32", "bf16"]
TrainingStage = Literal["labels", "blocks", "whole"]
# The points whose spikes drive a layer and are signed in the recipes of CIFAR-10; their mean is the activity of a run.
DRIVING = ("attention_in", "v", "readout", "mlp_in")
# Spikes of both signs where a dense network has negative values.
SIGNED = CodingByPoint(attention_in="signed", qk="signed", v="signed", readout="signed", mlp_in="signed")


@dataclass(frozen=True)
class Data:
    """Which images to use. A limit of 0 takes all; steps and taus are found on `calibrate` images first.

    `crop` is the share of the shorter side that is kept of a test image. `validate` training images are set aside, by a
    rule that no seed changes, and the run is evaluated on them, not on the test images; `test_limit` limits either.
    """

    dataset: Dataset = "cifar10"
    normalise: str = "imagenet"
    crop: float = 1.0
    limit: int = 0
    test_limit: int = 0
    validate: int = 0
    calibrate: int = 64
    workers: int = 0

    def __post_init__(self) -> None:
        normalisation(self.normalise)
        check_range("data", self, ("limit", "test_limit", "validate", "workers"), 0)
        check_range("data", self, ("calibrate",), 1)
        if self.validate and self.dataset in HOLDING_OUT:
            raise LapisError(f"data.dataset={self.dataset} holds images out by itself; leave data.validate at 0")

    @property
    def evaluated(self) -> str:
        """The images that a run is evaluated on."""
        return "validation" if self.validate else "held-out" if self.dataset in HOLDING_OUT else "test"


@dataclass(frozen=True)
class Optim:
    """AdamW, linear warm-up, cosine to zero. `batch` counts images over all processes and accumulated parts.

    head_scale multiplies the learning rate of the classifier. With an `average` above 0, the network that is tested and
    saved is the moving average of the weights, a <- average a + (1 - average) w. `recompute` computes blocks again in
    the backward pass, for less memory.
    """

    lr: float = 1e-4
    weight_decay: float = 0.05
    batch: int = 128
    accumulate: int = 1
    epochs: float = 100.0
    warmup_epochs: float = 5.0
    clip: float = 1.0
    head_scale: float = 1.0
    average: float = 0.0
    precision: Precision = "bf16"
    recompute: bool = False

    def __post_init__(self) -> None:
        check_range("optim", self, ("batch", "accumulate"), 1)
        check_range("optim", self, ("lr", "weight_decay", "warmup_epochs", "clip", "head_scale"), 0)
        check_range("optim", self, ("epochs",), 0, above=True)
        check_range("optim", self, ("average",), 0, 0.999999)


@dataclass(frozen=True)
class Distill:
    """loss = ce CE + logit KD + feature FD with a teacher; cross entropy alone without one.

    Tokens after student_blocks[i] are trained to match those after teacher_blocks[i] of the teacher, counted from 0.
    The stages `blocks` and `whole` of a recipe know no labels: there the loss is tokens (errors of all blocks) + logit
    KD, see `lapis.train.objective.BlockObjective`. In the folder `cache` the teacher's logits are kept for runs that
    see the same views.
    """

    teacher: str = ""
    ce: float = 0.5
    logit: float = 0.5
    feature: float = 0.5
    temperature: float = 4.0
    student_blocks: tuple[int, ...] = (2, 5, 8, 11)
    teacher_blocks: tuple[int, ...] = (5, 11, 17, 23)
    tokens: float = 1.0
    cache: str = ""

    def __post_init__(self) -> None:
        check_range("distill", self, ("temperature",), 0, above=True)


@dataclass(frozen=True)
class Sparsity:
    """Goals for the activity, the share of values that spike, at each measuring point; 1 sets no goal.

    The activity falls in a straight line from that of the first weights to the goal over the first `ramp` of all
    steps, by minimum codes that are chosen anew every `every` steps; after `freeze_after` of all steps they stay the
    same. With `rotate_basis`, the first weights are rotated to axes in which few values are large, see
    `lapis.nn.symmetry`. With `sensitivity_weighted`, the goals hold for the mean of all points, and silence goes where
    the answer suffers least, see `lapis.train.sparsity`. Where values are unsigned, negative ones fall silent over the
    first `fade` of all steps instead of at once, and silent ones get a gradient of `silent_gradient`, less and less
    over the last `1 - freeze_after` of all steps, see `lapis.nn.quantizer`.
    """

    attention_in: float = 1.0
    qk: float = 1.0
    v: float = 1.0
    readout: float = 1.0
    mlp_in: float = 1.0
    mlp_hidden: float = 1.0
    ramp: float = 0.6
    freeze_after: float = 0.85
    every: int = 5
    rotate_basis: bool = False
    sensitivity_weighted: bool = False
    fade: float = 0.0
    silent_gradient: float = 0.0

    def __post_init__(self) -> None:
        check_range("sparsity", self, (*self.goals(), "ramp", "freeze_after"), 0, 1, above=True)
        check_range("sparsity", self, ("fade", "silent_gradient"), 0, 1)
        check_range("sparsity", self, ("every",), 1)

    def goals(self) -> dict[str, float]:
        """The goal of every measuring point."""
        return {point.name: getattr(self, point.name) for point in dataclasses.fields(MinCodeByPoint)}


@dataclass(frozen=True)
class Checkpointing:
    """How often a run evaluates, logs and saves; with save_steps=0, only save_minutes counts."""

    evaluate_epochs: float = 1.0
    log_steps: int = 20
    save_steps: int = 0
    save_minutes: float = 5.0

    def __post_init__(self) -> None:
        check_range("checkpoint", self, ("log_steps",), 1)
        check_range("checkpoint", self, ("save_steps", "save_minutes"), 0)
        check_range("checkpoint", self, ("evaluate_epochs",), 0, above=True)


@dataclass(frozen=True)
class Recipe:
    """One training run.

    `stage` says what is learned: labels; a teacher's blocks, each alone; or a teacher's answers and tokens as a whole.
    `start` names the first weights: a file, a run's folder, a packaged or timm model, or nothing.
    """

    model: LapisConfig
    name: str = ""
    stage: TrainingStage = "labels"
    start: str = ""
    data: Data = field(default_factory=Data)
    augment: Augment = field(default_factory=Augment)
    optim: Optim = field(default_factory=Optim)
    distill: Distill = field(default_factory=Distill)
    sparsity: Sparsity = field(default_factory=Sparsity)
    checkpoint: Checkpointing = field(default_factory=Checkpointing)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.stage != "labels" and not self.distill.teacher:
            raise LapisError(f"stage={self.stage} learns from a teacher; name one by distill.teacher")
        if self.distill.cache and (self.stage != "labels" or self.distill.feature):
            raise LapisError("distill.cache keeps logits only; use it with stage=labels and distill.feature=0")
        if self.stage != "labels" and self.sparsity.rotate_basis and self.start != self.distill.teacher:
            raise LapisError(f"stage={self.stage} rotates the teacher too, and so must start from its weights")

    @property
    def preprocess(self) -> Preprocess:
        """How images are prepared for the trained network."""
        mean, std = normalisation(self.data.normalise)
        return Preprocess(self.model.image_size, mean, std, "bicubic", self.data.crop)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def with_overrides(self, settings: list[str]) -> Recipe:
        """A copy with all `a.b=c` settings applied; the last value of a key counts."""
        recipe: Recipe = overrides.apply(self, settings)
        return recipe


def differences(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> list[str]:
    """`key: one against other` for every value in which two recipes differ."""
    found: list[str] = []
    for name in sorted({*one, *other}):
        a, b = one.get(name), other.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{prefix}{name}.")
        elif a != b and not (isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and list(a) == list(b)):
            found.append(f"{prefix}{name}: {a!r} against {b!r}")
    return found
