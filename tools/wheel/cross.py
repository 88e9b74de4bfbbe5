"""Build the wheels of other systems into dist/: ARM Linux, Windows, and macOS on both of its processors.

`make wheels` runs this script. The compiler is that of PyPI's ziglang, pinned in constraints.txt, which has the headers
and the libraries of all these systems. The C library knows nothing of Python, so each wheel serves every Python 3.
`tests/test_wheels.py` checks what was built.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
LC_BUILD_VERSION = 0x32


@dataclass(frozen=True)
class Machine:
    """What a library was built for, as its first bytes say: CMake's names, and the least macOS."""

    system: str
    processor: str
    macos: tuple[int, int] | None = None


@dataclass(frozen=True)
class Platform:
    """`target` is zig's name of it, `library` the file that Python opens there."""

    machine: Machine
    target: str
    library: str = "_kernels.so"


# By the platform's name in the tag of a wheel.
PLATFORMS = {
    "manylinux_2_17_aarch64": Platform(Machine("Linux", "aarch64"), "aarch64-linux-gnu.2.17"),
    "win_amd64": Platform(Machine("Windows", "AMD64"), "x86_64-windows-gnu", "_kernels.dll"),
    "macosx_11_0_arm64": Platform(Machine("Darwin", "arm64", (11, 0)), "aarch64-macos.11.0"),
    "macosx_11_0_x86_64": Platform(Machine("Darwin", "x86_64", (11, 0)), "x86_64-macos.11.0"),
}


def compiler(platform: Platform) -> list[str]:
    """The command of the C compiler."""
    zig = find_spec("ziglang")
    if zig is None or zig.origin is None:
        raise SystemExit("ziglang is not installed; make wheels installs it")
    return [str(Path(zig.origin).with_name("zig")), "cc", "-target", platform.target]


def build(tag: str) -> Path:
    """The wheel of one platform."""
    platform = PLATFORMS[tag]
    with tempfile.TemporaryDirectory() as folder:
        toolchain = Path(folder) / "toolchain.cmake"
        toolchain.write_text(
            f"set(CMAKE_SYSTEM_NAME {platform.machine.system})\n"
            f"set(CMAKE_SYSTEM_PROCESSOR {platform.machine.processor})\n"
            f"set(CMAKE_C_COMPILER {' '.join(compiler(platform))})\n"
            # CMake insists on this tool of macOS and has no use for it here.
            "set(CMAKE_INSTALL_NAME_TOOL true)\n"
        )
        settings = {
            "cmake.toolchain-file": toolchain,
            "cmake.define.LAPIS_ZIG": "ON",
            "cmake.define.LAPIS_WERROR": "ON",
            "wheel.tags": f"py3-none-{tag}",
        }
        options = [f"-C{name}={value}" for name, value in settings.items()]
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, *options, str(ROOT)]
        done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wheel = next(Path(folder).glob("*.whl"), None)
        # Where the compiler fails, a package without the library is built, as for strangers.
        if wheel is None or f"lapis/{platform.library}" not in ZipFile(wheel).namelist():
            raise SystemExit(f"{done.stdout}\nno library for {tag}: see above")
        DIST.mkdir(exist_ok=True)
        return Path(shutil.move(wheel, DIST / wheel.name))


def machine_of(library: bytes) -> Machine:
    """What the first bytes of an ELF, PE or Mach-O file say."""
    if library[:4] == b"\x7fELF":
        (number,) = struct.unpack_from("<H", library, 18)
        return Machine("Linux", {62: "x86_64", 183: "aarch64"}[number])
    if library[:2] == b"MZ":
        (header,) = struct.unpack_from("<I", library, 60)
        (number,) = struct.unpack_from("<H", library, header + 4)
        return Machine("Windows", {0x8664: "AMD64"}[number])
    magic, number = struct.unpack_from("<2I", library)
    assert magic == 0xFEEDFACF, "neither ELF nor PE nor 64-bit Mach-O"
    return Machine("Darwin", {0x1000007: "x86_64", 0x100000C: "arm64"}[number], _least_macos(library))


def load_commands(library: bytes) -> list[tuple[int, int]]:
    """(kind, offset) of each load command of a 64-bit Mach-O file."""
    (count,) = struct.unpack_from("<I", library, 16)
    found, at = [], 32
    for _ in range(count):
        kind, size = struct.unpack_from("<2I", library, at)
        found.append((kind, at))
        at += size
    return found


def _least_macos(library: bytes) -> tuple[int, int]:
    at = dict(load_commands(library))[LC_BUILD_VERSION]
    (least,) = struct.unpack_from("<I", library, at + 12)
    return least >> 16, least >> 8 & 255


if __name__ == "__main__":
    for name in sys.argv[1:] or PLATFORMS:
        wheel = build(name)
        print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size:,} bytes", flush=True)
