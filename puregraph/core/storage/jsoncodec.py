"""Plain values as JSON and back, exactly: a tuple stays a tuple, a slice a slice, and nothing is ever executed.

Numbers, texts, None and lists are encoded as themselves. Any other value is an object with one key, its type:

    {"tuple": [3, 3]}   {"dict": [[key, value], ...]}   {"slice": [None, 5, None]}   {"ellipsis": true}
    {"dtype": "float32"}   {"type": "bool"}   {"dim": "2*N"}   {"float": "nan"}
    {"int": "0x..."} where it is too long for decimals
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.budget import Budget
from puregraph.core.base.dtype import dtypeNamed
from puregraph.core.dim import Dim
from puregraph.core.errors import CheckpointError, brief
from puregraph.core.storage.hdf import DTYPES

if TYPE_CHECKING:
    from puregraph.core.shape import Shape

MAX_JSON_LEVELS = 100  # nesting: deeper than any real value, and far from Python's recursion limit
MAX_NUMBER_CHARACTERS = 1_000_000  # characters of a number or size that is written as text
MAX_DIGITS = 1000  # Python itself refuses decimals of more than 4300

Special = Callable[[Any], Any]


def encode(value: object, where: str, special: Special = lambda value: None, depth: int = 0) -> Any:
    """Encode a value as JSON. `special` may return an object of one key for a value of its own kind, else None.

    Raises    CheckpointError, naming `where` it is, for anything that is not plain
    """
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        if value.bit_length() > 3 * MAX_NUMBER_CHARACTERS:
            raise CheckpointError(f"{where}: a whole number of {value.bit_length()} bits, too long to be stored")
        return value if value.bit_length() < 3 * MAX_DIGITS else {"int": hex(value)}
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    encoded = special(value)
    if encoded is not None:
        return encoded
    if depth == MAX_JSON_LEVELS:
        raise CheckpointError(f"{where}: it is nested more than {MAX_JSON_LEVELS} deep, or holds itself")

    def inner(values: Any) -> list[Any]:
        return [encode(v, f"{where}[{i}]", special, depth + 1) for i, v in enumerate(values)]

    if type(value) is list:
        return inner(value)
    if type(value) is tuple:
        return {"tuple": inner(value)}
    if type(value) is dict:
        pairs = [(k, f"{where}[{k!r:.40}]", v) for k, v in value.items()]
        return {"dict": [[encode(k, at, special), encode(v, at, special, depth + 1)] for k, at, v in pairs]}
    if isinstance(value, slice):
        return {"slice": inner((value.start, value.stop, value.step))}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, Dim):
        return {"dim": str(value)}
    if isinstance(value, type) and value in TYPES.values():
        return {"type": value.__name__}
    if isinstance(value, np.dtype) or isinstance(value, type) and issubclass(value, np.generic):
        name = np.dtype(value).name
        if name in DTYPES:
            return {"dtype": name}
    if isinstance(value, (np.bool_, np.integer, np.floating)) and value.dtype.itemsize <= 8:
        return encode(value.item(), where)
    raise CheckpointError(
        f"{where}: a {type(value).__name__} cannot be stored; give numbers, texts, None, lists, tuples, "
        "dicts, slices, dtypes or Modules instead"
    )


def decode(value: Any, special: Special = lambda item: None) -> Any:
    """Decode a JSON value that `encode` made. `special(value)` decodes objects with other keys.

    Raises    CheckpointError for anything that `encode` would not write
    """
    if value is None or type(value) in (bool, str, int, float):
        return value
    if type(value) is list:
        return [decode(v, special) for v in value]
    if type(value) is dict and len(value) == 1:
        (kind, content), *_ = value.items()
        if kind in READERS:
            try:
                return READERS[kind](decode(content, special))
            except (TypeError, ValueError, AttributeError, KeyError) as error:
                raise CheckpointError(f"{brief(value)} cannot be read: {error}") from error
        decoded = special(value)
        if decoded is not None:
            return decoded
    raise CheckpointError(f"{brief(value)} is no value that puregraph writes")


def partsOf(value: Shape | list[Shape]) -> list[Any]:
    """Check that the parts of an encoded tuple, slice or dict are a list, and return it."""
    if type(value) is not list:
        raise TypeError(f"wanted a list, got {type(value).__name__}")
    return value


def readDict(pairs: Any) -> dict[Any, Any]:
    """Build a dict with unique keys that were not chosen to collide in the hash table, which would take forever."""
    keys = [key for key, _ in partsOf(pairs)]
    if len(keys) > 100 and 2 * len({hash(key) for key in keys}) < len(keys):
        raise ValueError(f"of its {len(keys)} keys, too many have one hash")
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice in it")
    return result


def readText(value: object) -> str:
    """Check that a value is a text of at most MAX_NUMBER_CHARACTERS characters, and return it."""
    if type(value) is not str or len(value) > MAX_NUMBER_CHARACTERS:
        raise TypeError(f"wanted a text of at most {MAX_NUMBER_CHARACTERS} characters, got {brief(value)}")
    return value


TYPES = {"bool": bool, "int": int, "float": float}  # Python's own, which numpy takes for dtypes

READERS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda parts: tuple(partsOf(parts)),
    "dict": readDict,
    "slice": lambda parts: slice(*partsOf(parts)),
    "ellipsis": lambda _: Ellipsis,
    "dim": lambda text: Dim(readText(text)),
    "dtype": lambda name: dtypeNamed(DTYPES[DTYPES.index(name)]),  # numpy would take a text for a structure of any size
    "type": lambda name: TYPES[readText(name)],
    "float": lambda text: float(readText(text)),
    "int": lambda text: int(readText(text), 16),
}


def dumps(value: object) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def loads(text: bytes, budget: Budget | None = None) -> Any:
    """The content of a JSON text.

    Raises    ValueError for a text that is no JSON, names a key twice, or is nested too deep; CheckpointError for one
              whose lists would take much more memory than it does
    """
    (budget or Budget(len(text))).spend("lists in its JSON", text.count(b"[") + text.count(b"{"))
    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object whose keys are unique; otherwise two readers could take different values."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return result


def refuse(name: str) -> None:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not allowed in JSON")
