"""Edge: the mapping of a producer's values to the arguments of its consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.core.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Hashable

Port = int | str  # a position, or a keyword


class Edge:
    """One edge: `in_*` select from the source's values, `out_*` are their slots in the target's call.

    True is "all of them", a number is one position, a text one keyword; see `check_edge_parameters`.

    An edge of a backward graph may have three more attributes. `forward` is the forward edge that it reverses: it
    carries the gradients of the values that moved along that edge. `consumer` is the forward node whose input gradients
    it carries, if that is not its source. `packed` is true if the source returns just those gradients, in their order.
    """

    __slots__ = ("consumer", "forward", "in_arg", "in_kwarg", "out_arg", "out_kwarg", "packed", "source", "target")

    def __init__(
        self,
        source: Hashable,
        target: Hashable,
        in_arg: Any = True,
        in_kwarg: Any = True,
        out_arg: Any = True,
        out_kwarg: Any = True,
        forward: Edge | None = None,
        consumer: Hashable = None,
        packed: bool = False,
    ):
        self.source, self.target = source, target
        self.in_arg, self.in_kwarg, self.out_arg, self.out_kwarg = in_arg, in_kwarg, out_arg, out_kwarg
        self.forward, self.consumer, self.packed = forward, consumer, packed

    @property
    def reader(self) -> Any:
        """The forward node that read the values of these gradients: the consumer, or else the source itself."""
        return self.source if self.consumer is None else self.consumer

    @property
    def taken(self) -> Port | None:
        """The port of the source that the edge takes; None for all values."""
        return one(self.in_arg, self.in_kwarg)

    @property
    def slot(self) -> Port | None:
        """The slot of the target that the edge fills; None where values are appended, or keep their names."""
        return one(self.out_arg, self.out_kwarg)

    @property
    def parameters(self) -> dict[str, object]:
        """The four parameters, as `add_edge` and networkx take them."""
        return {"in_arg": self.in_arg, "in_kwarg": self.in_kwarg, "out_arg": self.out_arg, "out_kwarg": self.out_kwarg}

    @property
    def label(self) -> str:
        """The label of both ends: `* -> *`, `[0] -> [1]`, `{k} -> []`."""
        return f"{side(self.in_arg, self.in_kwarg)} -> {side(self.out_arg, self.out_kwarg)}"

    def reversed_parameters(self) -> dict[str, object]:
        """The parameters of the edge that runs against this one."""
        return {"in_arg": self.out_arg, "in_kwarg": self.out_kwarg, "out_arg": self.in_arg, "out_kwarg": self.in_kwarg}

    def moved(self, **changes: object) -> Edge:
        """The same edge between other nodes, or with other parameters."""
        return Edge(**{**{name: getattr(self, name) for name in Edge.__slots__}, **changes})

    def __repr__(self) -> str:
        return f"Edge({self.source!r} {self.label} {self.target!r})"


def one(arg: Any, kwarg: Any) -> Port | None:
    """The position or keyword that a pair of parameters names; None if it is not one."""
    if arg is not None and arg is not True:
        return arg
    return kwarg if isinstance(kwarg, str) else None


def side(arg: Any, kwarg: Any) -> str:
    """The label of one end of an edge."""
    if arg is True and kwarg is True:
        return "*"
    if arg is not None:
        return "[]" if arg is True else f"[{arg}]"
    return "{}" if kwarg is True else f"{{{kwarg}}}"


def check_edge_parameters(
    in_arg: Any = None, in_kwarg: Any = None, out_arg: Any = None, out_kwarg: Any = None
) -> dict[str, Any]:
    """Complete the parameters of an edge.

    | given                                    | becomes            |                                              |
    |------------------------------------------|--------------------|----------------------------------------------|
    | nothing                                  | `* -> *`           | every value, positions and names kept        |
    | `in_arg=True` or `out_arg=True`          | `[] -> []`         | every positional value                       |
    | `in_kwarg=True` or `out_kwarg=True`      | `{} -> {}`         | every keyword value, names kept              |
    | `in_kwarg=True, out_arg=True`            | `{} -> []`         | every keyword value as the next positions    |
    | `in_arg=i`                               | `[i] -> []`        | one value, as the next position              |
    | `out_arg=j`                              | `[0] -> [j]`       | the first value                              |
    | `out_kwarg=k`                            | `[0] -> {k}`       | the first value                              |
    | `in_kwarg=k`                             | `{k} -> {k}`       |                                              |
    | `in_arg=i` or `in_kwarg=k` with `out_arg=j` or `out_kwarg=l` | as given | one value to one slot                |
    | `in_kwarg=k, out_arg=True`               | `{k} -> []`        | one value, as the next position              |

    Raises    GraphError for two sources, two destinations, all on one side and one on the other, a position that is
              not a whole number from 0 up, a keyword that is no text
    """
    parameters = {"in_arg": in_arg, "in_kwarg": in_kwarg, "out_arg": out_arg, "out_kwarg": out_kwarg}
    if all(v is None for v in parameters.values()) or all(v is True for v in parameters.values()):
        return dict.fromkeys(parameters, True)
    for name, value in parameters.items():
        check_parameter(name, value)
    if in_arg is not None and in_kwarg is not None:
        raise GraphError(f"an edge takes either in_arg or in_kwarg, got in_arg={in_arg!r} and in_kwarg={in_kwarg!r}")
    if out_arg is not None and out_kwarg is not None:
        raise GraphError(
            f"an edge gives to either out_arg or out_kwarg, got out_arg={out_arg!r} and out_kwarg={out_kwarg!r}"
        )
    if in_arg is None and in_kwarg is None:
        if out_arg is True or out_kwarg is True:
            in_arg, in_kwarg = out_arg, out_kwarg
        else:
            in_arg = 0
    elif out_arg is None and out_kwarg is None:
        if in_arg is not None:
            out_arg = True
        else:
            out_kwarg = in_kwarg
    takes_all, gives_all = in_arg is True or in_kwarg is True, out_arg is True or out_kwarg is True
    if takes_all and not gives_all or out_kwarg is True and in_kwarg is not True:
        said = ", ".join(f"{name}={value!r}" for name, value in parameters.items() if value is not None)
        raise GraphError(
            f"an edge with {said} would take all on one side and one on the other, or positions as names: "
            "give True on both sides, or one position or name on both"
        )
    return {"in_arg": in_arg, "in_kwarg": in_kwarg, "out_arg": out_arg, "out_kwarg": out_kwarg}


def check_parameter(name: str, value: object) -> None:
    """Check that a parameter is None, True, or one position or keyword."""
    if value is None or value is True:
        return
    if name.endswith("kwarg"):
        if not isinstance(value, str):
            raise GraphError(f"{name} wanted a keyword, or True for all, got {value!r}")
    elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise GraphError(f"{name} wanted a position from 0 up, or True for all, got {value!r}")
