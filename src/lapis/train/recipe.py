"""A recipe holds every setting of a training run. It is frozen; a changed copy is made by naming the settings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from lapis._util import overrides
from lapis.config import LapisConfig, MinCodeByPoint
from lapis.data.loader import Augment
from lapis.errors import LapisError
from lapis.nn.lift import LOWERED
from lapis.preprocess import Preprocess, normalisation

Dataset = Literal["cifar10", "cifar100", "imagenet", "sample", "folder"]
Precision = Literal["fp32", "bf16"]
SilenceRule = Literal["deadline", "lower", "top_k"]
# The points whose spikes drive a layer and are signed in the recipes of CIFAR-10; their mean is the activity of a run.
DRIVING = ("attention_in", "v", "readout", "mlp_in")


@dataclass(frozen=True)
class Data:
    """Which images to use. A limit of 0 takes all; steps and taus are found on `calibrate` images first.

    `crop` is the share of the shorter side that is kept of a test image.
    """

    dataset: Dataset = "cifar10"
    normalise: str = "imagenet"
    crop: float = 1.0
    limit: int = 0
    test_limit: int = 0
    calibrate: int = 64
    workers: int = 0

    def __post_init__(self) -> None:
        _choice("data.dataset", self.dataset, get_args(Dataset))
        normalisation(self.normalise)
        for name in ("limit", "test_limit", "workers"):
            _at_least(f"data.{name}", getattr(self, name), 0)
        _at_least("data.calibrate", self.calibrate, 1)


@dataclass(frozen=True)
class Optim:
    """AdamW, linear warm-up, cosine to zero. `batch` counts images over all processes and accumulated parts.

    step_scale multiplies the learning rate of steps, offsets and what relations learn; relation_scale multiplies that
    of relations once more, head_scale that of the classifier. `pull` weighs a loss that keeps the mean query and the
    mean key of each channel together: where all queries lie on one side of all keys, a distance compares nothing any
    more, and nothing else brings them back. `recompute` computes blocks again in the backward pass, for less memory;
    `compile` compiles them, for less time.
    """

    lr: float = 1e-4
    weight_decay: float = 0.05
    beta1: float = 0.9
    beta2: float = 0.999
    batch: int = 128
    accumulate: int = 1
    epochs: float = 100.0
    warmup_epochs: float = 5.0
    clip: float = 1.0
    ema: float = 0.0
    step_scale: float = 1.0
    relation_scale: float = 1.0
    head_scale: float = 1.0
    pull: float = 0.0
    precision: Precision = "bf16"
    recompute: bool = False
    compile: bool = False

    def __post_init__(self) -> None:
        _choice("optim.precision", self.precision, get_args(Precision))
        for name in ("batch", "accumulate"):
            _at_least(f"optim.{name}", getattr(self, name), 1)
        scales = ("step_scale", "relation_scale", "head_scale")
        for name in ("lr", "weight_decay", "warmup_epochs", "clip", *scales, "pull"):
            _at_least(f"optim.{name}", getattr(self, name), 0)
        if self.pull and self.compile:
            raise LapisError(f"optim.pull={self.pull} sees nothing of compiled blocks; set optim.compile=false")
        for name in ("beta1", "beta2", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise LapisError(f"optim.{name}={getattr(self, name)} must lie in 0..1, below 1")
        if self.epochs <= 0:
            raise LapisError(f"optim.epochs={self.epochs} must be above 0; a fraction of an epoch is allowed")


@dataclass(frozen=True)
class Distill:
    """loss = ce CE + logit KD + feature FD with a teacher; cross entropy alone without one.

    Tokens after student_blocks[i] are trained to match those after teacher_blocks[i] of the teacher, counted from 0.
    """

    teacher: str = ""
    ce: float = 0.5
    logit: float = 0.5
    feature: float = 0.5
    temperature: float = 4.0
    student_blocks: tuple[int, ...] = (2, 5, 8, 11)
    teacher_blocks: tuple[int, ...] = (5, 11, 17, 23)

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise LapisError(f"distill.temperature={self.temperature} must be above 0")


@dataclass(frozen=True)
class Sparsity:
    """Goals for the activity, the share of neurons that fire, at each measuring point; 1 sets no goal.

    The activity falls in a straight line from that of the first weights to the goal over the first `ramp` of all
    steps, by minimum codes that are chosen anew every `every` steps; after `settle` of all steps they stay as they are.
    `penalty` weighs a loss for activity above the goal; it grows from 0 in the same straight line. The rule `lower` is
    for unsigned points: instead of a deadline, their values are shifted down, see `lapis.nn.lift`. As a control, the
    rule `top_k` lets the largest values of each token fire instead; its goal is the lowest of all goals. With `basis`,
    the first weights are turned to axes in which few values are large, see `lapis.nn.basis`. With `weigh`, the goals
    hold for the mean of all points, and silence goes where the answer suffers least, see `lapis.train.sensitivity`.
    """

    attention_in: float = 1.0
    qk: float = 1.0
    v: float = 1.0
    readout: float = 1.0
    mlp_in: float = 1.0
    mlp_hidden: float = 1.0
    ramp: float = 0.6
    settle: float = 0.85
    every: int = 5
    penalty: float = 0.0
    rule: SilenceRule = "deadline"
    basis: bool = False
    weigh: bool = False

    def __post_init__(self) -> None:
        for name in (*self.goals(), "ramp", "settle"):
            if not 0 < getattr(self, name) <= 1:
                raise LapisError(f"sparsity.{name}={getattr(self, name)} must lie in 0..1, above 0")
        _at_least("sparsity.every", self.every, 1)
        _at_least("sparsity.penalty", self.penalty, 0)
        _choice("sparsity.rule", self.rule, get_args(SilenceRule))

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
    watched: int = 256

    def __post_init__(self) -> None:
        _at_least("keep.log_steps", self.log_steps, 1)
        for name in ("save_steps", "save_minutes", "watched"):
            _at_least(f"keep.{name}", getattr(self, name), 0)
        if self.evaluate_epochs <= 0:
            raise LapisError(f"keep.evaluate_epochs={self.evaluate_epochs} must be above 0")


@dataclass(frozen=True)
class Recipe:
    """One training run.

    `start` names the first weights: a file, a run's folder, a packaged or timm model, or nothing. `lift` shifts the
    values at unsigned points above zero where the first weights bring no calibration; `ignore_mean` makes the output
    projections blind to the mean value of a head, see `lapis.nn.lift`. `draw_qk` draws the weights of queries and keys
    anew, so that no relation profits from what they were trained for.
    """

    name: str
    model: LapisConfig
    start: str = ""
    lift: bool = False
    ignore_mean: bool = False
    draw_qk: bool = False
    data: Data = field(default_factory=Data)
    augment: Augment = field(default_factory=Augment)
    optim: Optim = field(default_factory=Optim)
    distill: Distill = field(default_factory=Distill)
    sparsity: Sparsity = field(default_factory=Sparsity)
    keep: Checkpointing = field(default_factory=Checkpointing)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.lift and self.sparsity.basis:
            raise LapisError("lift and sparsity.basis both choose the axes of values, for other ends; set one of them")
        for name, setting in (("ignore_mean", self.ignore_mean), ("optim.pull", self.optim.pull)):
            if setting and not self.model.quantize:
                raise LapisError(f"{name}={setting} is for networks that spike; this one has model.quantize=false")
        goals = [name for name, goal in self.sparsity.goals().items() if goal < 1]
        if self.sparsity.rule == "lower":
            for point in goals:
                if point not in LOWERED or getattr(self.model.coding, point) != "unsigned":
                    raise LapisError(
                        f"sparsity.rule=lower shifts unsigned values at {', '.join(LOWERED)}; sparsity.{point} is set, "
                        f"and {point} is {getattr(self.model.coding, point)}: use the rule deadline, or no goal there"
                    )
        if self.optim.compile and goals:
            raise LapisError(
                f"optim.compile=true with sparsity.{goals[0]}={getattr(self.sparsity, goals[0])}: goals change least "
                "codes every few steps, and each change would compile every block again; set one of them"
            )

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


def completed(saved: dict[str, Any]) -> dict[str, Any]:
    """The settings of a saved recipe; what was not yet a setting when it was saved has its default."""
    return _filled(saved, Recipe("", LapisConfig()).to_dict())


def _filled(saved: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    whole = defaults | saved
    return {
        name: _filled(value, defaults[name])
        if isinstance(value, dict) and isinstance(defaults.get(name), dict)
        else value
        for name, value in whole.items()
    }


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


def _choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise LapisError(f"{name}={value!r} is unknown; use {', '.join(map(str, allowed))}")


def _at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise LapisError(f"{name}={value} must be at least {least}")
