"""An ONNX graph that grows node by node: arrays become initialisers, every node gets a name, the result is bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lapis._util.hints import import_optional

# The oldest set that has every operator used here in its present form, so that as many runtimes as possible read it.
OPSET, IR_VERSION = 18, 9


class Graph:
    """Nodes in the order in which they were added. A value is known by its name, a string."""

    def __init__(self) -> None:
        self._onnx = import_optional("onnx", "onnx", "an ONNX file")
        self._nodes: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._initialisers: list[Any] = []

    def constant(self, array: Any) -> str:
        """The name of an initialiser with these values; equal arrays are stored once."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            self._constants[key] = f"constant_{len(self._constants)}"
            self._initialisers.append(self._onnx.numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def add(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """The result of one operator; inputs are names, or arrays and numpy numbers, which become initialisers."""
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        result = f"{operator}_{len(self._nodes)}"
        node = self._onnx.helper.make_node(operator, names, [result], name=result, **attributes)
        self._nodes.append(node)
        return result

    def cast(self, value: str, kind: Any) -> str:
        return self.add("Cast", value, to=self._kind(kind))

    def reshape(self, value: str, *shape: int) -> str:
        """0 keeps an axis as it is: the batch."""
        return self.add("Reshape", value, np.array(shape, dtype=np.int64))

    def transpose(self, value: str, *axes: int) -> str:
        return self.add("Transpose", value, perm=list(axes))

    def sum(self, value: str, axis: int = -1, keep: bool = True) -> str:
        return self.add("ReduceSum", value, np.array([axis], dtype=np.int64), keepdims=int(keep))

    def lookup(self, table: Any, index: str, *shape: int) -> str:
        """table[index] of a table with one axis, in `shape`, which is that of the index: -1 stands for the batch.

        ONNX Runtime copies each element by itself for Gather; for this operator it takes a tenth of the time.
        """
        found = self.add("GatherElements", table, self.reshape(index, -1), axis=0)
        return self.reshape(found, *shape)

    def quotient(self, value: str, divisor: Any) -> str:
        """floor(value / divisor) in int64: ONNX divides towards zero, but Mod has the sign of the divisor."""
        return self.add("Div", self.add("Sub", value, self.add("Mod", value, divisor)), divisor)

    def call(self, value: str, name: str) -> str:
        """Give a value the name of an output."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name], name=name))
        return name

    def model(
        self,
        inputs: Mapping[str, tuple[Any, list[int | str]]],
        outputs: Mapping[str, tuple[Any, list[int | str]]],
        metadata: Mapping[str, str],
    ) -> bytes:
        """The checked file. Inputs and outputs are name -> (dtype, shape), a word in a shape stands for any size."""
        helper = self._onnx.helper
        values = [
            [helper.make_tensor_value_info(name, self._kind(kind), shape) for name, (kind, shape) in table.items()]
            for table in (inputs, outputs)
        ]
        graph = helper.make_graph(self._nodes, "lapis", *values, initializer=self._initialisers)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="lapis"
        )
        helper.set_model_props(model, dict(metadata))
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString(deterministic=True))

    def _kind(self, kind: Any) -> int:
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
