"""The wheels of other systems that `make wheels` builds: their tags, their libraries, and the answers of those.

Nothing here runs macOS; its libraries are compiled and linked, and their headers are read.
"""

from __future__ import annotations

import subprocess
import sys
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from tests.emulators import ARM, ROOT, WINE, emulator, expected_logits, logits_of
from tools.wheel.cross import DIST, PLATFORMS, compiler, load_commands, machine_of

# Who runs programs of a platform here.
EMULATED = [
    ("manylinux_2_17_aarch64", f"{ARM} -cpu cortex-a53"),
    ("manylinux_2_17_aarch64", f"{ARM} -cpu max"),
    ("win_amd64", WINE),
]
LC_CODE_SIGNATURE = 0x1D
# The files that ask the system for something: what it has in its headers differs most.
SYSTEM_SOURCES = ("csrc/isa.c", "csrc/system.c", "csrc/parallel.c", "csrc/runtime/network.c")
FLAGS = ("-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-O1", "-c")


def compile_with(tag: str, *words: str | Path) -> None:
    pytest.importorskip("ziglang")
    command = [*compiler(PLATFORMS[tag]), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def wheel_of(tag: str) -> ZipFile:
    found = list(DIST.glob(f"lapis_snn-*-py3-none-{tag}.whl"))
    if not found:
        pytest.skip("no wheels of other systems in dist/: make wheels builds them")
    return ZipFile(found[0])


def library_of(tag: str) -> bytes:
    with wheel_of(tag) as wheel:
        return wheel.read(f"lapis/{PLATFORMS[tag].library}")


@pytest.mark.parametrize("source", SYSTEM_SOURCES)
@pytest.mark.parametrize("tag", PLATFORMS)
def test_every_system_has_what_the_sources_ask_of_it(tag: str, source: str, tmp_path: Path) -> None:
    machine = PLATFORMS[tag].machine
    kind = "LAPIS_ARM" if machine.processor in ("aarch64", "arm64") else "LAPIS_X86"
    words = [*FLAGS, f"-D{kind}=1", *(["-D_DARWIN_C_SOURCE"] if machine.system == "Darwin" else [])]
    compile_with(tag, *words, source, "-o", tmp_path / "object")


@pytest.mark.parametrize("tag", PLATFORMS)
def test_a_wheel_has_the_tag_and_the_library_of_its_platform(tag: str) -> None:
    with wheel_of(tag) as wheel:
        names = wheel.namelist()
        (record,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
        metadata = message_from_bytes(wheel.read(record))
    assert metadata.get_all("Tag") == [f"py3-none-{tag}"]
    assert metadata["Root-Is-Purelib"] == "false"
    assert [name for name in names if Path(name).suffix in (".so", ".dll", ".dylib")] == [
        f"lapis/{PLATFORMS[tag].library}"
    ]
    assert machine_of(library_of(tag)) == PLATFORMS[tag].machine


@pytest.mark.parametrize("tag", PLATFORMS)
def test_a_wheel_needs_no_torch(tag: str) -> None:
    with wheel_of(tag) as wheel:
        (record,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        needed = message_from_bytes(wheel.read(record)).get_all("Requires-Dist") or []
        assert not any(name.startswith("torch") for name in wheel.namelist())
    always = [one for one in needed if "extra ==" not in one]
    assert any(one.startswith("numpy") for one in always)
    assert not any("torch" in one for one in always)


def test_the_wheel_for_arm_needs_no_newer_glibc_than_its_tag_says() -> None:
    wheel_of("manylinux_2_17_aarch64").close()
    path = next(DIST.glob("*-manylinux_2_17_aarch64.whl"))
    command = [sys.executable, "-m", "auditwheel", "show", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'consistent with the following platform tag: "manylinux_2_17_aarch64"' in " ".join(done.stdout.split())


def test_the_library_for_apple_processors_is_signed() -> None:
    # They run nothing that is not; the linker's own signature is enough.
    assert LC_CODE_SIGNATURE in [kind for kind, _ in load_commands(library_of("macosx_11_0_arm64"))]


@pytest.mark.parametrize(("tag", "command"), EMULATED)
def test_the_library_of_a_wheel_gives_the_logits_of_the_integer_model(tag: str, command: str, tmp_path: Path) -> None:
    start, library = emulator(command), tmp_path / PLATFORMS[tag].library
    library.write_bytes(library_of(tag))
    program = tmp_path / "logits.exe"
    # Windows looks for the library beside the program, Linux where the program says.
    words = ("-O1", "-std=c11", "-Icsrc", "tools/cross/logits.c", f"-Wl,-rpath,{tmp_path}")
    compile_with(tag, *words, library, "-o", program)
    _, logits = logits_of(start, program, tmp_path)
    assert np.array_equal(logits, expected_logits())


def test_the_headers_of_libraries_tell_them_apart() -> None:
    machines = [platform.machine for platform in PLATFORMS.values()]
    assert len(set(machines)) == len(machines)
    with pytest.raises(AssertionError, match="neither"):
        machine_of(bytes(64))
