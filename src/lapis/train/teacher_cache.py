"""A teacher's logits on disk, for later runs that see the same views.

An augmented view depends only on the images, the augmentation, the seed and the step. Runs that share these, such as
the variants of a study, would otherwise compute the same answers again: a fifth of each of their steps.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lapis._util.files import write_atomically
from lapis.nn.model import LapisViT
from lapis.train.recipe import Recipe


class TeacherCache:
    """Logits (n, classes) of a teacher by view, in a subfolder named after all that they depend on."""

    def __init__(self, folder: Path, model: LapisViT, recipe: Recipe, images: int) -> None:
        digest = hashlib.sha256()
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
        seen = (recipe.augment, recipe.preprocess)
        facts = [asdict(each) for each in seen], recipe.seed, recipe.optim.batch, recipe.optim.precision, images
        digest.update(json.dumps([facts, recipe.data.dataset, recipe.data.limit, recipe.data.validate]).encode())
        self.folder, self.classes = folder / digest.hexdigest()[:16], recipe.model.classes
        self.folder.mkdir(parents=True, exist_ok=True)

    def read(self, view: str, count: int) -> Tensor | None:
        """The logits of `count` images, or None where they are missing or damaged."""
        try:
            logits = np.load(self.folder / f"{view}.npy", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return torch.from_numpy(logits) if logits.shape == (count, self.classes) else None

    def write(self, view: str, logits: Tensor) -> None:
        found = logits.float().cpu().numpy()
        write_atomically(self.folder / f"{view}.npy", lambda out: np.save(out, found))
