"""The torch executor has the integer model's bits on any device: nothing in it depends on how a device rounds or sums.

A GPU differs from a CPU in three ways that could matter: float32 products may be taken in TF32 or bfloat16, sums may be
taken in another order, and only IEEE operations are equal everywhere. The tests imitate the first two on the CPU and
read the list of operations for the third.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lapis import native
from lapis.convert import TorchExecutor
from lapis.deploy import Network, run
from tests.networks import images_for, wide_network

# Rounded once, as IEEE 754 says, on every device. A fused multiply-add is not among them: eager torch has none.
ROUNDED = {"add", "add_", "div", "mul", "reciprocal", "sqrt", "sub"}
# Exact: they move and compare numbers, or add up integers that the type holds whatever the order.
EXACT = {
    "_cdist_forward", "_to_copy", "_unsafe_view", "amin", "bmm", "cat", "clamp", "clone", "detach", "expand",
    "floor", "full_like", "index", "lift_fresh", "mm", "select", "slice", "sum", "transpose", "unsqueeze", "view",
}  # fmt: skip
PRODUCTS = {"mm", "bmm"}


class Imitated(TorchDispatchMode):
    """Rounds the factors of float32 products to `bits` of mantissa and adds their terms in the opposite order."""

    def __init__(self, bits: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bits = bits
        self.seen: dict[str, set[torch.dtype]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in PRODUCTS:
            a, b = args
            if a.dtype == torch.float32:
                a, b = shortened(a, self.bits), shortened(b, self.bits)
            args = (a.flip(-1), b.flip(-2))
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.seen.setdefault(name, set()).add(result.dtype)
        return result


def shortened(x: Tensor, bits: int) -> Tensor:
    """x with its mantissa cut to so many bits; TF32 has 10, bfloat16 has 7."""
    return (x.contiguous().view(torch.int32) & ~((1 << (23 - bits)) - 1)).view(torch.float32)


@pytest.fixture(scope="module")
def network() -> Network:
    return wide_network()


@pytest.fixture(scope="module")
def images(network: Network) -> npt.NDArray[np.uint8]:
    return images_for(network, 2)


@pytest.fixture(params=[10, 7], ids=["TF32", "bfloat16"])
def imitated(
    request: pytest.FixtureRequest, network: Network, images: npt.NDArray[np.uint8]
) -> tuple[Tensor, Imitated]:
    # As on a GPU, the distance is that of torch.
    with native.force(native.NONE), Imitated(request.param) as mode:
        logits = TorchExecutor(network)(torch.from_numpy(images))
    return logits, mode


def test_short_products_and_another_order_of_sums_change_no_bit(
    imitated: tuple[Tensor, Imitated], network: Network, images: npt.NDArray[np.uint8]
) -> None:
    logits, mode = imitated
    assert torch.float32 in mode.seen["mm"]  # else nothing was shortened
    assert np.array_equal(logits.numpy(), run(network, images))


def test_every_operation_on_floats_is_the_same_on_every_device(imitated: tuple[Tensor, Imitated]) -> None:
    on_floats = {name for name, types in imitated[1].seen.items() if any(kind.is_floating_point for kind in types)}
    assert on_floats - ROUNDED - EXACT == set()


def test_the_imitation_would_notice_a_product_that_needs_float32(network: Network) -> None:
    product: Callable[[], Tensor] = lambda: torch.full((1, 1), 257.0) @ torch.full((1, 1), 1.0)  # noqa: E731
    with Imitated(7):
        assert float(product()) != 257.0
