"""Loading and steering the native library, and its behaviour under threads and forks."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.native_ops import l1_distance, l1_distance_backward
from lapis import native
from lapis.errors import LapisError

SOURCES = Path(__file__).resolve().parents[1] / "csrc"
needs_library = pytest.mark.skipif(not native.available(), reason=f"no native kernels: {native.describe()}")


def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "LAPIS_ISA"} | variables
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=SOURCES.parent, check=False
    )


@needs_library
def test_the_best_instruction_set_is_in_use_unless_told_otherwise() -> None:
    made = run("from lapis import native; print(native.isa(), *native.isas())")
    used, *possible = made.stdout.split()
    assert used == possible[0]
    assert possible == [name for name in native.known_isas() if name in possible]
    assert "scalar" in possible


@needs_library
def test_instruction_sets_are_those_of_the_one_list_in_its_order() -> None:
    listed = re.findall(r"^ISA\((\w+), \w+\)", (SOURCES / "isas.inc").read_text(), re.MULTILINE)
    built = native.known_isas()
    assert built
    assert list(built) == [name for name in listed if name in built]


@needs_library
def test_instruction_sets_are_found_as_the_system_finds_them() -> None:
    """The library asks the processor itself; Linux tells what it found."""
    flags = {"avx512vnni": "avx512_vnni", "avx512bw": "avx512bw", "avxvnni": "avx_vnni", "avx2": "avx2"}
    info = Path("/proc/cpuinfo")
    found = re.search(r"^flags\s*: (.*)$", info.read_text(), re.MULTILINE) if info.is_file() else None
    if found is None:
        pytest.skip("no /proc/cpuinfo of an x86 processor")
    told = found[1].split()
    assert [name for name in native.isas() if name in flags] == [
        name for name in native.known_isas() if flags.get(name) in told
    ]


@needs_library
def test_kernels_of_different_instruction_sets_have_different_names() -> None:
    """A profile tells linear_rows__avx2 from linear_rows__avx512vnni."""
    if shutil.which("nm") is None:
        pytest.skip("binutils is not installed")
    listed = subprocess.run(["nm", native.library()._name], capture_output=True, text=True, check=True).stdout
    names = re.findall(r" t (\w+)(?:\.\w+)*$", listed, re.MULTILINE)
    if not names:
        pytest.skip("the library was stripped")
    kernels = {name for name in names if "__" in name.strip("_")}
    assert {f"linear_rows__{isa}" for isa in native.known_isas()} <= kernels
    stages = {name.partition("__")[0] for name in kernels}
    assert not stages & set(names)


@needs_library
def test_a_variable_forces_an_instruction_set() -> None:
    assert run("from lapis import native; print(native.isa())", LAPIS_ISA="scalar").stdout.strip() == "scalar"


def test_an_unknown_instruction_set_is_an_error_that_names_the_nearest() -> None:
    if not native.available():
        pytest.skip("no native kernels")
    made = run("from lapis import native; native.isa()", LAPIS_ISA="scaler")
    assert "did you mean 'scalar'?" in made.stderr


def test_nothing_is_loaded_by_an_import() -> None:
    made = run("from lapis import native; assert native._library is None", LAPIS_KERNELS="/nowhere.so")
    assert made.returncode == 0, made.stderr


def test_a_missing_library_named_by_a_variable_is_an_error() -> None:
    made = run("from lapis import native; native.isa()", LAPIS_KERNELS="/nowhere.so")
    assert "LAPIS_KERNELS=/nowhere.so is not a file" in made.stderr


@needs_library
def test_another_library_named_by_a_variable_is_one_clear_error(tmp_path: Path) -> None:
    other, broken = find_library("c"), tmp_path / "_kernels.so"
    broken.write_bytes(b"not a library")
    paths = [path for path in Path("/lib").rglob(other or "") if path.is_file()] if other else []
    for path, message in [(broken, "does not load"), *((one, "is another library") for one in paths[:1])]:
        made = run("from lapis.cli import main; main(['info'])", LAPIS_KERNELS=str(path))
        assert message in made.stderr
        assert "LAPIS_KERNELS" in made.stderr
        assert "Traceback" not in made.stderr


def test_without_the_library_the_package_works_and_says_so_once(tmp_path: Path) -> None:
    broken = tmp_path / "_kernels.so"
    broken.write_bytes(b"not a library")
    script = (
        f"import pathlib, torch, lapis.native\nlapis.native._find = lambda: pathlib.Path({str(broken)!r})\n"
        "from lapis.ops.distance.torch_native import l1_distance\n"
        "x = torch.ones(3, 4)\n"
        "for _ in range(3): print(float(l1_distance(x, 2 * x).sum()))\n"
    )
    made = run(script)
    assert made.stdout.split() == ["36.0"] * 3, made.stderr
    assert made.stderr.count("lapis runs without its native kernels") == 1


def test_turned_off_kernels_say_why() -> None:
    with native.force(native.NONE):
        assert native.isa() == "none"
        assert native.isas() == ()
        assert not native.available()
        with pytest.raises(LapisError, match="turned off"):
            native.library()


@needs_library
def test_force_restores_what_was() -> None:
    before = native.isa()
    with native.force("scalar"):
        assert native.isa() == "scalar"
        with native.force(native.NONE):
            assert native.isa() == "none"
        assert native.isa() == "scalar"
    assert native.isa() == before
    with pytest.raises(LapisError, match="does not run here"), native.force("neon"):
        pass
    assert native.isa() == before


@needs_library
def test_calls_from_many_python_threads_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(0)
    cases = [rng.integers(0, 16, (4, n, 64), dtype=np.uint8) for n in range(40, 56)]
    grads = [rng.standard_normal((4, len(x[0]), len(x[0]))).astype(np.float32) for x in cases]
    alone = [(l1_distance(x, x), l1_distance_backward(g, x, x[:, ::-1])) for x, g in zip(cases, grads, strict=True)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            together = pool.map(
                lambda pair: (
                    l1_distance(pair[0], pair[0], 2),
                    l1_distance_backward(pair[1], pair[0], pair[0][:, ::-1], 2),
                ),
                zip(cases, grads, strict=True),
            )
            for (d, (gq, gk)), (d_alone, (gq_alone, gk_alone)) in zip(together, alone, strict=True):
                assert np.array_equal(d, d_alone)
                assert np.array_equal(gq, gq_alone)
                assert np.array_equal(gk, gk_alone)


FORK = """
import os, numpy as np
from benchmarks.native_ops import l1_distance
x = np.random.default_rng(0).integers(0, 16, (16, 100, 64), dtype=np.uint8)
before = l1_distance(x, x, threads=2)
child = os.fork()
same = np.array_equal(l1_distance(x, x, threads=2), before)
if child == 0:
    os._exit(0 if same else 1)
assert os.waitpid(child, 0)[1] == 0 and same
"""


@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_threads_survive_a_fork() -> None:
    made = run(FORK)
    assert made.returncode == 0, made.stderr


SHARED = """
import os, numpy as np, torch
import lapis.ops.tensors
from lapis import native
from benchmarks.native_ops import l1_distance
x = np.random.default_rng(0).integers(0, 16, (16, 100, 64), dtype=np.uint8)
alone = l1_distance(x, x)
torch.set_num_threads(2)
torch.ones(2000, 2000) @ torch.ones(2000, 2000)
assert np.array_equal(l1_distance(x, x, threads=2), alone)
child = os.fork()
same = np.array_equal(l1_distance(x, x, threads=2), alone)
if child == 0:
    os._exit(0 if same else 1)
assert os.waitpid(child, 0)[1] == 0 and same
print(native._runner is not None)
"""


@needs_library
@pytest.mark.skipif(sys.platform != "linux", reason="torch brings the GNU OpenMP runtime on Linux")
def test_kernels_share_the_threads_of_torch_and_still_survive_a_fork() -> None:
    made = run(SHARED)
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip() == "True"


@needs_library
def test_a_refused_call_says_what_to_do() -> None:
    with pytest.raises(LapisError, match=r"span at most 0\.\.255"):
        native.check(3)
    with pytest.raises(LapisError, match="status 99"):
        native.check(99)


@needs_library
def test_sizes_out_of_range_are_refused_before_anything_runs() -> None:
    record = native.pairs((1, 1, 3, 0), 3, (0, 0, 0), (0, 0, 0), native.CODES_U8, native.L1)
    status = native.library().lapis_distance(record, None, None, None, native.OUT_I32, 1)
    with pytest.raises(LapisError, match="size is out of range"):
        native.check(status)


def like_pairs(*fields: tuple[str, Any]) -> type[ctypes.Structure]:
    """A struct with these fields instead of those of `native.Pairs`."""
    return type("Wrong", (ctypes.Structure,), {"_fields_": fields})


FIELDS = tuple(native.Pairs._fields_)
WRONG = {
    "two fields exchanged": (FIELDS[1], FIELDS[0], *FIELDS[2:]),
    "a field too few": FIELDS[:-1],
    "a field too many": (*FIELDS, ("threads", ctypes.c_int64)),
    "a field of another size": (("batch", ctypes.c_int32), *FIELDS[1:]),
    "a last field of another size": (*FIELDS[:-1], ("relation", ctypes.c_int16)),
    "another name": (*FIELDS[:-1], ("kind", ctypes.c_int32)),
}


@needs_library
@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG.keys())
def test_a_library_whose_structs_differ_from_pythons_is_refused(
    fields: tuple[tuple[str, Any], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "Pairs", like_pairs(*fields))
    before = native.isa()
    refusal = "lapis_pairs has .* where this Python has .*; rebuild with `make native`"
    with pytest.raises(LapisError, match=refusal), native.force("scalar", native._find()):
        pass
    assert native.isa() == before
