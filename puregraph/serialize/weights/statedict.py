"""StateDict: name the tensors of a torch file by dotted paths, without the keys of an enclosing training checkpoint."""

from __future__ import annotations

import re
from typing import Any

from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError, quote
from puregraph.serialize.weights.torchpickle import TensorEntry

WRAPPERS = ("state_dict", "model_state_dict", "model_state")  # keys of the state dict in a checkpoint
LOOSE = ("model", "module", "network", "net", "params_ema", "params")  # the same, if only training state is beside them
BESIDE = re.compile(r"(^|_)(optim|ema|params|sched|lr_|scaler|rng|random_state|callbacks|loops|loss)", re.IGNORECASE)
TRAINING = re.compile(r"optim|sched|scaler|grad|loss", re.IGNORECASE)  # their arrays may have names of parameters
VISITS = (100_000, 1 / 100)  # most values and containers in any file, and more for each byte of the file
WRAPS = 3  # nesting of wrappers
MAX_DEPTH = 100
UNNAMED = "tensor"  # the name of a single tensor in a file


class StateDict:
    """The tensors of a value by name, and the plain values around them.

    Raises    CheckpointError for two tensors of one name, and for a small file that makes a lot of names
    """

    def __init__(self, value: Any, budget: Budget, size: int) -> None:
        self.tensors: dict[str, TensorEntry] = {}
        self.metadata: dict[str, Any] = {}
        self.budget, self.visits = budget, int(VISITS[0] + VISITS[1] * size)
        if isinstance(value, TensorEntry):
            value = {UNNAMED: value}
        for _ in range(WRAPS):
            key = wrapperOf(value)
            if key is None:
                break
            for name, other in value.items():
                if name != key and not holdsTensors(other):
                    self.gather(str(name), other, 0)
            value = value[key]
        self.gather("", value, 0)

    def gather(self, path: str, value: Any, depth: int) -> None:
        """Record a tensor or a plain value under its path, or the contents of a dict or list."""
        self.visit(depth)
        self.budget.spend("characters of paths", len(path))
        if isinstance(value, TensorEntry):
            if path in self.tensors:
                raise CheckpointError(f"two of its tensors have the name {quote(path)}")
            self.tensors[path] = value
        elif type(value) is dict or type(value) in (list, tuple) and any(map(isHolder, value)):
            items = value.items() if type(value) is dict else enumerate(value)
            for key, item in items:
                self.gather(f"{path}.{key}" if path else str(key), item, depth + 1)
        elif isPlain(value):
            self.metadata[path] = value
        elif type(value) in (list, tuple):
            for _ in value:
                self.visit(depth)
            if all(map(isPlain, value)):
                self.metadata[path] = list(value)

    def visit(self, depth: int) -> None:
        """Count a visit of a value. Raises CheckpointError for too many, or too deep ones."""
        self.visits -= 1
        if self.visits < 0 or depth > MAX_DEPTH:
            raise CheckpointError("its dicts and lists are nested too deep, or hold each other too often")


def wrapperOf(value: object) -> str | None:
    """The key of the state dict in a checkpoint; None for a state dict."""
    if not isinstance(value, dict):
        return None
    for key in WRAPPERS:
        if holdsTensors(value.get(key)):
            return None if hasRival(value, key) else key
    for key in LOOSE:
        if isinstance(value.get(key), dict) and holdsTensors(value[key]):
            others = [name for name in value if name != key and not isBeside(name)]
            isAmbiguous = hasRival(value, key) or any(holdsTensors(value[name]) for name in others)
            return None if isAmbiguous else key
    return None


def hasRival(value: dict[Any, Any], key: str) -> bool:
    """True if another state dict is beside that of a key, such as a moving average: the caller must choose."""
    names = (
        {name for name, item in value[key].items() if isinstance(item, TensorEntry)} if type(value[key]) is dict else ()
    )
    for name, other in value.items():
        if name != key and type(other) is dict and not TRAINING.search(str(name)):
            for state in (other, *(item for item in other.values() if type(item) is dict)):
                if any(isinstance(state.get(text), TensorEntry) for text in names):
                    return True
    return False


def isBeside(name: object) -> bool:
    """True for the key of something that a checkpoint has beside the state dict."""
    return isinstance(name, str) and BESIDE.search(name) is not None


def isHolder(value: object) -> bool:
    """True for a tensor, a dict, a list or a tuple."""
    return type(value) in (TensorEntry, dict, list, tuple)


def isPlain(value: object) -> bool:
    """True for a number, a text, a bool or None."""
    return value is None or isinstance(value, (bool, int, float, str))


def holdsTensors(value: Any) -> bool:
    """True if there is a tensor in a value; each dict and list is looked through once."""
    waiting, seen = [value], set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, TensorEntry):
            return True
        if type(item) in (dict, list, tuple) and id(item) not in seen:
            seen.add(id(item))
            waiting.extend(item.values() if type(item) is dict else item)
    return False
