r"""First-spike neurons for SpikingJelly, and rules for its operation counters.

One file that needs only torch and SpikingJelly, written as SpikingJelly writes its own neurons, so that it can be
offered there. Time is the first axis. A window of ``T`` steps carries codes ``0..T``: a spike at step ``n`` counts
``T - n`` times, because it is added to a current, ``I += x``, and the current to the voltage, ``V += I``. Between two
neurons stand layers without a bias, such as ``layer.Linear(..., bias=False)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from spikingjelly.activation_based import base
from torch import Tensor, nn

__all__ = ["BaseFirstSpikeNode", "FirstSpikeNode", "counting_rules", "integrate", "spike_train"]


def integrate(x_seq: Tensor) -> Tensor:
    r"""
    **API Language** - :ref:`中文 <integrate-cn>` | :ref:`English <integrate-en>`

    ----

    .. _integrate-cn:

    * **中文**

    ``I += x[n], V += I`` 在最后一步之后的电压：:math:`\sum_n (T - n) x[n]`。

    :param x_seq: 电流或脉冲，形状为 ``[T, ...]``
    :type x_seq: torch.Tensor
    :return: 电压，形状为 ``[...]``
    :rtype: torch.Tensor

    ----

    .. _integrate-en:

    * **English**

    The voltage after the last step of ``I += x[n], V += I``: :math:`\sum_n (T - n) x[n]`.

    :param x_seq: currents or spikes with shape ``[T, ...]``
    :type x_seq: torch.Tensor
    :return: the voltage with shape ``[...]``
    :rtype: torch.Tensor
    """
    ramp = torch.arange(x_seq.shape[0], 0, -1, dtype=x_seq.dtype, device=x_seq.device)
    # A product and a sum: a matrix product would look like synapses to a counter.
    return (x_seq * ramp.view(-1, *[1] * (x_seq.dim() - 1))).sum(0)


def spike_train(codes: Tensor, T: int, signed: bool = False) -> Tensor:
    r"""
    **API Language** - :ref:`中文 <spike_train-cn>` | :ref:`English <spike_train-en>`

    ----

    .. _spike_train-cn:

    * **中文**

    将编码表示为首脉冲：编码 ``z > 0`` 在第 ``T - z`` 步发放一个脉冲。脉冲序列可微；用 :func:`integrate` 读出时，
    编码的梯度原样返回。

    :param codes: 整数编码，取值 ``0..T``；若 ``signed`` 为 ``True``，取值 ``-T..T``。形状为 ``[..., n]``
    :type codes: torch.Tensor
    :param T: 窗口的步数
    :type T: int
    :param signed: 编码 ``-z`` 是否由 ON 神经元旁的 OFF 神经元发放
    :type signed: bool
    :return: 取值 0 和 1 的脉冲，形状为 ``[T, ..., n]``；若 ``signed`` 为 ``True``，形状为 ``[T, ..., 2 n]``
    :rtype: torch.Tensor

    ----

    .. _spike_train-en:

    * **English**

    Codes as first spikes: a code ``z > 0`` fires once, at step ``T - z``. The train is differentiable, and whoever
    reads it by :func:`integrate` sends the gradient of the codes back unchanged.

    :param codes: whole numbers in ``0..T``, or in ``-T..T`` if ``signed``, with shape ``[..., n]``
    :type codes: torch.Tensor
    :param T: the number of steps of the window
    :type T: int
    :param signed: whether a code ``-z`` fires by an OFF neuron beside the ON neuron
    :type signed: bool
    :return: spikes of 0 and 1 with shape ``[T, ..., n]``, or ``[T, ..., 2 n]`` if ``signed``
    :rtype: torch.Tensor
    """
    return torch.stack([_spikes(codes, T, step, signed) for step in range(T)])


def _spikes(codes: Tensor, window: int, step: int, signed: bool) -> Tensor:
    """The spikes of one step."""
    level, squares = window - step, window * (window + 1) * (2 * window + 1) // 6
    share = level / (2 * squares if signed else squares)
    signs = (1, -1) if signed else (1,)
    return torch.cat([_SpikeAt.apply(sign * codes, level, share) for sign in signs], dim=-1)  # type: ignore[no-untyped-call]


class _SpikeAt(torch.autograd.Function):
    r"""
    1 where the code is ``level``, else 0. Whoever reads a train as :math:`\sum_n (T - n) S[n] = z` sends
    :math:`(T - n) dL/dz` to the spike of step ``n``; the share :math:`(T - n) / (1 + ... + T^2)` of each step adds
    up to :math:`dL/dz`, whether the neuron fired or not.
    """

    @staticmethod
    def forward(ctx: Any, codes: Tensor, level: int, share: float) -> Tensor:
        ctx.share = share
        return (codes == level).to(codes.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0] * ctx.share, None, None


class BaseFirstSpikeNode(base.MemoryModule):  # type: ignore[misc]
    def __init__(self, T: int, signed: bool = False, step_mode: str = "s") -> None:
        r"""
        **API Language** - :ref:`中文 <BaseFirstSpikeNode.__init__-cn>` | :ref:`English <BaseFirstSpikeNode.__init__-en>`

        ----

        .. _BaseFirstSpikeNode.__init__-cn:

        * **中文**

        首脉冲神经元的基类。神经元在一个长度为 ``T`` 的窗口内积分，在下一个窗口内至多发放一个脉冲。

        单步模式 ``'s'``：每次调用是一个时间步，输出的脉冲属于上一个窗口。多步模式 ``'m'``：输入一个窗口的电流
        ``[T, ..., n]``，输出下一个窗口的脉冲 ``[T, ..., n]``；若 ``signed`` 为 ``True``，则输出 ``[T, ..., 2 n]``。

        :param T: 窗口的步数
        :type T: int
        :param signed: 是否为每个值使用一对 ON 与 OFF 神经元
        :type signed: bool
        :param step_mode: 步进模式，``'s'`` 或 ``'m'``
        :type step_mode: str
        :raises ValueError: 当 ``T`` 不是正整数时抛出

        ----

        .. _BaseFirstSpikeNode.__init__-en:

        * **English**

        The base of first-spike neurons, which integrate one window of ``T`` steps and fire in the next, at most once.

        Step mode ``'s'``: each call is one step; the spikes that it returns are those of the window before. Step mode
        ``'m'``: the currents of a window, ``[T, ..., n]``, give the spikes of the window that follows, ``[T, ..., n]``,
        or ``[T, ..., 2 n]`` if ``signed``; the state of single steps stays as it is.

        :param T: the number of steps of the window
        :type T: int
        :param signed: whether each value has an ON and an OFF neuron
        :type signed: bool
        :param step_mode: the step mode, ``'s'`` or ``'m'``
        :type step_mode: str
        :raises ValueError: raised when ``T`` is not a positive integer
        """
        super().__init__()
        if not isinstance(T, int) or T < 1:
            raise ValueError(f"T must be a positive integer, but got {T!r}.")
        self.T, self.signed, self.step_mode = T, signed, step_mode
        self.register_memory("current", 0.0)
        self.register_memory("voltage", 0.0)
        self.register_memory("codes", 0.0)
        self.register_memory("step", 0)

    def codes_of(self, voltage: Tensor) -> Tensor:
        """The code of each neuron from its voltage at the end of the window."""
        raise NotImplementedError

    def materialize_states(self, inputs: tuple[Any, ...], states: tuple[Any, ...], step_mode: str) -> tuple[Any, ...]:
        """Numbers become tensors of the input's shape; the step stays a number."""
        if step_mode == "m":
            return states
        tensors = (one if torch.is_tensor(one) else torch.full_like(inputs[0], one) for one in states[:3])
        return (*tensors, states[3])

    def single_step_functional_forward(
        self, inputs: tuple[Tensor, ...], states: tuple[Any, ...], **_: object
    ) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
        current, voltage, codes, step = states
        spikes = _spikes(codes, self.T, step, self.signed)
        current = current + inputs[0]
        voltage, step = voltage + current, step + 1
        if step == self.T:
            codes = self.codes_of(voltage)
            current, voltage, step = torch.zeros_like(current), torch.zeros_like(voltage), 0
        return (spikes,), (current, voltage, codes, step)

    def multi_step_functional_forward(
        self, inputs: tuple[Tensor, ...], states: tuple[Any, ...], **_: object
    ) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
        (x_seq,) = inputs
        if x_seq.dim() < 2 or x_seq.shape[0] != self.T:
            raise ValueError(f"x_seq must have shape [{self.T}, ...] with time first, but got {tuple(x_seq.shape)}.")
        return (spike_train(self.codes_of(integrate(x_seq)), self.T, self.signed),), states

    def extra_repr(self) -> str:
        return f"T={self.T}, signed={self.signed}, {super().extra_repr()}"


class FirstSpikeNode(BaseFirstSpikeNode):
    initialized: Tensor

    def __init__(
        self,
        T: int,
        neurons: int,
        signed: bool = False,
        min_code: int = 1,
        step_mode: str = "s",
    ) -> None:
        r"""
        **API Language** - :ref:`中文 <FirstSpikeNode.__init__-cn>` | :ref:`English <FirstSpikeNode.__init__-en>`

        ----

        .. _FirstSpikeNode.__init__-cn:

        * **中文**

        首脉冲神经元：窗口结束时的电压给出编码

        .. math::
            z = \mathrm{clamp}(\lfloor (V + b) / s + 1/2 \rfloor, 0, T)

        并在下一个窗口的第 ``T - z`` 步发放一个脉冲；``z = 0`` 时不发放。步长 ``s`` 与偏置 ``b`` 可学习，
        步长由第一批数据初始化，梯度与 LSQ 相同。``signed`` 为 ``True`` 时 ``z`` 的下界为 ``-T``，由 OFF 神经元发放负值。

        :param T: 窗口的步数
        :type T: int
        :param neurons: 最后一维的大小
        :type neurons: int
        :param signed: 是否为每个值使用一对 ON 与 OFF 神经元
        :type signed: bool
        :param min_code: 绝对值小于 ``min_code`` 的编码不发放脉冲
        :type min_code: int
        :param step_mode: 步进模式，``'s'`` 或 ``'m'``
        :type step_mode: str
        :raises ValueError: 当 ``min_code`` 不在 ``1..T`` 内时抛出

        代码示例：

        .. code-block:: python

            net = nn.Sequential(layer.Linear(16, 32, bias=False), FirstSpikeNode(15, 32))
            functional.set_step_mode(net, "m")
            spikes = net((torch.rand(15, 4, 16) < 0.1).float())  # [15, 4, 32]

        ----

        .. _FirstSpikeNode.__init__-en:

        * **English**

        First-spike neurons. The voltage at the end of a window gives the code

        .. math::
            z = \mathrm{clamp}(\lfloor (V + b) / s + 1/2 \rfloor, 0, T)

        which is sent as one spike at step ``T - z`` of the next window, or not at all if ``z = 0``. The step ``s`` and
        the bias ``b`` are learned, with the gradients of LSQ; the first batch gives the step its first value. If
        ``signed``, the lower bound is ``-T``, and OFF neurons send what is negative.

        :param T: the number of steps of the window
        :type T: int
        :param neurons: the size of the last axis
        :type neurons: int
        :param signed: whether each value has an ON and an OFF neuron
        :type signed: bool
        :param min_code: a code whose size is below ``min_code`` sends no spike
        :type min_code: int
        :param step_mode: the step mode, ``'s'`` or ``'m'``
        :type step_mode: str
        :raises ValueError: raised when ``min_code`` is not in ``1..T``

        Code example:

        .. code-block:: python

            net = nn.Sequential(layer.Linear(16, 32, bias=False), FirstSpikeNode(15, 32))
            functional.set_step_mode(net, "m")
            spikes = net((torch.rand(15, 4, 16) < 0.1).float())  # [15, 4, 32]
        """
        super().__init__(T, signed, step_mode)
        if not 1 <= min_code <= T:
            raise ValueError(f"min_code must be in 1..{T}, but got {min_code!r}.")
        self.min_code = min_code
        self.log_step = nn.Parameter(torch.zeros(()))
        self.bias = nn.Parameter(torch.zeros(neurons))
        self.register_buffer("initialized", torch.zeros((), dtype=torch.bool))

    def codes_of(self, voltage: Tensor) -> Tensor:
        voltage = voltage + self.bias
        if not self.initialized:
            with torch.no_grad():
                # LSQ's first step, 2 E|V| / sqrt(T).
                self.log_step.copy_((2 * voltage.abs().mean() * self.T**-0.5).clamp_min(1e-6).log())
                self.initialized.fill_(True)
        inside = (voltage / self.log_step.exp()).clamp(-self.T if self.signed else 0, self.T)
        codes = inside + ((inside + 0.5).floor() - inside).detach()
        return codes * (codes.abs() >= self.min_code)


def counting_rules() -> dict[Any, Callable[[tuple[Any, ...], dict[str, Any], Any], int]]:
    r"""
    **API Language** - :ref:`中文 <counting_rules-cn>` | :ref:`English <counting_rules-en>`

    ----

    .. _counting_rules-cn:

    * **中文**

    用于 :class:`SynOpCounter` 与 :class:`ACCounter` 的 ``extra_rules``，每个脉冲经过每个突触计一次：在两组编码的 l1
    距离中，``q`` 的一个脉冲到达所有键，``k`` 的一个脉冲到达所有查询。

    :return: ``torch.cdist`` 的规则，只统计 ``p=1``
    :rtype: dict

    ----

    .. _counting_rules-en:

    * **English**

    Rules for ``extra_rules`` of :class:`SynOpCounter` and :class:`ACCounter`, which count one per spike and synapse: in
    the l1 distance of two sets of codes a spike of ``q`` meets all keys, and a spike of ``k`` all queries.

    :return: the rule of ``torch.cdist``, which counts only ``p=1``
    :rtype: dict
    """
    return {torch.ops.aten._cdist_forward.default: count_distance}


def count_distance(arguments: tuple[Any, ...], _: dict[str, Any], __: Any) -> int:
    """The arguments are ``(q, k)``, or ``(q, k, p, ...)`` of torch's distance."""
    q, k = arguments[:2]
    if len(arguments) > 2 and arguments[2] != 1:
        return 0
    return int(q.count_nonzero()) * int(k.shape[-2]) + int(k.count_nonzero()) * int(q.shape[-2])
