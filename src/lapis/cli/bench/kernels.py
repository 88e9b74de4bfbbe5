"""`lapis bench kernels`: time the kernels and torch."""

from __future__ import annotations

from pathlib import Path

import click

from lapis import native
from lapis.bench.machine import machine, thread_count
from lapis.bench.sizes import KERNEL_SIZES
from lapis.cli.bench.present import Findings, deliver, out_option, report_progress, require_kernels, rounds_option
from lapis.cli.options import json_option
from lapis.models import require_torch

SHOWN = ("contender", "median_ms", "spread", "times_ours", "times_ours_low", "times_ours_high", "target")


@click.command()
@click.option(
    "--size", "sizes", multiple=True, type=click.Choice(list(KERNEL_SIZES)), default=("paper", "train"),
    show_default=True, help="Size of the arrays; may be repeated.",
)  # fmt: skip
@click.option(
    "--threads",
    multiple=True,
    type=click.IntRange(1),
    default=(1, 2),
    show_default=True,
    help="Threads; may be repeated.",
)
@rounds_option()
@click.option("--step/--no-step", default=True, show_default=True, help="Include a training step of lapis_tiny.")
@click.option("--isa", help="The instruction set to use. Default: the best one of this machine.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True,
    help="cuda times attention on a GPU (NVIDIA or AMD).",
)  # fmt: skip
@out_option()
@json_option
def command(
    sizes: tuple[str, ...],
    threads: tuple[int, ...],
    rounds: int,
    step: bool,
    isa: str | None,
    device: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Time the kernels and the same work in torch.

    Distance, its gradient, fused attention, the quantizer and a training step; every answer is checked before it is
    timed. On a GPU: attention, forward and with its gradients, beside torch.cdist, flash attention in bf16 and
    torch.compile; --threads, --step and --isa do not matter there.

    \b
    Example:
      lapis bench kernels --size paper --rounds 25
    """
    require_torch("lapis bench kernels")
    import torch

    if device == "cuda":
        from lapis.bench.gpu import compare_on_gpu
        from lapis.train.distributed import choose_device

        card = choose_device(device)
        facts = machine() | {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(card)}
        rows = compare_on_gpu(sizes, card, rounds, report_progress)
    else:
        from lapis.bench.kernels import compare_kernels

        require_kernels()
        with native.force(isa or native.isa()):
            facts = machine() | {"torch": torch.__version__}
            rows = compare_kernels(sizes, threads, rounds, step, report_progress)
    findings = Findings(
        "kernels",
        facts,
        rows,
        SHOWN,
        title=lambda row: f"{row.task} ({row.shape}, {device if device == 'cuda' else thread_count(row.threads)})",
        notes=[] if device == "cuda" else ["Targets are for size paper with AVX-512 VNNI."],
    )
    deliver(findings, out, as_json)
