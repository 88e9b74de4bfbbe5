"""Fused attention of the native library, in float32 and in integers, on every instruction set."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import native_ops as native
from benchmarks.synthetic import tables_of
from lapis.codes import pow2_exponent
from lapis.config import AFFINITY_BITS, RowScale
from lapis.deploy.leak import first_row, leak_factor, leak_table
from lapis.errors import LapisError
from lapis.ops.attention import eager, reference
from lapis.ops.integer_attention import eager as integer_eager
from lapis.ops.integer_attention import reference as integer_reference
from lapis.ops.integer_attention.reference import AffinityTables

from .shapes import SHAPES, codes

HEADS = 2
HALF_ULP = 2.0**-24
# Roundings that may add up in one result: table entry, sums in two levels, the row's factor, the product.
ROUNDINGS = 8
SMALL_ENOUGH = [s for s in SHAPES if s[0] < 577 or s[2] == 64]
SHARED_FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)


@cache
def case(shape: tuple[int, int, int, int]) -> dict[str, Any]:
    n, m, c, window = shape
    delay = np.random.default_rng(n).integers(0, 12, (HEADS, n, m)) if n % 2 else None
    return {
        "q": codes(n, (1, HEADS, n, c), window),
        "k": codes(m + 1, (1, HEADS, m, c), window),
        "v": codes(c + 2, (1, HEADS, m, c), window),
        # Sharp and flat: the spread of a distance is about this.
        "tau": np.array([0.3, 2.0]) * np.sqrt(c) * window,
        "delay": delay,
    }


@cache
def expected(shape: tuple[int, int, int, int], row_scale: RowScale) -> npt.NDArray[np.float64]:
    return reference.attention(**case(shape), row_scale=row_scale)


@cache
def eager_error(shape: tuple[int, int, int, int], row_scale: RowScale) -> float:
    x = case(shape)
    q, k, v = (torch.tensor(x[name].astype(np.float32)) for name in ("q", "k", "v"))
    delay = None if x["delay"] is None else torch.tensor(x["delay"])
    made = eager.attention(q, k, v, torch.tensor(x["tau"], dtype=torch.float32), row_scale, delay)
    return rms(made.numpy() - expected(shape, row_scale))


def rms(error: npt.NDArray[Any]) -> float:
    return float(np.sqrt(np.square(error).mean()))


def run(x: dict[str, Any], row_scale: RowScale, threads: int = 1) -> npt.NDArray[np.float32]:
    return native.attention(x["q"], x["k"], x["v"], x["tau"], row_scale, x["delay"], threads)


@pytest.mark.parametrize("row_scale", get_args(RowScale))
@pytest.mark.parametrize("shape", SMALL_ENOUGH, ids=str)
def test_error_is_at_most_that_of_eager(isa: str, shape: tuple[int, int, int, int], row_scale: RowScale) -> None:
    made, true = run(case(shape), row_scale), expected(shape, row_scale)
    largest = np.abs(true).max()
    # One correct rounding is an rms error of up to half an ulp over root three.
    assert rms(made - true) <= max(eager_error(shape, row_scale), HALF_ULP / np.sqrt(3) * largest)
    assert np.abs(made - true).max() <= ROUNDINGS * HALF_ULP * largest


@pytest.mark.parametrize("row_scale", get_args(RowScale))
def test_rows_of_only_distant_keys_do_not_vanish(isa: str, row_scale: RowScale) -> None:
    # exp(-D/tau) is far below the smallest float here, and a delay moves every key away alike.
    q, k = np.zeros((1, 1, 5, 64), np.uint8), np.full((1, 1, 9, 64), 15, np.uint8)
    v = codes(0, (1, 1, 9, 64), 15)
    delay = np.full((1, 5, 9), 1000)
    made = native.attention(q, k, v, [1.5], row_scale, delay)
    assert np.allclose(made, reference.attention(q, k, v, [1.5], row_scale, delay), rtol=1e-6)
    assert (np.abs(made).max(-1) > 0).all()


@pytest.mark.parametrize("shape", SMALL_ENOUGH, ids=str)
def test_integer_attention_equals_the_reference(isa: str, shape: tuple[int, int, int, int]) -> None:
    x = case(shape)
    tables = tables_of(x["tau"], shape[2] * shape[3] + 12)
    arrays = (x["q"], x["k"], x["v"], tables, x["delay"])
    for made, true in zip(native.integer_attention(*arrays), integer_reference.integer_attention(*arrays), strict=True):
        assert made.dtype == true.dtype
        assert np.array_equal(made, true)


@SHARED_FIXTURE
@given(
    n=st.integers(1, 30), m=st.integers(1, 40), c=st.integers(1, 70), window=st.integers(1, 63),
    tau=st.floats(3, 400), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_shape_is_exact_in_integers(isa: str, n: int, m: int, c: int, window: int, tau: float, seed: int) -> None:
    q, k, v = (codes(seed + i, (2, rows, c), window) for i, rows in enumerate((n, m, m)))
    delay = np.random.default_rng(seed).integers(0, 30, (2, n, m))
    tables = tables_of([tau, 2 * tau], c * window + 30)
    made = native.integer_attention(q, k, v, tables, delay)
    true = integer_reference.integer_attention(q, k, v, tables, delay)
    assert all(np.array_equal(a, b) for a, b in zip(made, true, strict=True))


@SHARED_FIXTURE
@given(
    n=st.integers(1, 30), m=st.integers(1, 40), c=st.integers(1, 70), low=st.integers(-63, 0), high=st.integers(0, 63),
    tau=st.floats(3, 4000), size=st.integers(1, 3000), seed=st.integers(0, 99),
)  # fmt: skip
def test_dot_products_of_any_shape_are_exact(
    isa: str, n: int, m: int, c: int, low: int, high: int, tau: float, size: int, seed: int
) -> None:
    """Random codes, and rows of equal products: all zero, all lowest, all highest; tables shorter than distances."""
    generator = np.random.default_rng(seed)
    q, k = (generator.integers(low, high + 1, (2, rows, c)) for rows in (n, m))
    for row, value in enumerate((0, low, high)):
        q[0, row::5], k[1, row::7] = value, value
    v = codes(seed, (2, m, c), 20)
    tables = first_row(*leak_table(*leak_factor([tau, 2 * tau]), size), AFFINITY_BITS)
    true = integer_reference.integer_attention(q, k, v, tables, compared_by="dot")
    made = native.integer_attention(q - low, k - low, v, tables, zero_code=-low)
    of_tensors = integer_eager.integer_attention(
        torch.from_numpy(q.astype(np.float32)),
        torch.from_numpy(k.astype(np.float32)),
        torch.from_numpy(v.astype(np.float32)),
        AffinityTables(torch.from_numpy(tables.table.astype(np.float64)), torch.zeros((2, size), dtype=torch.int64)),
        compared_by="dot",
    )
    for want, found, tensor in zip(true, made, of_tensors, strict=True):
        assert np.array_equal(found, want)
        assert np.array_equal(tensor.numpy(), want)


@pytest.mark.parametrize(("q_code", "k_code"), [(0, 127), (127, 127), (127, 0)])
@pytest.mark.parametrize("channels", [31, 64, 1000])
def test_the_largest_codes_overflow_no_dot_product(isa: str, q_code: int, k_code: int, channels: int) -> None:
    q = np.full((1, 1, 13, channels), q_code, np.uint8)
    k = np.full((1, 1, 35, channels), k_code, np.uint8)
    k[..., ::3, :] = 1
    tables = first_row(*leak_table(*leak_factor([1e5]), 40_000), AFFINITY_BITS)
    for zero_code in (0, 64, 127):
        q_codes, k_codes = q.astype(np.int64) - zero_code, k.astype(np.int64) - zero_code
        true = integer_reference.integer_attention(q_codes, k_codes, np.minimum(k, 15), tables, compared_by="dot")
        made = native.integer_attention(q, k, np.minimum(k, 15), tables, zero_code=zero_code)
        assert all(np.array_equal(a, b) for a, b in zip(made, true, strict=True))


def test_what_a_dot_product_cannot_take_is_refused(isa: str) -> None:
    tables = first_row(*leak_table(*leak_factor([9.0]), 50), AFFINITY_BITS)
    q = codes(0, (1, 1, 5, 8), 15)
    with pytest.raises(LapisError, match=r"codes above 127 were seen; dot products take 0\.\.127"):
        native.integer_attention(q, q + 120, q, tables, zero_code=0)
    for bad in ({"zero_code": 128}, {"zero_code": -1}, {"zero_code": 0, "delay": np.zeros((1, 5, 5), int)}):
        with pytest.raises(LapisError):
            native.integer_attention(q, q, q, tables, **bad)
    wide = np.zeros((1, 1, 2, (1 << 14) + 1), np.uint8)
    with pytest.raises(LapisError):
        native.integer_attention(wide, wide, wide, tables, zero_code=0)


def test_heads_inside_tokens_need_no_copy(isa: str) -> None:
    joined = codes(0, (2, 21, 3, 40), 15)  # (B, N, H, C)
    q, k, v = (np.roll(joined, i, axis=1).transpose(0, 2, 1, 3) for i in range(3))
    tau = np.array([20.0, 40.0, 80.0])
    true = reference.attention(q, k, v, tau, "exact")
    assert np.abs(native.attention(q, k, v, tau, "exact") - true).max() < 1e-5
    tables = tables_of(tau, 40 * 15 + 1)
    made, wanted = (f(q, k, v, tables) for f in (native.integer_attention, integer_reference.integer_attention))
    assert np.array_equal(made[0], wanted[0])


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_no_bit(isa: str, threads: int) -> None:
    shape = (197, 131, 64, 15)
    x = case(shape)
    assert np.array_equal(run(x, "pow2", threads), run(x, "pow2"))
    tables = tables_of(x["tau"], 64 * 15 + 12)
    arrays = (x["q"], x["k"], x["v"], tables, x["delay"])
    one, many = (native.integer_attention(*arrays, threads=t) for t in (1, threads))
    assert all(np.array_equal(a, b) for a, b in zip(one, many, strict=True))


def test_distances_outside_the_table_are_refused(isa: str) -> None:
    q, k = np.zeros((1, 1, 3, 8), np.uint8), np.full((1, 1, 4, 8), 15, np.uint8)
    with pytest.raises(LapisError, match="outside the affinity table"):
        native.integer_attention(q, k, k, tables_of([5.0], 8 * 15))
    with pytest.raises(LapisError, match="tables end at 119"):
        integer_reference.integer_attention(q, k, k, tables_of([5.0], 8 * 15))


def test_sums_that_could_overflow_are_refused(isa: str) -> None:
    q = np.zeros((1, 1, 1, 4), np.uint8)
    k = np.zeros((1, 1, 5000, 4), np.uint8)
    tables = tables_of([5.0], 4)
    with pytest.raises(LapisError, match="at most 4369 keys"):
        native.integer_attention(q, k, k + 15, tables)
    assert (
        native.integer_attention(q, k, k + 13, tables)[0].max() == 5000 * 16384 * 13
    )  # an affinity of one reads 2**14


def test_bad_delays_and_taus_are_refused(isa: str) -> None:
    q = codes(0, (1, 2, 5, 8), 15)
    with pytest.raises(LapisError, match="nonnegative integer"):
        native.attention(q, q, q, [5.0, 6.0], delay=np.full((2, 5, 5), -1))
    with pytest.raises(LapisError, match="do not fit"):
        native.attention(q, q, q, [5.0, 6.0], delay=np.zeros((3, 5, 5), int))
    with pytest.raises(LapisError, match="one for each of 2 heads"):
        native.attention(q, q, q, [5.0, 6.0, 7.0])
    with pytest.raises(LapisError, match="tau"):
        native.attention(q, q, q, [5.0, -6.0])


def test_integer_rows_have_the_exponent_of_real_ones() -> None:
    x = case((64, 64, 64, 15))
    tables = tables_of(x["tau"], 64 * 15 + 1)
    arrays = (x["q"], x["k"], x["v"])
    acc, mass = integer_reference.integer_attention(*arrays, tables)
    made = np.ldexp(acc.astype(np.float64), -pow2_exponent(mass)[..., None])
    true = reference.attention(*arrays, x["tau"], "pow2")
    # An affinity is held to 2**-16 of the largest; 64 of them, values up to 15.
    assert np.abs(made - true).max() <= 64 * 15 * 2.0**-15


LINEAR_MEMORY = """
import resource, numpy as np
from benchmarks.native_ops import attention, integer_attention
from benchmarks.synthetic import tables_of
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
n, c = 4096, 32
q = np.random.default_rng(0).integers(0, 16, (1, n, c), dtype=np.uint8)
tables = tables_of([60.0], c * 15 + 1)
attention(q[:, :64], q[:, :64], q[:, :64], [60.0])
before = peak()
attention(q, q, q, [60.0])
integer_attention(q, q, q, tables)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
def test_memory_grows_with_tokens_and_not_with_their_square(isa: str) -> None:
    if isa != "scalar":
        pytest.skip("one process measures the instruction set in use")
    extra = subprocess.run([sys.executable, "-c", LINEAR_MEMORY], capture_output=True, text=True, check=True).stdout
    # A float matrix of N x N is 65,536 kB; what is needed is some kB a token.
    assert int(extra) < 12 * 1024
