"""A C program against an installed liblapis, found by CMake and by pkg-config: it answers as Session does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lapis import assets
from lapis.data.slice import load_slice
from lapis.runtime import Session

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "library"
MODEL = assets.FOLDER / "lapis_tiny_cifar10.safetensors"
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
    for path, image in zip(paths, load_slice().images, strict=False):
        path.write_bytes(b"P6\n%d %d\n255\n" % image.shape[1::-1] + image.tobytes())
    return paths


def check_answers(program: Path, pictures: list[Path], **variables: str) -> None:
    for path, best in zip(pictures, Session(MODEL).predict(pictures, k=5), strict=True):
        wanted = [f"{one.logit:8.3f}  class {one.index}  {one.name}" for one in best]
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


def test_the_installed_program_refuses_what_it_cannot_use(prefix: Path, pictures: list[Path], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(MODEL.read_bytes()[:-1])
    for arguments, word in (
        ([damaged, pictures[0]], "rule 35"),
        ([tmp_path / "missing", pictures[0]], "cannot read"),
        ([MODEL, MODEL], "no binary PPM"),
        ([MODEL], "usage"),
    ):
        done = subprocess.run([prefix / "bin" / "lapis-run", *arguments], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert word in done.stderr
        assert done.stderr.count("\n") == 1
