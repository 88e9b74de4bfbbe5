"""Distil a dense ViT into a deployed Lapis network, without labels: stages blocks, silence and whole.

Every stage is a run of `lapis.train.loop` with `stage="blocks"` or `"whole"` in its recipe, in the deployed form from
the first step (see `lapis.train.objective`). Everything is in one folder: the list of images, the plan, and a run per
stage. A finished stage is never repeated, so the same call continues what was stopped, bit for bit.
"""

from __future__ import annotations

import json
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
from lapis._util.files import read_json, remove_unfinished, write_atomically, write_text
from lapis._util.progress import Display
from lapis.config import AFFINITY_BITS, DEPLOYED_BITS, LapisConfig
from lapis.convert.torch_executor import DeployedEvaluator
from lapis.data.images import FileImages, Images
from lapis.data.loader import Augment, TestBatches
from lapis.data.unlabelled import UnlabelledImages, drop_unreadable, find_images, load_list, save_list, split_images
from lapis.errors import LapisError
from lapis.nn.model import LapisViT
from lapis.nn.pixels import normalise
from lapis.preprocess import Preprocess
from lapis.train.distributed import Processes, choose_device
from lapis.train.loop import train_or_resume
from lapis.train.objective import block_errors, load_teacher, make_objective
from lapis.train.plan import normalisation_name
from lapis.train.recipe import SIGNED, Checkpointing, Data, Distill, Optim, Precision, Recipe, Sparsity, TrainingStage
from lapis.train.run_lock import lock_folder
from lapis.train.start import prepare_student
from lapis.train.step import step_seconds

PLAN_FILE, LIST_FILE, SOURCE_FILE = "plan.json", "images.json", "source.safetensors"
# How near a network is to the dense one: the calibrated network in the folder, a trained one in that of its stage.
NEARNESS_FILE, LOGITS_FILE = "nearness.json", "dense_logits.npy"
BATCH = 32
# ImageNet's usual centre crop, which a file of weights does not record.
CROP = 0.875
# Images on which the errors of blocks are measured.
PROBED = 32

ReportLine = Callable[[str, str], None]
Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Stage:
    """How one stage trains: blocks alone or as a whole, the learning rate, the usual steps, its share of the time."""

    trains: TrainingStage
    rate: float
    steps: int
    share: float
    tokens: float = 1.0
    average: float = 0.0
    clip: float = 5.0
    precision: Precision = "bf16"


# The whole network learns little per step. At higher rates its 6-bit weights flip at random faster than they learn, and
# in bf16 it fits the rounding of bf16.
STAGES = {
    "blocks": Stage("blocks", 4e-4, 700, 0.5),
    "silence": Stage("blocks", 4e-4, 500, 0.4),
    "whole": Stage("whole", 2.5e-5, 400, 0.5, tokens=0.05, average=0.995, clip=1.0, precision="fp32"),
}
# A stage of fewer steps than this does not pay; its time goes to the first.
LEAST_STEPS = 60
SHOWN_UNREADABLE = 5


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
    """The packed file, and how near it is to its dense source; see `lapis.report.distill` for the page.

    `before` is of the calibrated network, `nearness` of the network after every stage. `dense_logits` (n, classes) are
    the dense network's, of the images held aside.
    """

    file: Path
    size: int
    plan: DistillPlan
    summaries: dict[str, dict[str, Any]]
    before: dict[str, Any]
    nearness: dict[str, dict[str, Any]]
    images: UnlabelledImages
    dense_logits: Logits

    @property
    def after(self) -> dict[str, Any]:
        """How near the network is after the last stage."""
        return list(self.nearness.values())[-1]

    @property
    def held_aside(self) -> FileImages:
        return self.images.held_aside


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
    folder = runs_folder(file, folder)
    processes = processes or Processes(0, 1, choose_device("auto"))
    if processes.world > 1:
        raise LapisError("distillation runs in one process; its stages are recipes for lapis train under torchrun")
    with lock_folder(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        name = _source_name(source, folder)
        folders = [Path(each) for each in images]
        listed, logits = _list_images(name, folders, folder, class_names, quiet, report)
        chosen = {
            "source": name,
            "images": [str(each.resolve()) for each in folders],
            "class_names": list(class_names),
            "minutes": minutes,
            "goal": goal,
            "settings": list(settings),
        }
        plan, before = _plan(chosen, folder, listed, logits, processes, report)
        summaries: dict[str, dict[str, Any]] = {}
        nearness: dict[str, dict[str, Any]] = {}
        for number, (stage, recipe) in enumerate(plan.stages.items(), start=1):
            summary = train_or_resume(recipe, folder / LIST_FILE, plan.stage_folder(stage), processes, quiet)
            if summary["interrupted"]:
                return None
            summaries[stage] = summary
            nearness[stage] = _stage_nearness(plan.stage_folder(stage), recipe, listed.held_aside, logits)
            report(
                stage,
                f"stage {number} of {len(plan.stages)}: agrees on {summary['top1']:.1f} % of {summary['images']} "
                f"images held aside, KL {nearness[stage]['kl']:.3f}, after {summary['steps']} steps, "
                f"{summary['seconds'] / 60:.1f} min",
            )
        size = pack.save(file, models.load(plan.stage_folder(stage)).network)
    return Distilled(file, size, plan, summaries, before, nearness, listed, logits)


def runs_folder(file: Path, folder: str | Path | None) -> Path:
    """Where the runs go: the folder that was chosen, or one beside the packed file."""
    return file.parent / f"{file.stem}_distill" if folder is None else Path(folder)


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
) -> tuple[UnlabelledImages, Logits]:
    """The images of this distillation, and the dense network's logits (n, classes) of those held aside."""
    file = folder / LIST_FILE
    if file.is_file():
        listed = load_list(file)
        logits = _load_logits(folder / LOGITS_FILE, len(listed.held_aside), len(listed.train.classes))
    else:
        opened = models.load(source)
        if opened.config.quantize:
            raise LapisError(f"{source} is a spiking network already; distillation starts from a dense ViT")
        classes = tuple(class_names) or opened.class_names or tuple(map(str, range(opened.config.classes)))
        if len(classes) != opened.config.classes:
            raise LapisError(f"{len(classes)} class names were given; {source} has {opened.config.classes} classes")
        paths = find_images(folders)
        with Display("read images", len(paths), quiet=quiet) as display:
            split = split_images(paths, classes)
            listed = drop_unreadable(split, display.update)
        logits = network_logits(opened.torch(), listed.held_aside, dense_preprocess(opened))
        listed = replace(listed, held_aside=replace(listed.held_aside, labels=logits.argmax(axis=1)))
        write_atomically(folder / LOGITS_FILE, lambda out: np.save(out, logits))
        save_list(file, listed)
    for line in listed.unreadable[:SHOWN_UNREADABLE]:
        report("images", f"left out: {line}")
    if len(listed.unreadable) > SHOWN_UNREADABLE:
        report("images", f"left out: {len(listed.unreadable)} images in all; {file} names them")
    report("images", f"{len(listed.train)} to learn from, {len(listed.held_aside)} held aside")
    return listed, logits


def _load_logits(file: Path, images: int, classes: int) -> Logits:
    try:
        logits = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise LapisError(f"cannot read {file} ({error}); choose another --folder") from error
    if logits.shape != (images, classes):
        raise LapisError(f"{file} has shape {logits.shape}, expected {(images, classes)}; choose another --folder")
    return np.asarray(logits, np.float32)


def dense_preprocess(opened: models.Model) -> Preprocess:
    """How the dense source takes its images."""
    return replace(opened.preprocess, crop=CROP) if opened.kind == "foreign" else opened.preprocess


def network_logits(model: LapisViT, images: Images, preprocess: Preprocess) -> Logits:
    """The logits (n, classes) of a network in torch, in its deployed arithmetic if it has one."""
    device = next(model.parameters()).device
    network = DeployedEvaluator(model.eval(), preprocess)
    found = [network(pixels) for pixels, *_ in TestBatches(images, preprocess, 50, device=device)]
    return torch.cat(found).float().cpu().numpy()


def _plan(
    chosen: dict[str, Any], folder: Path, images: UnlabelledImages, logits: Logits, processes: Processes,
    report: ReportLine,
) -> tuple[DistillPlan, dict[str, Any]]:  # fmt: skip
    """The plan that `folder` holds, or a new one from the measured time of a step."""
    source, goal, settings = chosen["source"], chosen["goal"], tuple(chosen["settings"])
    file = folder / PLAN_FILE
    if file.is_file():
        saved = read_json(file)
        changed = [name for name, value in chosen.items() if saved.get("chosen", {}).get(name) != value]
        if changed:
            name = changed[0].replace("_", " ")
            raise LapisError(
                f"{folder} was started with another choice of {name}; repeat it, or choose another --folder"
            )
        measured, steps, before = saved["measured"], saved["steps"], read_json(folder / NEARNESS_FILE)
    else:
        names = [name for name in STAGES if name != "silence" or goal is not None]
        trial = _recipes(source, folder, images, dict.fromkeys(names, 1), goal, settings)
        report("plan", "measuring a step of each stage")
        measured, before = _measure(trial, images.held_aside, logits, processes)
        steps = _steps(names, measured["seconds"], chosen["minutes"])
        write_text(folder / NEARNESS_FILE, json.dumps(before, indent=2) + "\n")
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
    preprocess, stages = dense_preprocess(opened), {}
    previous = source
    batch = min(BATCH, len(images.train))
    per_epoch = len(images.train) // batch
    for number, (name, count) in enumerate(steps.items(), start=1):
        stage = STAGES[name]
        recipe = Recipe(
            name=f"distill_{name}",
            model=deployed_config(opened.config),
            stage=stage.trains,
            start=previous,
            data=Data(
                "unlabelled", normalisation_name(preprocess), preprocess.crop, calibrate=min(64, len(images.train))
            ),
            augment=Augment(smallest_area=0.25),
            optim=Optim(
                lr=stage.rate, weight_decay=0.01, batch=batch, epochs=count / per_epoch,
                warmup_epochs=min(30, count // 10) / per_epoch, clip=stage.clip, average=stage.average,
                precision=stage.precision,
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
    return Sparsity(attention_in=goal, v=goal, readout=goal, mlp_in=goal, ramp=0.3, sensitivity_weighted=True)


def deployed_config(dense: LapisConfig) -> LapisConfig:
    """The deployed network of the dense one's shape: signed codes, power-of-two rows, spiking readout, 6 bits.

    Affinities stay wide: narrowed to 5 bits, a network of 197 tokens lost 2.4 points (docs/results.md).
    """
    signed = dense.replace(quantize=True, relation="laplacian", coding=SIGNED, affinity_bits=AFFINITY_BITS)
    return signed.deployed(DEPLOYED_BITS)


def _measure(
    recipes: dict[str, Recipe], held_aside: FileImages, logits: Logits, processes: Processes
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Seconds of a step of every stage, the memory of the largest, and how near the calibrated network is."""
    seconds: dict[str, float] = {}
    before: dict[str, Any] = {}
    for name, recipe in recipes.items():
        recipe = replace(recipe, start=recipe.distill.teacher)
        probe = _probe_images(held_aside, recipe.preprocess, min(recipe.optim.batch, len(held_aside))).to(
            processes.device
        )
        teacher = load_teacher(recipe, processes.device)
        student = prepare_student(recipe, probe, teacher)
        if not before:
            before = _nearness(student, recipe, held_aside, logits)
        objective = make_objective(student, teacher, recipe, probe)
        seconds[name] = step_seconds(objective, teacher, recipe.optim, probe, recipe.model.classes)
    return {"seconds": seconds, "memory_gb": _peak_memory_gb()}, before


def _probe_images(images: Images, preprocess: Preprocess, count: int) -> Tensor:
    few = images.select(np.arange(min(count, len(images))))
    return normalise(torch.cat([pixels for pixels, *_ in TestBatches(few, preprocess)]), preprocess)


def _stage_nearness(folder: Path, recipe: Recipe, held_aside: FileImages, logits: Logits) -> dict[str, Any]:
    """How near the network of a finished stage is; it is measured once."""
    file = folder / NEARNESS_FILE
    if not file.is_file():
        found = _nearness(models.load(folder).torch(), recipe, held_aside, logits)
        write_text(file, json.dumps(found, indent=2) + "\n")
    return dict(read_json(file))


def _nearness(student: LapisViT, recipe: Recipe, held_aside: FileImages, theirs: Logits) -> dict[str, Any]:
    """Agreement with the dense network on images held aside, KL(dense || student), and the error of every block."""
    ours = network_logits(student, held_aside, recipe.preprocess)
    device = next(student.parameters()).device
    probe = _probe_images(held_aside, recipe.preprocess, PROBED).to(device)
    log_p, log_q = (F.log_softmax(torch.from_numpy(logits), dim=1) for logits in (ours, theirs))
    return {
        "images": len(held_aside),
        "agreement": 100 * float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean()),
        "kl": float(F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)),
        "block_errors": block_errors(student, models.load(recipe.distill.teacher).torch().to(device), probe),
    }


def _peak_memory_gb() -> float:
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
