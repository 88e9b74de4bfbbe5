"""Answers of a teacher on disk: the same run bit for bit, without computing them again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lapis.errors import LapisError
from lapis.nn.model import LapisViT
from lapis.train.log import read_steps
from lapis.train.recipe import Recipe

Micro = Callable[..., Recipe]
RunMicro = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory, micro: Micro, run_micro: RunMicro) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    run_micro(micro("model.relation=dot", "model.quantize=false", "optim.epochs=1"), folder / "run")
    return folder / "run"


def student(teacher: Path, cache: Path | str, *settings: str) -> tuple[str, ...]:
    return (
        f"distill.teacher={teacher}", "distill.feature=0", f"distill.cache={cache}", "augment.mixup=0.5", *settings,
    )  # fmt: skip


def losses(folder: Path) -> list[str]:
    return [row["loss"] for row in read_steps(folder)]


def test_cached_answers_train_the_same_network(
    tmp_path: Path, micro: Micro, run_micro: RunMicro, teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    run_micro(micro(*student(teacher, "")), tmp_path / "without")
    run_micro(micro(*student(teacher, cache)), tmp_path / "first")
    seen: list[int] = []
    tap = LapisViT.tap

    def counted(self: LapisViT, images: torch.Tensor, blocks: Any) -> Any:
        seen.append(int(not self.config.quantize))
        return tap(self, images, blocks)

    monkeypatch.setattr(LapisViT, "tap", counted)
    run_micro(micro(*student(teacher, cache)), tmp_path / "second")
    assert sum(seen) == 0  # the teacher was not asked
    assert losses(tmp_path / "without") == losses(tmp_path / "first") == losses(tmp_path / "second")


@pytest.mark.parametrize("change", ["seed=1", "augment.flip=0.1", "optim.batch=8"])
def test_other_views_have_answers_of_their_own(
    tmp_path: Path, micro: Micro, run_micro: RunMicro, teacher: Path, change: str
) -> None:
    cache = tmp_path / "cache"
    run_micro(micro(*student(teacher, cache)), tmp_path / "first")
    run_micro(micro(*student(teacher, cache, change)), tmp_path / "cached")
    run_micro(micro(*student(teacher, "", change)), tmp_path / "without")
    assert losses(tmp_path / "cached") == losses(tmp_path / "without")
    assert len(list(cache.iterdir())) == 2


def test_a_damaged_answer_is_computed_again(tmp_path: Path, micro: Micro, run_micro: RunMicro, teacher: Path) -> None:
    cache = tmp_path / "cache"
    run_micro(micro(*student(teacher, cache)), tmp_path / "first")
    files = sorted(cache.rglob("*.npy"))
    files[0].write_bytes(files[0].read_bytes()[:-9])
    files[1].write_bytes(b"")
    files[2].unlink()
    run_micro(micro(*student(teacher, cache)), tmp_path / "second")
    assert losses(tmp_path / "first") == losses(tmp_path / "second")


def test_only_logits_can_be_cached(micro: Micro, teacher: Path, tmp_path: Path) -> None:
    for settings in (("distill.feature=0.5",), ("stage=blocks",)):
        with pytest.raises(LapisError, match=r"distill\.cache keeps logits only"):
            micro(*student(teacher, tmp_path, *settings))
