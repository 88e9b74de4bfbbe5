"""A C program against an installed liblapis, found by CMake and by pkg-config: it answers as Session does."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lapis.data.packaged import load_sample
from lapis.pack import load, pack
from lapis.runtime import Session

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "library"
MODEL = ROOT / "models" / "lapis_tiny.cifar10.safetensors"
IMAGES = 4

pytestmark = pytest.mark.skipif(
    not (BUILD / "liblapis.a").is_file() or not shutil.which("cc"), reason="liblapis is not installed"
)


def run(*command: str | Path, **variables: str) -> str:
    """What a program of the environment prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that liblapis was installed to."""
    folder = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", BUILD, "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    paths = [folder / f"{index}.ppm" for index in range(IMAGES)]
    for path, image in zip(paths, load_sample().images, strict=False):
        path.write_bytes(b"P6\n%d %d\n255\n" % image.shape[1::-1] + image.tobytes())
    return paths


def check_answers(program: Path, pictures: list[Path], **variables: str) -> None:
    for path, best in zip(pictures, Session(MODEL).predict(pictures, top_k=5), strict=True):
        wanted = [f"{one.logit:8.3f}  class {one.index}  {one.label}" for one in best]
        assert run(program, MODEL, path, **variables).splitlines() == wanted


def test_cmake_finds_the_library(prefix: Path, pictures: list[Path], tmp_path: Path) -> None:
    run("cmake", "-S", ROOT / "examples" / "c", "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    check_answers(tmp_path / "lapis-run", pictures)


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_pkg_config_finds_the_library(prefix: Path, pictures: list[Path], tmp_path: Path, kind: str) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    folder = next(prefix.rglob("lapis.pc")).parent
    static = ["--static"] if kind == "static" else []
    flags = run("pkg-config", "--cflags", "--libs", *static, "lapis", PKG_CONFIG_PATH=str(folder)).split()
    if kind == "static":
        flags = [str(next(prefix.rglob("liblapis.a"))) if flag == "-llapis" else flag for flag in flags]
    run("cc", ROOT / "examples" / "c" / "lapis_run.c", "-o", tmp_path / "lapis-run", *flags)
    check_answers(tmp_path / "lapis-run", pictures, LD_LIBRARY_PATH=str(folder.parent))


def test_the_golden_vectors_hold() -> None:
    assert "100% tests passed" in run("ctest", "--test-dir", BUILD)


def test_the_commands_of_the_page_build_programs_that_start(prefix: Path, tmp_path: Path) -> None:
    """docs/howto/deploy.md: its program, linked as it says, starts without LD_LIBRARY_PATH and answers as Session."""
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    page = (ROOT / "docs" / "howto" / "deploy.md").read_text()
    (program,) = re.findall(r"```c\n(.*?)```", page, re.DOTALL)
    (commands,) = (block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "cc program.c" in block)
    (tmp_path / "program.c").write_text(program)
    shutil.copy(MODEL, tmp_path / "model.safetensors")
    (tmp_path / "lapis").symlink_to(prefix)
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        ["sh", "-e"], input=commands, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    best = Session(MODEL).predict(np.zeros((480, 640, 3), np.uint8), top_k=1)[0]
    assert done.stdout.splitlines() == [f"{best.label} {best.logit:.3f}"] * 2


def test_the_installed_program_refuses_what_it_cannot_use(prefix: Path, pictures: list[Path], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(MODEL.read_bytes()[:-1])
    for arguments, word in (
        ([damaged, pictures[0]], "rule 35"),
        ([tmp_path / "missing", pictures[0]], "cannot read"),
        ([MODEL, MODEL], "no binary PPM"),
        ([MODEL, "none\x1b]0;owned\x07\n.ppm"], "none?]0;owned??.ppm: no binary PPM"),
        (["none\x1b\x9b\u202e", pictures[0]], "none??? is no network"),
        ([MODEL], "usage"),
    ):
        done = subprocess.run([prefix / "bin" / "lapis-run", *arguments], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert word in done.stderr
        assert done.stderr.count("\n") == 1


HEADS = {
    b"P6 32 32 255\n": True,
    b"P6\n# made by a program\n32 # wide\n#\n32\r\n255\n": True,
    b"P6\n32 32\n#": False,
    b"P6 4294967328 32 255\n": False,
    b"P6 -32 32 255\n": False,
    b"P6 0 32 255\n": False,
    b"P6 32769 32 255\n": False,
    b"P6 32 33 255\n": False,
    b"P6 32 32 65535\n": False,
    b"P6 32 32 255x": False,
    b"P5 32 32 255\n": False,
    b"P6": False,
    b"": False,
}


@pytest.mark.parametrize("head", HEADS)
def test_the_program_reads_every_head_of_a_ppm_and_refuses_what_is_none(
    prefix: Path, head: bytes, tmp_path: Path
) -> None:
    image, path = load_sample().images[0], tmp_path / "odd.ppm"
    path.write_bytes(head + image.tobytes())
    done = subprocess.run([prefix / "bin" / "lapis-run", MODEL, path], capture_output=True, text=True)
    best = Session(MODEL).predict(image, top_k=1)[0]
    if HEADS[head]:
        assert done.stdout.splitlines()[0] == f"{best.logit:8.3f}  class {best.index}  {best.label}"
    else:
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"{path}: no binary PPM (P6) of 8 bits\n"


def test_names_of_classes_do_not_control_the_terminal(prefix: Path, pictures: list[Path], tmp_path: Path) -> None:
    names = ("\x1b[2Ja", "b\nc", "\x9b2Jd", "\u202ee\u2066f\u2028", "Käse 猫 “ü”", "\x7f", *"ghij")
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(pack(dataclasses.replace(load(MODEL), class_names=names)))
    shown = "".join(run(prefix / "bin" / "lapis-run", path, picture) for picture in pictures)
    wanted = ("?[2Ja", "b?c", "?2Jd", "?e?f?", "Käse 猫 “ü”", "?", *"ghij")
    lines = [line.split("  ")[1:] for line in shown.splitlines()]
    assert all(name == wanted[int(number.removeprefix("class "))] for *_, number, name in lines)
    assert shown.replace("\n", "").isprintable()
