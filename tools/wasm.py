"""Build the engine for browsers: csrc/lapis.h as WebAssembly, in src/lapis/report/page/.

`make wasm` runs this script. There are two modules, because a browser refuses a whole module for one instruction that
it does not know: engine.wasm with 128-bit vectors, and engine_relaxed.wasm with the products of bytes of relaxed SIMD.
The compiler is that of PyPI's ziglang, pinned in constraints.txt, so that the same sources give the same bytes on every
machine. The modules are kept in the repository, because `lapis explain --live` must work where there is no compiler; a
section of each names its sources and their hash, by which a test notices that it is out of date.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "src/lapis/report/page"
SECTION = "lapis.sources"
SOURCES = (
    "csrc/isa.c",
    "csrc/layout.c",
    "csrc/system.c",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc/runtime").glob("*.c")),
    *(f"csrc/engine/{name}.c" for name in ("create", "forward", "pace", "pack", "schedule", "team")),
    *(f"csrc/engine/engine_{name}.c" for name in ("scalar", "wasm128")),
    *(f"csrc/kernels/kernels_{name}.c" for name in ("scalar", "wasm128")),
)
EXPORTS = (
    "malloc", "free", "lapis_open_memory", "lapis_close", "lapis_sizes_of", "lapis_classes", "lapis_class_name",
    "lapis_prepare", "lapis_run", "lapis_watch", "lapis_trace_bytes", "lapis_real", "lapis_best",
    "lapis_network_engine", "lapis_engine_run",
)  # fmt: skip
FLAGS = (
    "-target", "wasm32-wasi", "-mexec-model=reactor", "-msimd128", "-std=c11", "-O3", "-ffp-contract=off",
    "-fno-math-errno", "-D_POSIX_C_SOURCE=200809L", "-DLAPIS_WASM=1", "-Wall", "-Wextra", "-Werror",
)  # fmt: skip
STACK_BYTES = 1 << 20


@dataclass(frozen=True)
class Variant:
    """What a module has beyond SOURCES and FLAGS."""

    sources: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


VARIANTS = {
    "engine.wasm": Variant(),
    "engine_relaxed.wasm": Variant(("csrc/engine/engine_wasmrelaxed.c",), ("-mrelaxed-simd", "-DLAPIS_WASM_RELAXED=1")),
}


def build(variant: Variant) -> bytes:
    """A module, with the section that names its sources."""
    flags, sources = [*FLAGS, *variant.flags], [*SOURCES, *variant.sources]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "engine.wasm"
        links = ["-s", f"-Wl,-z,stack-size={STACK_BYTES}", *(f"-Wl,--export={name}" for name in EXPORTS)]
        _compile([*flags, *sources, *links, "-o", str(out)])
        code = out.read_bytes()
    files = sorted(_read_for(flags, sources))
    return code + _section(json.dumps({"files": files, "sha256": digest(files)}).encode())


def digest(files: list[str]) -> str:
    """One hash of the files of this checkout, and of this script, which has the compiler's flags."""
    total = hashlib.sha256(Path(__file__).read_bytes())
    for name in files:
        total.update(hashlib.sha256((ROOT / name).read_bytes()).digest())
    return total.hexdigest()


def up_to_date(module: bytes) -> bool:
    """Whether a module was built from the sources of this checkout: its last section says from which."""
    recorded = json.loads(module[module.rindex(SECTION.encode()) + len(SECTION) :])
    return (
        all((ROOT / name).is_file() for name in recorded["files"]) and digest(recorded["files"]) == recorded["sha256"]
    )


def _compile(arguments: list[str]) -> str:
    command = [sys.executable, "-m", "ziglang", "cc", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout


def _read_for(flags: list[str], sources: list[str]) -> set[str]:
    """Every file of csrc/ that the compiler reads."""
    rules = "".join(_compile([*flags, "-MM", name]) for name in sources).replace("\\\n", " ")
    words = (word for line in rules.splitlines() for word in line.split(":", 1)[-1].split())
    return {str((ROOT / word).resolve().relative_to(ROOT)) for word in words}


def _section(content: bytes) -> bytes:
    """A custom section of WebAssembly: 0, its length, the length of its name, its name, its content."""
    name = SECTION.encode()
    body = _number(len(name)) + name + content
    return b"\0" + _number(len(body)) + body


def _number(value: int) -> bytes:
    """LEB128: seven bits per byte, lowest first."""
    return bytes([value & 127 | 128]) + _number(value >> 7) if value > 127 else bytes([value])


if __name__ == "__main__":
    for name, variant in VARIANTS.items():
        made = build(variant)
        (FOLDER / name).write_bytes(made)
        print(f"{(FOLDER / name).relative_to(ROOT)}: {len(made):,} bytes")
