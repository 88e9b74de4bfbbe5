"""Training in one process or many: ranks and sums over all processes, devices, and the signals that stop a run."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lapis.errors import LapisError

Value = TypeVar("Value")

# The CPUID leaf that gives the shape of AMX's tiles.
TILE_PAGE = 0x1D


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

    def averaged(self, module: nn.Module) -> nn.Module:
        """`module` with gradients that are averaged over the processes; the module itself where there is only one."""
        return module if self.world == 1 else DistributedDataParallel(module)

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier()


@contextmanager
def join(name: str = "auto") -> Iterator[Processes]:
    """Belong, in the block, to the processes that torchrun started; without torchrun there is only this one."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = choose_device(name)
    if world > 1:
        if "MASTER_ADDR" not in os.environ:
            raise LapisError(f"WORLD_SIZE={world} without MASTER_ADDR; start several processes with torchrun")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(rank, world, device)
    finally:
        if world > 1 and dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def explain_lost_process(processes: Processes, out: Path) -> Iterator[None]:
    """Torch's errors about a process that is gone, as one error that says how to continue the run in `out`."""
    try:
        yield
    except RuntimeError as error:
        words, first = str(error).lower(), reason(error)
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


def reason(error: BaseException) -> str:
    """The reason in one line, from an error or from the error that caused it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error).splitlines()[0] if str(error) else type(error).__name__


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


def avoid_broken_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Keep oneDNN from using AMX where a hypervisor announces it but hides its tiles: oneDNN would crash there.

    It has an effect only before torch's first product. A value that the user has set stays. True if AMX is now off.
    """
    try:
        text = cpuinfo.read_text(encoding="utf-8")
    except OSError:
        return False
    pages = re.search(r"^cpuid level\s*:\s*(\d+)", text, re.MULTILINE)
    if pages is None or " amx_tile" not in text or int(pages[1]) >= TILE_PAGE:
        return False
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    return True


class StopRequest:
    """In this context Ctrl-C or SIGTERM sets a flag, so that a run can save its state; a second Ctrl-C interrupts."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested = False
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # other threads cannot set handlers
            self.previous = {number: signal.signal(number, self._note) for number in self.SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
