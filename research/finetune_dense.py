"""Fine-tune the dense network on a folder as `lapis finetune` does the deployed one: same images, epochs, augmentation.

python research/finetune_dense.py FOLDER DENSE_WEIGHTS --out DIR [--rate 1e-4]

The rival of `lapis finetune FOLDER`: a linear head is fitted first, then all weights train, in FP32, without spikes.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import click
import torch

from lapis import models
from lapis.data.class_folders import open_class_folders
from lapis.nn.checkpoint import save_network
from lapis.train.distillation import dense_preprocess
from lapis.train.finetune import fit_head
from lapis.train.loop import train
from lapis.train.plan import Choices, make_plan
from lapis.train.start import start_network


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.argument("weights", type=str)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--rate", type=float, help="Learning rate; that of lapis finetune by default.")
@click.option("--threads", default=2, show_default=True)
def main(folder: Path, weights: str, out: Path, rate: float | None, threads: int) -> None:
    torch.set_num_threads(threads)
    images, dense = open_class_folders(folder), models.load(weights)
    plan = make_plan(folder, images, models.load(models.DEFAULT_MODEL), out, "dense", Choices())
    recipe = next(iter(plan.stages.values()))
    config = dense.config.replace(classes=len(images.classes))
    model = start_network(config, weights, recipe.seed)
    fit_head(model, images.train, dense_preprocess(dense))
    out.mkdir(parents=True, exist_ok=True)
    start = out / "start.safetensors"
    save_network(start, model, {"preprocess": dense_preprocess(dense).to_dict(), "class_names": list(images.classes)})
    optim = recipe.optim if rate is None else replace(recipe.optim, lr=rate)
    recipe = replace(recipe, name="dense", model=config, start=str(start), optim=optim)
    json.dump(train(recipe, folder, out / "run"), sys.stdout, indent=2)


if __name__ == "__main__":
    main()
