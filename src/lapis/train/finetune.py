"""Fine-tune a network on a folder of images and pack it: a new head, then the stages of a plan, one after the other.

The head is a logistic regression on the features that the network already computes: training then starts from answers
that are about right instead of from noise, which matters most where images are few.

Everything is in the folder `plan.out`. A finished part is never repeated, so the same plan continues what was stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lapis import models, pack
from lapis._util.files import remove_unfinished, write_text
from lapis._util.progress import Display
from lapis._util.run_layout import LOCK_FILE
from lapis.data.class_folders import unreadable
from lapis.data.images import Images, spread
from lapis.data.loader import UNREADABLE_SHARE, TestBatches
from lapis.errors import LapisError
from lapis.nn.checkpoint import save_network
from lapis.nn.model import LapisViT
from lapis.nn.pixels import normalise
from lapis.preprocess import Preprocess
from lapis.train.distributed import Processes
from lapis.train.loop import train_or_resume
from lapis.train.objective import load_teacher, make_objective
from lapis.train.plan import START_FILE, Plan
from lapis.train.recipe import differences
from lapis.train.run_lock import lock_folder
from lapis.train.start import prepare_student, start_network
from lapis.train.state import read_record
from lapis.train.step import step_seconds

PLAN_FILE = "plan.json"
SHOWN_UNREADABLE = 3
# Images of the step that is measured.
MEASURED_IMAGES = 8
# More images hardly change a classifier of a few hundred weights per class.
MOST_IMAGES, HEAD_BATCH = 2000, 50
# The penalty on squared weights, for features of unit variance; it keeps separable classes from growing without bound.
PENALTY = 1e-2
ITERATIONS = 100

ReportLine = Callable[[str, str], None]


@dataclass(frozen=True)
class FineTuned:
    """The packed file, its size, and the summary of every stage's run; none where only the head was fitted."""

    file: Path
    size: int
    stages: dict[str, dict[str, Any]]


def is_started(plan: Plan) -> bool:
    """Whether `plan.out` holds a fine-tuning, which must be of this plan."""
    out, file = plan.out, plan.out / PLAN_FILE
    if not file.is_file():
        if out.exists() and (not out.is_dir() or any(item.name != LOCK_FILE for item in out.iterdir())):
            raise LapisError(f"{out} exists and holds no fine-tuning; choose another --out")
        return False
    changed = differences(read_record(file), _plain(plan))
    if changed:
        words = ["the images of the folder" if line.startswith("images:") else line for line in changed]
        raise LapisError(f"{out} was started otherwise ({'; '.join(words[:4])}); choose another --out")
    return True


def expected_minutes(plan: Plan, processes: Processes) -> float:
    """How long a plan takes, from the measured time of a step on a few images of noise."""
    recipe = next(iter(plan.stages.values()))
    recipe, optim = replace(recipe, start=plan.source), recipe.optim
    size, count = recipe.model.image_size, min(MEASURED_IMAGES, optim.batch)
    noise = torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0)).to(processes.device)
    teacher = load_teacher(recipe, processes.device)
    student = prepare_student(recipe, noise, teacher)
    tests = 1 + (0 if plan.fast else len(plan.stages))
    forward = min(len(plan.images.train), MOST_IMAGES) + len(plan.images.held_out) * tests
    seconds = forward * _forward_seconds(student, noise) / count
    if not plan.fast:
        objective = make_objective(student, teacher, recipe, noise)
        trained = sum(plan.steps(name) * each.optim.batch for name, each in plan.stages.items())
        seconds += trained * step_seconds(objective, teacher, optim, noise, recipe.model.classes) / count
    return seconds / 60


@torch.no_grad()
def _forward_seconds(model: LapisViT, images: Tensor) -> float:
    model.eval()
    for _ in range(2):  # the first pays for what is made once
        started = time.monotonic()
        model(images)
    return time.monotonic() - started


def finetune(plan: Plan, processes: Processes, quiet: bool, report: ReportLine) -> FineTuned | None:
    """Run the plan, or what is left of it; None if it was stopped."""
    with lock_folder(plan.out):
        return _finetune(plan, processes, quiet, report)


def _finetune(plan: Plan, processes: Processes, quiet: bool, report: ReportLine) -> FineTuned | None:
    if not is_started(plan):
        _check_readable(plan, quiet, report)
        _create(plan)
    remove_unfinished(plan.out)
    if plan.fast and plan.stage_folder(next(iter(plan.stages))).exists():
        raise LapisError(f"{plan.out} holds a training already; leave out --fast, or choose another --out")
    if not (plan.out / START_FILE).is_file():
        _prepare_start(plan, processes, quiet)
    file = plan.out / f"{plan.name}.safetensors"
    if plan.fast:
        return FineTuned(file, pack.save(file, models.load(plan.out / START_FILE).network), {})
    summaries: dict[str, dict[str, Any]] = {}
    for number, (stage, recipe) in enumerate(plan.stages.items(), start=1):
        summary = train_or_resume(recipe, plan.folder, plan.stage_folder(stage), processes, quiet)
        if summary["interrupted"]:
            return None
        summaries[stage] = summary
        report(
            f"{stage}",
            f"stage {number} of {len(plan.stages)}: {summary['top1']:.2f} % of {summary['images']} held-out images "
            f"after {summary['steps']} steps, {summary['seconds']:.0f} s",
        )
    size = pack.save(file, models.load(plan.stage_folder(stage)).network)
    return FineTuned(file, size, summaries)


def _plain(plan: Plan) -> dict[str, Any]:
    """The plan as it is read back from JSON."""
    fields: dict[str, Any] = json.loads(json.dumps(plan.to_dict()))
    return fields


def _create(plan: Plan) -> None:
    try:
        plan.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LapisError(f"cannot make the folder {plan.out}: {error.strerror}; choose another --out") from error
    write_text(plan.out / PLAN_FILE, json.dumps(_plain(plan), indent=2) + "\n")


def _check_readable(plan: Plan, quiet: bool, report: ReportLine) -> None:
    """Read every image once, which costs less than an epoch, before anything is trained or written."""
    parts = (plan.images.train, plan.images.held_out)
    total, done = sum(map(len, parts)), 0
    bad: list[str] = []
    with Display("read images", total, quiet=quiet) as display:
        for part in parts:
            bad += unreadable(part, lambda read, before=done: display.update(before + read)).values()  # type: ignore[misc]
            done += len(part)
    if len(bad) > UNREADABLE_SHARE * total:
        shown = "; ".join(bad[:SHOWN_UNREADABLE])
        raise LapisError(f"{len(bad)} of {total} images cannot be read: {shown}; repair or remove them")
    for line in bad:
        report("images", f"left out: {line}")


def _prepare_start(plan: Plan, processes: Processes, quiet: bool) -> None:
    """The first weights with a head for the new classes, in the configuration that they have."""
    recipe = next(iter(plan.stages.values()))
    opened = models.load(plan.source)
    config = opened.config.replace(classes=recipe.model.classes, image_size=recipe.model.image_size)
    model = start_network(config, plan.source, recipe.seed).to(processes.device)
    count = min(len(plan.images.train), MOST_IMAGES)
    with Display("fit the head", count, quiet=quiet) as display:
        fit_head(model, plan.images.train, recipe.preprocess, display.update)
    metadata: dict[str, Any] = {
        "state": "imported, with a new head",
        "preprocess": recipe.preprocess.to_dict(),
        "class_names": list(plan.images.classes),
    }
    save_network(plan.out / START_FILE, model, metadata)


@torch.no_grad()
def fit_head(
    model: LapisViT, images: Images, preprocess: Preprocess, progress: Callable[[int], None] = lambda done: None
) -> None:
    """Replace the weights of the network's head, from training images without augmentation.

    `progress` is told how many images have been seen.
    """
    seen: list[Tensor] = []
    labels: list[Tensor] = []
    device = model.eval().classifier.weight.device
    for batch in TestBatches(spread(images, MOST_IMAGES), preprocess, HEAD_BATCH, device=device):
        if len(batch.pixels):
            tokens = model.forward_features(normalise(batch.pixels, preprocess))
            seen.append(model.forward_head(tokens, pre_logits=True).float())
            labels.append(batch.labels.to(device))
            progress(sum(map(len, labels)))
    features = torch.cat(seen)
    mean, deviation = features.mean(dim=0), features.std(dim=0).clamp_min(1e-6)
    weight, bias = _regress((features - mean) / deviation, torch.cat(labels), model.config.classes)
    weight = weight / deviation
    model.classifier.weight.copy_(weight)
    model.classifier.bias.copy_(bias - weight @ mean)


def _regress(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Weights (classes, D) and biases (classes,) of least cross entropy plus penalty; a convex problem."""
    weight = torch.zeros(classes, features.shape[1], device=features.device, requires_grad=True)
    bias = torch.zeros(classes, device=features.device, requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        with torch.enable_grad():
            value = F.cross_entropy(features @ weight.T + bias, labels) + PENALTY * weight.square().sum()
            value.backward()
        return value

    solver.step(loss)
    return weight.detach(), bias.detach()
