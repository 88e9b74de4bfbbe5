"""The comparison on a GPU: its answers are checked, and it runs on any device of torch."""

from __future__ import annotations

import pytest
import torch

from lapis.bench import gpu
from lapis.bench.runner import measure
from lapis.bench.sizes import KERNEL_SIZES
from lapis.cli import main
from lapis.errors import EXIT_BAD_INPUT, LapisError
from lapis.ops.attention import eager, torch_native

CPU = torch.device("cpu")


def test_every_way_is_timed_forward_and_with_gradients() -> None:
    forward, both = gpu.gpu_tasks(KERNEL_SIZES["small"], CPU, compiled=False)
    ways = ["lapis", "torch.cdist", "flash attention bf16"]
    assert [row.contender for row in measure(forward, 1, 1)] == ways
    assert [row.contender for row in measure(both, 1, 1)] == ways


def test_a_form_written_for_a_compiler_is_the_same_attention() -> None:
    source = torch.Generator().manual_seed(0)
    q, k, v = (torch.randint(0, 16, (2, 3, 5, 7), generator=source).double() for _ in range(3))
    tau = torch.tensor([3.0, 5.0, 9.0], dtype=torch.float64)
    torch.testing.assert_close(gpu._summed(q, k, v, tau), eager.attention(q, k, v, tau))


def test_a_wrong_answer_is_never_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch_native.attention
    monkeypatch.setattr(torch_native, "attention", lambda *inputs, **options: 1.01 * right(*inputs, **options))
    with pytest.raises(LapisError, match="wrong answer"):
        measure(next(gpu.gpu_tasks(KERNEL_SIZES["small"], CPU, compiled=False)), 1, 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "kernels", "--device", "cuda"]) == EXIT_BAD_INPUT
    assert "no GPU" in capsys.readouterr().err
