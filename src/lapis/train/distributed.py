"""Training in one process or many: the rank of this process, and the sums over all processes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

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


def averaged_gradients(module: nn.Module, processes: Processes) -> nn.Module:
    """`module` with gradients that are averaged over the processes; the module itself where there is only one."""
    if processes.world == 1:
        return module
    # torch 2.13 renamed the argument and warns of the old name.
    known = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    return DistributedDataParallel(module, **{name: False})  # type: ignore[arg-type]


@contextmanager
def explain_lost_process(processes: Processes, out: Path) -> Iterator[None]:
    """Torch's errors about a process that is gone, as one error that says how to continue the run in `out`."""
    try:
        yield
    except RuntimeError as error:
        words, first = str(error).lower(), str(error).splitlines()[0] if str(error) else type(error).__name__
        again = f"the last saved state in {out} is whole: "
        if "dataloader worker" in words:
            raise LapisError(
                f"a process that reads images is gone ({first}); {again}start again with --resume, and with fewer "
                "processes (--set data.workers=0) if memory ran out"
            ) from error
        lost = ("connection", "gloo", "nccl", "peer", "process group")
        if processes.world > 1 and any(word in words for word in lost):
            raise LapisError(
                f"another process of this run is gone ({first}); {again}start all processes again with --resume"
            ) from error
        raise


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
