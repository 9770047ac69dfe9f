"""The exceptions of puregraph, and how one gains its location.

PuregraphError
  GraphError (ValueError)        a graph cannot be built or run as it is linked
  ShapeError (ValueError)        one or more nodes do not fit their inputs; `faults` lists them all
  SizeError (ShapeError, ArgumentError)  a size or count among arguments is out of range
  ArgumentError (ValueError, TypeError)  an argument is of another kind, or out of range
  DtypeError (TypeError)         a value has another dtype than a node takes, or the graph computes in
  FormulaError (ValueError)      a pointwise expression cannot be read or differentiated
  AutoDiffException (RuntimeError)  no gradient rule, or no forward pass to differentiate
  DeviceError (RuntimeError)     a requested device is not available
  UnknownAttributeError (AttributeError)  an attribute was set that has no effect
  DataError (ValueError)         a data set, batch or metric cannot be used as given
  CheckpointError (OSError)      a file cannot be saved, or must not be loaded

GraphWarning (UserWarning)       something was left out of a graph, or will run but probably not as intended
"""

from __future__ import annotations

from reprlib import Repr
from typing import TYPE_CHECKING, NamedTuple

from puregraph.core.errors.shorttraceback import install, notebookLines

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self


class PuregraphError(Exception):
    """The base of every error that puregraph raises; if uncaught, its traceback is shortened."""

    def __new__(cls, *arguments: object, **options: object) -> Self:
        install()
        return super().__new__(cls, *arguments, **options)

    def __str__(self) -> str:
        return printable(super().__str__())  # a message may quote an untrusted file

    hasShortTraceback = True
    _render_traceback_ = notebookLines  # IPython calls this method


class GraphError(PuregraphError, ValueError):
    """A graph cannot be built or run as it is linked.

    >>> try:
    ...     Graph(Input("x").node(), Relu().node())
    ... except GraphError as error:
    ...     print(str(error)[:59])
    the outputs need 'relu' (Relu), which no input reaches: add
    """


class ArgumentError(PuregraphError, ValueError, TypeError):
    """An argument of a constructor or function is of another kind than it must be, or out of range."""


class DtypeError(PuregraphError, TypeError):
    """A value has another dtype than a node takes; `faults` lists the nodes that are known ahead of data."""

    def __init__(self, *faults: Fault | str):
        self.faults = tuple(fault for fault in faults if isinstance(fault, Fault))
        super().__init__(listed(faults))

    def __reduce__(self) -> tuple:
        return type(self), self.faults or self.args


class FormulaError(PuregraphError, ValueError):
    """A pointwise expression cannot be read or differentiated."""


class AutoDiffException(PuregraphError, RuntimeError):  # noqa: N818 - the name that DaceML's users know
    """There is no gradient rule for a node, or no forward pass to differentiate."""


class DeviceError(PuregraphError, RuntimeError):
    """A requested device is not available."""


class DataError(PuregraphError, ValueError):
    """A data set, a batch or a metric cannot be used as given."""


class UnknownAttributeError(PuregraphError, AttributeError):
    """An attribute was set that has no effect, or read that has another name here."""


class CheckpointError(PuregraphError, OSError):
    """A file cannot be saved, or must not be loaded; the message names file, tensor and reason."""


class NotFiniteError(PuregraphError):
    """A cost or a gradient is nan or infinite; no parameter was updated with it.

    `step`    the step of the Trainer
    `behind`  for errors reported by a GPU, the number of steps started since
    """

    step: int
    behind: int | None = None
    namesLocation = False

    @classmethod
    def atUpdate(cls, owner: str, step: int, what: str) -> NotFiniteError:
        """Return the error for an optimizer's update."""
        hint = "try a lower learnRate, or leave such updates out with onNonFinite='skip'"
        return cls(f"{owner}: at update {step} {what} is not finite; {hint}")


class GraphWarning(UserWarning):
    """Something was left out of a graph, or will run but probably not as intended.

    >>> import warnings
    >>> x = Input(name="x").node()
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", GraphWarning)                # a branch that leads nowhere would raise
    ...     net = Graph(x, Tanh()(x))
    """


class Fault(NamedTuple):
    """One node that does not fit: its path, what it wanted, what it got, and a hint."""

    wanted: str
    given: str
    hint: str = ""
    path: str = ""
    module: str = ""
    source: str = ""
    kind: str = "shape"  # or "dtype"

    def __str__(self) -> str:
        where = f"at '{self.path}' ({self.module}): " if self.path else f"{self.module}: " if self.module else ""
        source = f" from {self.source}" if self.source else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{where}wanted {self.wanted}, got {self.given}{source}{hint}"


class ShapeError(PuregraphError, ValueError):
    """One or more nodes do not fit their inputs; `faults` lists them all."""

    def __init__(self, *faults: Fault):
        self.faults = faults
        super().__init__(listed(faults))

    def _repr_html_(self) -> str:
        from html import escape  # no run without a notebook reads its table of 2,200 entities

        head = ("node", "module", "wanted", "got", "from", "try")
        rows = [(f.path, f.module, f.wanted, f.given, f.source, f.hint) for f in self.faults]
        cells = ["".join(f"<td>{escape(str(text))}</td>" for text in row) for row in rows]
        return f"<table><tr>{''.join(f'<th>{t}</th>' for t in head)}</tr><tr>{'</tr><tr>'.join(cells)}</tr></table>"

    def __reduce__(self) -> tuple:
        return type(self), self.faults


class SizeError(ShapeError, ArgumentError):
    """A size or count among the arguments of a constructor or function is not a whole number, or is out of range.

    >>> try:
    ...     Linear(-1, 3)
    ... except SizeError as error:
    ...     print(error)
    Linear: wanted insize as a whole number of at least 0, got -1
    """


def listed(faults: tuple[Any, ...]) -> str:
    """Format one fault plainly, several as a list."""
    lines = [str(fault) for fault in faults]
    if len(lines) > 1:
        lines = [f"{len(lines)} nodes do not fit their inputs", *(f"  {line}" for line in lines)]
    return "\n".join(lines)


def misfit(faults: list[Fault]) -> ShapeError | DtypeError:
    """Return the error for nodes that do not fit their inputs: a DtypeError if all have a wrong dtype."""
    return DtypeError(*faults) if all(fault.kind == "dtype" for fault in faults) else ShapeError(*faults)


def need(condition: Any, wanted: Any, given: Any, hint: str = "") -> None:
    """Raise a ShapeError unless `condition` holds; shapes are printed without quotes around symbols."""
    if not condition:
        raise ShapeError(Fault(show(wanted), show(given), hint))


def show(value: object) -> str:
    """A shape, or several, as people write them: (N, 16, 4), not ('N', 16, 4)."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(show, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(show, value)) + "]"
    return str(value)


def printable(text: str) -> str:
    """Escape control characters in an untrusted text, so that it is safe to print on a terminal."""
    lines = text.split("\n")  # by line: a list of all characters takes ten times the memory of a long text
    return "\n".join(
        [
            line if line.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
            for line in lines
        ]
    )


def quote(name: object) -> str:
    """Quote an untrusted name for a message: on one line, and shortened."""
    text = printable(str(name)).replace("\n", "\\n")
    return f"'{text}'" if len(text) <= 100 else f"'{text[:90]}...' ({len(text)} characters)"


def brief(value: object) -> str:
    """Format an untrusted value for a message, shortened; only a part of it is read."""
    short = Repr()
    short.maxlevel, short.maxlist, short.maxdict, short.maxstring, short.maxlong, short.maxother = 3, 5, 6, 80, 40, 80
    return f"{short.repr(value):.200}"


def plural(count: int, noun: str) -> str:
    """`1 input`, `2 inputs`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def addLocation(error: BaseException, location: str) -> None:
    """Append the location that an exception of any type passed through; its type and traceback stay.

    One that names its node itself, and sets `namesLocation`, stays as it is.
    """
    if getattr(error, "namesLocation", False):
        return
    if hasattr(error, "add_note"):
        error.add_note(location)
    elif error.args and isinstance(error.args[0], str):  # Python 3.10 has no notes
        error.args = (f"{error.args[0]}\n{location}", *error.args[1:])
