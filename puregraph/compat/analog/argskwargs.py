"""ArgsKwargs and InputOutput: what a node of a ForwardGraph or BackwardGraph is called with, and what it gives."""

from __future__ import annotations

from typing import Any


class ArgsKwargs:
    """Positional and keyword values together: one call's arguments, or one node's results.

    `args` is a list, `kwargs` a dictionary; a single value that is no list or tuple becomes the only positional one.

    >>> call = ArgsKwargs([1, 2], {"scale": 3})
    >>> call.get(1), call.get("scale"), call.has("shift"), call.values()
    (2, 3, False, [1, 2, 3])
    """

    __slots__ = ("args", "kwargs")

    def __init__(self, args: Any = None, kwargs: dict[str, Any] | None = None):
        self.args: list[Any] = [] if args is None else list(args) if isinstance(args, (list, tuple)) else [args]
        self.kwargs: dict[str, Any] = {} if kwargs is None else dict(kwargs)

    def is_empty(self) -> bool:
        """True without any positional or keyword value."""
        return not (self.args or self.kwargs)

    def is_nothing(self) -> bool:
        """True if every value is None: as gradients, there are none."""
        return all(v is None for v in self.args) and all(v is None for v in self.kwargs.values())

    def values(self) -> list[Any]:
        """All values, positional ones first."""
        return [*self.args, *self.kwargs.values()]

    def get(self, port: int | str) -> Any:
        """The value at a position or under a name; None where there is none."""
        if isinstance(port, str):
            return self.kwargs.get(port)
        return self.args[port] if port < len(self.args) else None

    def has(self, port: int | str) -> bool:
        """True if there is a value, even None, at this position or under this name."""
        return port in self.kwargs if isinstance(port, str) else port < len(self.args)

    def __repr__(self) -> str:
        arguments = [repr(v) for v in self.args] + [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"ArgsKwargs({', '.join(arguments)})"

    @staticmethod
    def to_args_kwargs_object(outputs: Any) -> ArgsKwargs:
        """Wrap a callable's return value in ArgsKwargs.

        A dictionary is keyword values; a pair whose second is a dictionary is both; a tuple or list is positional
        values; None is nothing; anything else, including subclasses of dictionaries, is one value.
        """
        if isinstance(outputs, ArgsKwargs):
            return outputs
        if type(outputs) is dict:
            return ArgsKwargs(kwargs=outputs)
        if isinstance(outputs, (tuple, list)):
            if len(outputs) == 2 and type(outputs[1]) is dict:
                return ArgsKwargs(outputs[0], outputs[1])
            return ArgsKwargs(outputs)
        return ArgsKwargs() if outputs is None else ArgsKwargs([outputs])

    @staticmethod
    def from_args_kwargs_object(outputs: ArgsKwargs) -> Any:
        """Unwrap for the caller: one value, a list of several, None for nothing; the object itself with keywords."""
        if outputs.kwargs:
            return outputs
        if len(outputs.args) > 1:
            return outputs.args
        return outputs.args[0] if outputs.args else None


class InputOutput:
    """A node's inputs and outputs: values in a forward pass, gradients in a backward pass.

    >>> seen = InputOutput(ArgsKwargs([2.0]), ArgsKwargs([4.0]))
    >>> seen.inputs.values(), seen.outputs.values()
    ([2.0], [4.0])
    """

    __slots__ = ("inputs", "outputs")

    def __init__(self, inputs: ArgsKwargs | None = None, outputs: ArgsKwargs | None = None):
        self.inputs = ArgsKwargs() if inputs is None else inputs
        self.outputs = ArgsKwargs() if outputs is None else outputs

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inputs!r} -> {self.outputs!r})"
