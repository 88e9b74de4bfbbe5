"""One process or many: who we are, and the few sums that processes share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from lapis.errors import LapisError

Value = TypeVar("Value")


@dataclass(frozen=True)
class Processes:
    """This process's place among all."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """The process that writes files and speaks."""
        return self.rank == 0

    def mean(self, values: Tensor) -> Tensor:
        """The mean over processes."""
        if self.world == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total / self.world

    def any(self, flag: bool) -> bool:
        """Whether the flag is up anywhere: all processes then stop at the same step."""
        if self.world == 1:
            return flag
        raised = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(raised, op=dist.ReduceOp.MAX)
        return bool(raised)

    def gather(self, value: Value) -> list[Value]:
        """What every process has, in order of rank, on every process."""
        if self.world == 1:
            return [value]
        values: list[Value | None] = [None] * self.world
        dist.all_gather_object(values, value)
        return [value for value in values if value is not None]

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier()


def join(name: str = "auto") -> Processes:
    """Take our place among the processes that torchrun started; alone without it."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = choose_device(name)
    if world > 1:
        if "MASTER_ADDR" not in os.environ:
            raise LapisError(f"WORLD_SIZE={world} without MASTER_ADDR; start several processes with torchrun")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Processes(rank, world, device)


def leave(processes: Processes) -> None:
    if processes.world > 1 and dist.is_initialized():
        dist.destroy_process_group()


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise LapisError(f"device {name!r} is unknown; use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LapisError("device cuda was asked for, and torch sees no GPU here; use --device cpu")
    return device
