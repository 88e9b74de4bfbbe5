"""Distil a dense ViT into a deployed Lapis network, without labels: stages blocks, whole and silence.

Every stage is a run of `lapis.train.loop` with `stage="blocks"` or `"whole"` in its recipe, in the deployed form from
the first step (see `lapis.train.objective`). Everything is in one folder: the list of images, the plan, and a run per
stage. A finished stage is never repeated, so the same call continues what was stopped, bit for bit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from lapis import models, pack
from lapis._util.files import read_json, remove_unfinished, write_text
from lapis._util.progress import Display
from lapis.config import DEPLOYED_BITS, LapisConfig
from lapis.data.images import FileImages, Images
from lapis.data.loader import Augment, TestBatches
from lapis.data.unlabelled import UnlabelledImages, drop_unreadable, find_images, load_list, save_list, split_images
from lapis.errors import LapisError
from lapis.nn.model import LapisViT
from lapis.nn.pixels import normalise
from lapis.preprocess import Preprocess
from lapis.train.distributed import Processes, choose_device
from lapis.train.objective import block_errors, make_objective
from lapis.train.plan import SIGNED
from lapis.train.recipe import Checkpointing, Data, Distill, Optim, Recipe, Sparsity
from lapis.train.resume import train_or_resume
from lapis.train.run_lock import lock_folder
from lapis.train.start import prepare_student
from lapis.train.teacher import load_teacher

PLAN_FILE, LIST_FILE, SOURCE_FILE, BEFORE_FILE = "plan.json", "images.json", "source.safetensors", "before.json"
BATCH = 32
# ImageNet's usual centre crop, which a file of weights does not record.
CROP = 0.875
# Images on which the errors of blocks are measured.
PROBED = 32

ReportLine = Callable[[str, str], None]


@dataclass(frozen=True)
class Stage:
    """How one stage trains: the learning rate, the usual steps, and its share of a budget of time."""

    rate: float
    steps: int
    share: float
    tokens: float = 1.0
    average: float = 0.0
    clip: float = 5.0


STAGES = {
    "blocks": Stage(4e-4, 700, 0.5),
    "whole": Stage(1e-4, 600, 0.5, tokens=0.05, average=0.995, clip=1.0),
    "silence": Stage(1e-4, 600, 0.5, tokens=0.05, average=0.995, clip=1.0),
}
# A stage of fewer steps than this does not pay; its time goes to the first.
LEAST_STEPS = 60


@dataclass(frozen=True)
class DistillPlan:
    """The stages with their recipes, the folder of the runs, and what one step of each was measured to take."""

    source: str
    folder: Path
    stages: dict[str, Recipe]
    steps: dict[str, int]
    seconds_per_step: dict[str, float]
    memory_gb: float

    def stage_folder(self, stage: str) -> Path:
        return self.folder / f"{1 + list(self.stages).index(stage)}_{stage}"

    @property
    def minutes(self) -> float:
        """The expected time of all stages."""
        return sum(self.steps[stage] * self.seconds_per_step[stage] for stage in self.stages) / 60


@dataclass(frozen=True)
class Distilled:
    """The packed file, and how near it is to its dense source; see `lapis.report.distill` for the page."""

    file: Path
    size: int
    plan: DistillPlan
    summaries: dict[str, dict[str, Any]]
    before: dict[str, Any]
    after: dict[str, Any]
    held_aside: FileImages


def distill(
    source: str | Path | nn.Module,
    images: Sequence[str | Path],
    file: str | Path,
    *,
    folder: str | Path | None = None,
    minutes: float | None = None,
    goal: float | None = None,
    class_names: Sequence[str] = (),
    settings: Sequence[str] = (),
    processes: Processes | None = None,
    quiet: bool = True,
    report: ReportLine = lambda step, text: None,
) -> Distilled | None:
    """Distil the dense network `source` on the images of some folders into the packed `file`; None if stopped.

    source: a timm name, a file of weights in timm's names, or a timm model. `minutes` bounds the training time;
    without it the usual steps are taken. `goal` is the share of values that may spike in front of the layers, for the
    stage silence. `folder` holds the runs, the list of images and the plan; calling again continues them.
    """
    file = Path(file)
    folder = Path(folder) if folder is not None else file.parent / f"{file.stem}_distill"
    processes = processes or Processes(0, 1, choose_device("auto"))
    if processes.world > 1:
        raise LapisError("distillation runs in one process; its stages are recipes for lapis train under torchrun")
    with lock_folder(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        name = _source_name(source, folder)
        listed = _list_images(name, [Path(each) for each in images], folder, class_names, quiet, report)
        plan, before = _plan(name, folder, listed, minutes, goal, tuple(settings), processes, report)
        summaries: dict[str, dict[str, Any]] = {}
        for number, (stage, recipe) in enumerate(plan.stages.items(), start=1):
            summary = train_or_resume(recipe, folder / LIST_FILE, plan.stage_folder(stage), processes, quiet)
            if summary["interrupted"]:
                return None
            summaries[stage] = summary
            report(
                stage,
                f"stage {number} of {len(plan.stages)}: agrees on {summary['top1']:.1f} % of {summary['images']} "
                f"images held aside, after {summary['steps']} steps, {summary['seconds'] / 60:.0f} min",
            )
        trained = models.load(plan.stage_folder(stage))
        size = pack.save(file, trained.network)
        after = _nearness(trained.torch(), recipe, listed.held_aside)
    return Distilled(file, size, plan, summaries, before, after, listed.held_aside)


def _source_name(source: str | Path | nn.Module, folder: Path) -> str:
    """The source as every stage can open it; a network in memory is written beside the runs."""
    if not isinstance(source, nn.Module):
        return str(source)
    path = folder / SOURCE_FILE
    if not path.is_file():
        save_file({name: tensor.contiguous() for name, tensor in source.state_dict().items()}, path)
    return str(path)


def _list_images(
    source: str, folders: Sequence[Path], folder: Path, class_names: Sequence[str], quiet: bool, report: ReportLine
) -> UnlabelledImages:
    """The images of this distillation, with the dense network's answers to those held aside."""
    file = folder / LIST_FILE
    if file.is_file():
        listed = load_list(file)
    else:
        opened = models.load(source)
        classes = tuple(class_names) or opened.class_names or tuple(map(str, range(opened.config.classes)))
        if len(classes) != opened.config.classes:
            raise LapisError(f"{len(classes)} class names were given; {source} has {opened.config.classes} classes")
        paths = find_images(folders)
        with Display("read images", len(paths), quiet=quiet) as display:
            split = split_images(paths, classes)
            listed = drop_unreadable(split, lambda line: report("images", f"left out: {line}"), display.update)
        logits = dense_logits(opened.torch(), listed.held_aside, _preprocess(opened))
        listed = replace(listed, held_aside=replace(listed.held_aside, labels=logits.argmax(axis=1)))
        save_list(file, listed, listed.held_aside.labels)
    report("images", f"{len(listed.train)} to learn from, {len(listed.held_aside)} held aside")
    return listed


def _preprocess(opened: models.Model) -> Preprocess:
    return replace(opened.preprocess, crop=CROP) if opened.kind == "foreign" else opened.preprocess


@torch.no_grad()
def dense_logits(model: LapisViT, images: Images, preprocess: Preprocess) -> npt.NDArray[np.float32]:
    """The logits (n, classes) of a network in torch, FP32."""
    model.eval()
    found = [model(normalise(pixels, preprocess)) for pixels, *_ in TestBatches(images, preprocess, 50)]
    return torch.cat(found).float().cpu().numpy()


def _plan(
    source: str, folder: Path, images: UnlabelledImages, minutes: float | None, goal: float | None,
    settings: tuple[str, ...], processes: Processes, report: ReportLine,
) -> tuple[DistillPlan, dict[str, Any]]:  # fmt: skip
    """The plan that `folder` holds, or a new one from the measured time of a step."""
    chosen = {"source": source, "minutes": minutes, "goal": goal, "settings": list(settings)}
    file = folder / PLAN_FILE
    if file.is_file():
        saved = read_json(file)
        changed = [name for name, value in chosen.items() if saved.get("chosen", {}).get(name) != value]
        if changed:
            raise LapisError(f"{folder} was started with another {changed[0]}; repeat it, or choose another --folder")
        measured, steps, before = saved["measured"], saved["steps"], read_json(folder / BEFORE_FILE)
    else:
        names = [name for name in STAGES if name != "silence" or goal is not None]
        trial = _recipes(source, folder, images, dict.fromkeys(names, 1), goal, settings)
        report("plan", "measuring a step of each stage")
        measured, before = _measure(trial, images.held_aside, processes)
        steps = _steps(names, measured["seconds"], minutes)
        write_text(folder / BEFORE_FILE, json.dumps(before, indent=2) + "\n")
        write_text(file, json.dumps({"chosen": chosen, "measured": measured, "steps": steps}, indent=2) + "\n")
    stages = _recipes(source, folder, images, steps, goal, settings)
    plan = DistillPlan(source, folder, stages, steps, measured["seconds"], measured["memory_gb"])
    for stage, count in steps.items():
        report("plan", f"{stage}: {count} steps of {BATCH} images, {count * measured['seconds'][stage] / 60:.0f} min")
    report("plan", f"about {plan.minutes:.0f} minutes and {plan.memory_gb:.1f} GB of memory in all")
    return plan, before


def _steps(names: Sequence[str], seconds: dict[str, float], minutes: float | None) -> dict[str, int]:
    """The steps of every stage: the usual ones, or as many as the minutes allow."""
    if minutes is None:
        return {name: STAGES[name].steps for name in names}
    whole = sum(STAGES[name].share for name in names)
    steps = {name: round(60 * minutes * STAGES[name].share / whole / seconds[name]) for name in names}
    kept = {name: count for name, count in steps.items() if count >= LEAST_STEPS or name in ("blocks", "silence")}
    spare = sum(steps[name] * seconds[name] for name in names if name not in kept)
    return kept | {"blocks": max(1, kept["blocks"] + round(spare / seconds["blocks"]))}


def _recipes(
    source: str, folder: Path, images: UnlabelledImages, steps: dict[str, int], goal: float | None,
    settings: tuple[str, ...],
) -> dict[str, Recipe]:  # fmt: skip
    """The recipe of every stage; each starts from the one before."""
    opened = models.load(source)
    preprocess, stages = _preprocess(opened), {}
    previous = source
    batch = min(BATCH, len(images.train))
    per_epoch = len(images.train) // batch
    for number, (name, count) in enumerate(steps.items(), start=1):
        stage = STAGES[name]
        recipe = Recipe(
            name=f"distill_{name}",
            model=deployed_config(opened.config),
            stage="blocks" if name == "blocks" else "whole",
            start=previous,
            data=Data("unlabelled", crop=preprocess.crop, calibrate=min(64, len(images.train))),
            augment=Augment(smallest_area=0.25),
            optim=Optim(
                lr=stage.rate, weight_decay=0.01, batch=batch, epochs=count / per_epoch,
                warmup_epochs=min(30, count // 10) / per_epoch, clip=stage.clip, average=stage.average,
            ),
            distill=Distill(source, ce=0.0, logit=1.0, temperature=1.0, tokens=stage.tokens),
            sparsity=_goals(goal) if name == "silence" else Sparsity(),
            # One test, at the end of the stage.
            checkpoint=Checkpointing(evaluate_epochs=count / per_epoch, log_steps=10),
            seed=number - 1,
        ).with_overrides(list(settings))  # fmt: skip
        stages[name] = recipe
        previous = str(folder / f"{number}_{name}")
    return stages


def _goals(goal: float | None) -> Sparsity:
    assert goal is not None
    return Sparsity(attention_in=goal, v=goal, readout=goal, mlp_in=goal, sensitivity_weighted=True)


def deployed_config(dense: LapisConfig) -> LapisConfig:
    """The deployed network of the dense one's shape: signed codes, power-of-two rows, spiking readout, 6 bits."""
    return dense.replace(quantize=True, relation="laplacian", coding=SIGNED).deployed(DEPLOYED_BITS)


def _measure(
    recipes: dict[str, Recipe], held_aside: FileImages, processes: Processes
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Seconds of a step of every stage, the memory of the largest, and how near the calibrated network is."""
    seconds: dict[str, float] = {}
    before: dict[str, Any] = {}
    for name, recipe in recipes.items():
        recipe = replace(recipe, start=recipe.distill.teacher)
        probe = _probe_images(held_aside, recipe, min(recipe.optim.batch, len(held_aside))).to(processes.device)
        teacher = load_teacher(recipe, processes.device)
        student = prepare_student(recipe, probe, teacher)
        if not before:
            before = _nearness(student, recipe, held_aside)
        objective = make_objective(student, teacher, recipe, probe)
        optimizer = torch.optim.AdamW(objective.parameters(), lr=0.0)
        for _ in range(2):  # the first pays for what is made once
            started = time.monotonic()
            with torch.autocast(processes.device.type, torch.bfloat16, enabled=recipe.optim.precision == "bf16"):
                assert teacher is not None
                terms = objective(probe, torch.zeros(len(probe), recipe.model.classes), teacher(probe))
            terms.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seconds[name] = time.monotonic() - started
    return {"seconds": seconds, "memory_gb": _peak_memory_gb()}, before


def _probe_images(images: Images, recipe: Recipe, count: int) -> Tensor:
    few = images.select(np.arange(min(count, len(images))))
    return normalise(torch.cat([pixels for pixels, *_ in TestBatches(few, recipe.preprocess)]), recipe.preprocess)


def _nearness(student: LapisViT, recipe: Recipe, held_aside: FileImages) -> dict[str, Any]:
    """Agreement with the dense network on images held aside, KL(dense || student), and the error of every block."""
    opened = models.load(recipe.distill.teacher)
    dense = opened.torch()
    ours, theirs = (dense_logits(model, held_aside, recipe.preprocess) for model in (student, dense))
    probe = _probe_images(held_aside, recipe, PROBED)
    log_p, log_q = (F.log_softmax(torch.from_numpy(logits), dim=1) for logits in (ours, theirs))
    return {
        "images": len(held_aside),
        "agreement": 100 * float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean()),
        "kl": float(F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)),
        "block_errors": block_errors(student, dense, probe),
    }


def _peak_memory_gb() -> float:
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
