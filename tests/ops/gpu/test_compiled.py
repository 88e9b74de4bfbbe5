"""Every GPU kernel is compiled for cards that are not here; its machine code says whether it is what was meant."""

from __future__ import annotations

import functools
import re

import pytest

from lapis.ops.gpu.choice import card_of

triton = pytest.importorskip("triton", reason="triton is not installed: pip install triton")

from tests.ops.gpu.compile_for_cards import SHARED_LIMIT, TARGETS, Usage, compile_for, kernels  # noqa: E402

# By what a kernel does: the instruction that it must have on each target.
EXPECTED = {
    "words": dict.fromkeys(["sm_80", "sm_90", "sm_100"], r"VABSDIFF4\.U8\.ACC")
    | {"sm_120": r"VIMNMX\.U8x4", "gfx942": "v_sad_u8"},
    "thermometer": dict.fromkeys(["sm_80", "sm_90", "sm_100", "sm_120"], r"IMMA\.16832\.S8")
    | {"gfx942": r"v_mfma_i32_\w+_i8"},
    "signs": dict.fromkeys(["sm_80", "sm_90", "sm_100", "sm_120"], r"(FFMA|FADD)\.SAT") | {"gfx942": "v_sub_f32_e64"},
}
# Tensor memory has 512 columns; a kernel that needs more is compiled to a trap.
TENSOR_MEMORY = 512
NAMES = list(kernels(card_of("sm_80")))


@functools.cache
def compiled(target: str, name: str) -> Usage:
    return compile_for(target, kernels(card_of(target))[name])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_neither_spills_nor_needs_more_memory_than_there_is(name: str, target: str) -> None:
    used = compiled(target, name)
    assert used.spills == 0
    assert used.stack_bytes == 0
    assert used.shared_bytes <= SHARED_LIMIT[target]
    assert used.tensor_memory <= TENSOR_MEMORY


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [name for name in NAMES if kernels(card_of("sm_80"))[name].work])
def test_a_kernel_has_the_instructions_that_it_was_written_for(name: str, target: str) -> None:
    pattern = EXPECTED[kernels(card_of(target))[name].work][target]
    assert any(re.match(pattern, instruction) for instruction in compiled(target, name).instructions)


@pytest.mark.parametrize("target", [target for target in TARGETS if target.startswith("sm")])
def test_the_quantizer_never_fuses_a_product_with_a_sum_of_its_result(target: str) -> None:
    # z s + o is rounded twice: without fusion there is one FMUL and one FADD for it, besides the division's FFMA.
    names = compiled(target, "quantizer").instructions
    assert any(name.startswith("FMUL") for name in names)
    assert any(name.startswith("FADD") for name in names)


@pytest.mark.parametrize("target", [target for target in TARGETS if target.startswith("sm")])
def test_float64_is_met_once_per_row_and_never_in_the_loop_over_keys(target: str) -> None:
    lines = compiled(target, "forward").text.splitlines()
    last_product = max(index for index, line in enumerate(lines) if "MMA" in line)
    doubles = [index for index, line in enumerate(lines) if re.search(r"\bD(ADD|MUL|FMA|SETP)\b", line)]
    assert doubles
    assert min(doubles) > last_product
