"""Compile every GPU kernel for cards that are not here.

Triton brings its own assemblers, so no GPU and no driver is needed: the machine code is the one that a card would run,
and its registers, spills, shared memory and instructions are read from it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lapis.ops.attention import triton as attention
from lapis.ops.attention import triton_kernels
from lapis.ops.gpu.choice import Card
from lapis.ops.lsq import triton as lsq
from lapis.ops.lsq import triton_kernels as lsq_kernels

# What one program may have of shared memory, in bytes.
SHARED_LIMIT = {"sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10, "sm_120": 99 << 10, "gfx942": 64 << 10}
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "sm_120": GPUTarget("cuda", 120, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
# The types of the kernels' pointers; every other argument is an integer.
FLOATS = (
    "codes", "v", "y", "nearest", "factors", "masses", "dy", "deltas", "ds", "dv", "moments", "out", "rates", "x",
    "step", "offset", "grad", "dx", "parts",
)  # fmt: skip
INTEGERS = ("words", "sums", "q", "k", "q_sums", "k_sums", "delay", "own", "other")
POINTERS = dict.fromkeys(FLOATS, "fp32") | dict.fromkeys(INTEGERS, "i32") | {"slopes": "fp64"}
# Sizes that are multiples of 16 in every launch, which lets loads be wide.
ALIGNED = {"padded", "q_padded", "k_padded", "own_padded", "other_padded", "delay_i", "v_n", "y_n", "dy_n"}


@dataclass(frozen=True)
class Kernel:
    """A kernel with the constants of a launch: what the tests compile."""

    function: Any
    constants: dict[str, Any]
    launch: dict[str, Any]
    # Whether it finds distances, by "words" or "thermometer", or sums "signs".
    work: str = ""


def kernels(card: Card) -> dict[str, Kernel]:
    """Every kernel as it is launched on a card, for 64 channels per head."""
    rule = {"ROW": False, "OFFSET": True, "VALUE": True, "LOW": 0, "HIGH": 15, "LEAST": 1, "BLOCK": lsq.BLOCK}
    pack = {"C": 64, "WP": 16, "BM": attention.PADDING}
    return {
        "quantizer": Kernel(lsq_kernels.quantize, rule, lsq.LAUNCH),
        "quantizer, backward": Kernel(lsq_kernels.quantize_backward, rule, lsq.LAUNCH),
        "pack codes": Kernel(triton_kernels.pack_codes, pack, attention.LAUNCH | {"num_warps": 4}),
        "forward": _forward(card, 64),
        "forward, thermometer": _forward(card, 64, 2),
        "scores": _scores(card, 64),
        "sums of signs": _signs(card, 64),
    }


def _forward(card: Card, channels: int, levels: int = 0) -> Kernel:
    tile = attention.forward_tile(channels, card)
    return _attention(triton_kernels.forward, card, tile, _codes(channels, levels) | {"POW2": True})


def _scores(card: Card, channels: int) -> Kernel:
    return _attention(
        triton_kernels.backward_scores, card, attention.backward_tile(channels, card), _codes(channels, 0)
    )


def _codes(channels: int, levels: int) -> dict[str, Any]:
    return {"C": channels, "CP": attention.padded_channels(channels), "FIRST": 65, "LEVELS": levels}


def _attention(function: Any, card: Card, tile: attention.Tile, codes: dict[str, Any]) -> Kernel:
    constants = codes | {"BM": tile.queries, "BN": tile.keys, "WORDS": card.words, "DOT": card.dot}
    work = "thermometer" if codes["LEVELS"] else "words"
    return Kernel(function, constants, attention.LAUNCH | {"num_warps": tile.warps}, work)


def _signs(card: Card, channels: int) -> Kernel:
    constants = {
        "C": channels,
        "CP": attention.padded_channels(channels),
        "BX": attention.sign_rows(channels),
        "UNROLL": 4,
    }
    launch = attention.LAUNCH | {"num_warps": 4}
    return Kernel(triton_kernels.sum_signs, constants | {"WORDS": card.words}, launch, "signs")


@dataclass(frozen=True)
class Usage:
    """What the machine code needs of one thread (registers, spills, stack) and one program (shared memory)."""

    registers: int
    spills: int
    stack_bytes: int
    shared_bytes: int
    tensor_memory: int
    instructions: Counter[str]
    text: str


def compile_for(target: str, kernel: Kernel) -> Usage:
    """Compile a kernel for a target and read its machine code."""
    names = kernel.function.arg_names
    signature = {
        name: f"*{POINTERS[name]}" if name in POINTERS else "constexpr" if name in kernel.constants else "i32"
        for name in names
    }
    aligned = [name for name in names if name in POINTERS or name in ALIGNED]
    attrs = {(names.index(name),): [["tt.divisibility", 16]] for name in aligned}
    source = ASTSource(kernel.function, signature, kernel.constants, attrs)
    compiled = triton.compile(source, target=TARGETS[target], options=kernel.launch)
    return _read_amd(compiled) if TARGETS[target].backend == "hip" else _read_nvidia(compiled)


def _read_nvidia(compiled: Any) -> Usage:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(compiled.asm["cubin"])
        usage, text = (
            subprocess.run([tool, option, str(path)], capture_output=True, text=True, check=True).stdout
            for tool, option in ((knobs.nvidia.cuobjdump.path, "-res-usage"), (knobs.nvidia.nvdisasm.path, "-c"))
        )
    found = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    names = Counter(re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", text, re.MULTILINE))
    spills = sum(count for name, count in names.items() if name.split(".")[0] in ("STL", "LDL"))
    tensor_memory = int(getattr(compiled.metadata, "tmem_size", 0) or 0)
    stack = found.get("STACK", 0) + found.get("LOCAL", 0)
    return Usage(found["REG"], spills, stack, compiled.metadata.shared, tensor_memory, names, text)


def _read_amd(compiled: Any) -> Usage:
    text = compiled.asm["amdgcn"]

    def field(name: str) -> int:
        value = re.search(rf"\.{name}:\s+(\d+)", text)
        assert value is not None, name
        return int(value[1])

    names = Counter(re.findall(r"^\t([a-z]\w+)", text, re.MULTILINE))
    spills = field("vgpr_spill_count") + field("sgpr_spill_count")
    stack = field("private_segment_fixed_size")
    return Usage(field("vgpr_count"), spills, stack, compiled.metadata.shared, 0, names, text)
