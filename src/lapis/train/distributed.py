"""Training in one process or many: the rank of this process, and the sums over all processes."""

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
    """The rank of this process, the number of processes, and the device of this one."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def mean(self, values: Tensor) -> Tensor:
        """The mean over processes."""
        if self.world == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total / self.world

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process, so that all can stop at the same step."""
        if self.world == 1:
            return flag
        raised = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(raised, op=dist.ReduceOp.MAX)
        return bool(raised)

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes in order of rank, returned on every process."""
        if self.world == 1:
            return [value]
        values: list[Value | None] = [None] * self.world
        dist.all_gather_object(values, value)
        return [value for value in values if value is not None]

    def lost(self, error: RuntimeError) -> bool:
        """Whether this error of torch's says that another process, or the way to it, is gone."""
        words = str(error).lower()
        return self.world > 1 and any(word in words for word in ("connection", "gloo", "nccl", "peer", "process group"))

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier()


def join(name: str = "auto") -> Processes:
    """Join the processes that torchrun started; without torchrun there is only this one."""
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
        raise LapisError("device cuda was requested, but torch finds no GPU; use --device cpu")
    return device
