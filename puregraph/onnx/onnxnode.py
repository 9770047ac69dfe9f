"""OnnxNode: a node of a file, as passed to the function that reads its operator."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from puregraph.core.errors import GraphError
from puregraph.modules import Transpose
from puregraph.onnx.onnxvalue import OnnxValue


class OnnxNode:
    """One node of a file while it is read: attributes, operator version, and a builder of graph nodes.

    `node(Module(...), x, y)` adds a node that reads the values x and y, and returns its output, or a list of several.
    `wants` says which outputs are read.
    """

    def __init__(self, proto: Any, name: str, version: int, attributes: dict[str, Any], builder: Any):
        self.proto, self.name, self.version, self.attributes, self.builder = proto, name, version, attributes, builder
        self.type: str = proto.op_type
        self.scope: Any = None  # the NameScope of the graph that contains it

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default if it is left out."""
        return self.attributes.get(name, default)

    def choice(self, name: str, *known: Any) -> Any:
        """An attribute with one of these values; the first is the default.

        Raises    GraphError for another value
        """
        value = self.get(name, known[0])
        if value not in known:
            self.refuse(f"{name}: wanted {' or '.join(map(repr, known))}, got {value!r}")
        return value

    def lengths(self, name: str, count: int, default: int) -> tuple[int, ...]:
        """An attribute of `count` integers; all are `default` if it is left out.

        Raises    GraphError for another number of them
        """
        values = tuple(self.get(name) or (default,) * count)
        if len(values) != count:
            self.refuse(f"{name}: wanted {count} integers, got {list(values)}")
        return values

    def kernel(self, W: OnnxValue) -> tuple:
        """The sizes of a kernel, from the shape of its weight.

        Raises    GraphError if the attribute kernel_shape differs
        """
        size = tuple(W.shape[2:])
        restated = tuple(self.get("kernel_shape", size))
        if restated != size:
            self.refuse(f"kernel_shape: wanted {list(size)}, as its weight has, got {list(restated)}")
        return size

    def wants(self, index: int) -> bool:
        """True if an output has a name, and so may be read."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def __call__(self, module: Any, *values: OnnxValue | None) -> Any:
        outputs = self.builder.add(module, values)
        return outputs if len(outputs) > 1 else outputs[0]

    def view(self, module: Any, x: OnnxValue, isOfFile: bool = False) -> Any:
        """Add a Transpose or Reshape; instead of one that undoes an earlier one, return the value before both.

        Both are kept if both or neither are in the file. So a layer that was written between transposes is read back
        unchanged, but operators of the file that cancel are kept.
        """
        if x.before is not None:
            other, earlier, wasOfFile = x.before
            if isOfFile != wasOfFile and self.undoes(module, other, x, earlier):
                return earlier
        y = self(module, x)
        y.before = module, x, isOfFile
        return y

    def undoes(self, module: Any, other: Any, x: OnnxValue, earlier: OnnxValue) -> bool:
        """True if a module applied to x restores the input of another one."""
        if x.shape is None or earlier.shape is None or isinstance(module, Transpose) != isinstance(other, Transpose):
            return False
        if isinstance(module, Transpose):
            order = other.order(x.rank)
            return [order[axis] for axis in module.order(x.rank)] == list(range(len(order)))
        return bool(self.builder.inferred(module, [x])[0].shape == earlier.shape)

    def constant(self, array: Any) -> OnnxValue:
        """The value of an array that is known while reading."""
        return OnnxValue.of(self.name, array)

    def scalar(self, number: Any, like: OnnxValue) -> OnnxValue:
        """A number in the dtype of another value."""
        return self.constant(np.asarray(number, like.dtype or np.float32))

    def seeded(self, module: Any) -> Any:
        """A module that draws random numbers, seeded with the node's attribute `seed` if it has one."""
        seed = self.get("seed")
        if seed is not None:
            module.key.data = np.asarray(np.float64(seed).view(np.uint64))
        return module

    def rankOf(self, value: OnnxValue) -> int:
        """The number of axes.

        Raises    GraphError where it is not known
        """
        if value.shape is None:
            raise GraphError(f"the rank of '{value.name}' is not known: give shapes= of the model's inputs")
        return len(value.shape)

    def known(self, value: OnnxValue | None, what: str) -> Any:
        """The elements of an input that must be known ahead of data; None if it is left out.

        Raises    GraphError if they are not known
        """
        if value is None:
            return None
        if value.numbers is None:
            raise GraphError(f"{what} '{value.name}' is known only with the data; a constant can be read")
        return value.numbers

    def refuse(self, reason: str) -> NoReturn:
        """Refuse this use of the operator.

        Raises    GraphError with the reason
        """
        raise GraphError(reason)
