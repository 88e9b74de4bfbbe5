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

from lapis.data.packaged import packaged_images
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
    for path, image in zip(paths, packaged_images().pixels, strict=False):
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


CPP = r"""
#include <lapis.hpp>
#include <array>
#include <fstream>
#include <iostream>

int main(int count, char **words) {
    lapis::network network(words[1]);
    std::ifstream file(words[1], std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    lapis::network other = std::move(network), same = lapis::network::from_memory(bytes, 2, LAPIS_LOW_MEMORY);
    std::vector<std::uint8_t> image(31 * 45 * 3);
    for (std::size_t n = 0; n < image.size(); n++) image[n] = static_cast<std::uint8_t>(n * 7);
    for (lapis::network *one : {&other, &same}) {
        for (std::int64_t logit : one->run(image, 31, 45)) std::cout << logit << ' ';
        for (const auto &best : one->predict(image, 31, 45, 2)) std::cout << best.index << ' ' << best.label << ' ';
        std::cout << one->prepare(image, 31, 45).size() << '\n';
    }
    auto fails = [](auto call) {
        try { call(); } catch (const lapis::error &error) {
            std::cout << error.status() << ' ' << error.rule() << ' ' << error.what() << '\n';
        }
    };
    fails([&] { lapis::network::from_memory(bytes.substr(0, bytes.size() - 1)); });
    fails([&] { lapis::network("none"); });
    fails([&] { other.run(image, 31, 46); });
    fails([&] { other.predict(std::array<std::uint8_t, 3>{}, 1, 1, 0); });
    return count != 2;
}
"""
CPP_LISTS = """
cmake_minimum_required(VERSION 3.18)
project(use LANGUAGES CXX)
find_package(lapis REQUIRED)
add_executable(use use.cpp)
target_compile_features(use PRIVATE cxx_std_17)
target_compile_options(use PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Werror)
target_link_libraries(use PRIVATE lapis::static)
"""


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("finder", ["cmake", "pkg-config"])
def test_the_cpp_header_answers_and_throws(prefix: Path, tmp_path: Path, compiler: str, finder: str) -> None:
    for tool in (compiler, finder):
        if shutil.which(tool, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") is None:
            pytest.skip(f"no {tool} on this machine: apt-get install g++ clang pkg-config cmake")
    (tmp_path / "use.cpp").write_text(CPP)
    if finder == "cmake":
        (tmp_path / "CMakeLists.txt").write_text(CPP_LISTS)
        found = (f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}")
        run("cmake", "-S", tmp_path, "-B", tmp_path, "-G", "Ninja", *found)
        run("cmake", "--build", tmp_path)
    else:
        folder = next(prefix.rglob("lapis.pc")).parent
        flags = run("pkg-config", "--cflags", "--libs", "lapis", PKG_CONFIG_PATH=str(folder)).split()
        rpath = f"-Wl,-rpath,{folder.parent}"
        run(compiler, "-std=c++17", "-Wall", "-Werror", tmp_path / "use.cpp", "-o", tmp_path / "use", *flags, rpath)
    image = (np.arange(31 * 45 * 3) * 7).astype(np.uint8).reshape(31, 45, 3)
    session = Session(MODEL)
    words = [
        *session.run_integers(image)[0],
        *(word for one in session.predict(image, 2) for word in (one.index, one.label)),
    ]
    answer = " ".join(map(str, [*words, 3 * session.config.image_size**2]))
    lines = run(tmp_path / "use", MODEL).splitlines()
    assert lines[:2] == [answer] * 2
    assert re.fullmatch(r"7 35 .*does not end at the end of the file \(rule 35\)", lines[2])
    assert lines[3].startswith("6 0 ")
    assert lines[4] == "1 0 4185 bytes are not 3 for each pixel of 1 pictures of 31 rows and 46 columns"
    assert lines[5] == "1 0 top_k must be at least 1"


def test_the_installed_files_are_those_of_the_page(prefix: Path) -> None:
    page = (ROOT / "docs" / "howto" / "deploy.md").read_text()
    (listing,) = re.findall(r"```\n(lib/.*?)```", page, re.DOTALL)
    installed = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    assert {re.sub(r"^lib(64|/[a-z0-9_]+-linux-gnu)/", "lib/", name) for name in installed} == set(listing.split())


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
    image, path = packaged_images().pixels[0], tmp_path / "odd.ppm"
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
