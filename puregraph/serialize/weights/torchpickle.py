"""The pickles of torch, read by a small machine that makes lists, dicts, texts, numbers and descriptions of tensors.

It calls nothing and imports nothing: a name in a pickle is looked up in the tables below, and any other is refused.
The numbers of a tensor are elsewhere in the file; a pickle says which of them, in `TensorEntry`.

Source    Python, "pickletools", for the opcodes; torch/_utils.py, for the arguments of the calls
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.errors import CheckpointError, brief, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_COUNT = 1 << 48  # of keys and counts
STEPS = (300_000, 1 / 8)  # most opcodes in any file, and more for each byte of the file
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "UntypedStorage": "",  # bytes; the tensor has the dtype
}
DTYPES = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool"]
DTYPES += [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
INSTEAD = "in the program that wrote it, save the tensors alone: torch.save(model.state_dict(), path)"
REFUSED = {
    "_rebuild_qtensor": "a quantised tensor; save tensor.dequantize() instead",
    "_rebuild_sparse_tensor": "a sparse tensor; save tensor.to_dense() instead",
    "_get_layout": "a sparse tensor; save tensor.to_dense() instead",
    "_rebuild_nested_tensor": "a nested tensor; save its tensors, tensor.unbind(), instead",
    "_rebuild_meta_tensor_no_storage": "a tensor on the device meta, which has no elements",
    "ComplexFloatStorage": "a tensor of complex numbers; save torch.view_as_real(tensor) instead",
    "ComplexDoubleStorage": "a tensor of complex numbers; save torch.view_as_real(tensor) instead",
}
DAMAGED = (AttributeError, IndexError, KeyError, TypeError, ValueError, struct.error)  # errors of damaged pickles


class GlobalName(NamedTuple):
    """A global name in a pickle: a module, and a name in it."""

    module: str
    name: str


class StorageEntry(NamedTuple):
    """The elements that tensors share: their key in the file, the dtype, and how many there are.

    A dtype of "" has bytes.
    """

    key: str
    dtype: str
    length: int


class TensorEntry(NamedTuple):
    """A tensor: which elements of a storage it has."""

    storage: StorageEntry
    dtype: str
    offset: int
    shape: Any
    strides: Any


# Calls ----------------------------------------------------------------------------------------------------------------


def rebuildTensor(
    storage: StorageEntry,
    offset: Any,
    shape: Any,
    strides: Any,
    needsGrad: Any = False,
    hooks: Any = None,
    flags: Any = None,
) -> TensorEntry:
    """A tensor of the dtype of its storage."""
    return rebuildTyped(storage, offset, shape, strides, needsGrad, hooks, storage.dtype, flags)


def rebuildTyped(
    storage: StorageEntry,
    offset: Any,
    shape: Any,
    strides: Any,
    needsGrad: Any,
    hooks: Any,
    dtype: Any,
    flags: Any = None,
) -> TensorEntry:
    """A tensor of the dtype `dtype`, in any storage."""
    if flags and any(flags.values()):
        raise CheckpointError("it holds a negative or conjugate view of a tensor; save tensor.clone() instead")
    if not isinstance(storage, StorageEntry) or dtype not in DTYPES:
        raise TypeError("wanted a storage and a dtype")
    return TensorEntry(storage, dtype, offset, shape, strides)


def rebuildParameter(tensor: Any, *settings: Any) -> TensorEntry:
    """The tensor of a parameter."""
    if not isinstance(tensor, TensorEntry):
        raise TypeError("wanted a tensor")
    return tensor


def rebuildFromType(function: Any, kind: object, arguments: Any, state: Any) -> TensorEntry:
    """The tensor of a subclass, rebuilt by calling one of these functions."""
    return rebuildParameter(callNamed(function, arguments))


def rebuildDict(pairs: Any = ()) -> dict[Any, Any]:
    """An ordered dict."""
    result: dict[Any, Any] = {}
    for key, value in pairs:
        setItem(result, key, value)
    return result


def sameTuple(sizes: Any) -> tuple:
    """The sizes of a shape, which are not copied."""
    if type(sizes) is not tuple:
        raise TypeError("wanted a tuple")
    return sizes


def deviceName(kind: object, index: Any = 0) -> str:
    """The name of a device."""
    if type(kind) is not str or type(index) is not int or len(kind) > 20:
        raise TypeError("wanted a device")
    return f"{kind}:{index}"


def callNamed(function: Any, arguments: Any) -> Any:
    """Call one of the functions of `CALLS`; other values are not even hashed, which would recurse."""
    if type(function) is not GlobalName:
        raise TypeError("wanted a known function")
    return CALLS[function](*arguments)


def setItem(target: Any, key: object, value: object) -> None:
    """Set an item of a dict.

    Raises    CheckpointError for a key that is no text or number, or stands twice
    """
    if type(target) is not dict:
        raise TypeError("wanted a dict")
    if type(key) is not str and not (
        type(key) is int and -MAX_COUNT < key < MAX_COUNT
    ):  # others may be made to collide
        raise CheckpointError(f"it holds a dict whose key is neither a text nor a whole number: {brief(key)}")
    if key in target:
        raise CheckpointError(f"key {quote(key)} stands twice in a dict of it")
    target[key] = value


CALLS: dict[GlobalName, Callable[..., Any]] = {
    GlobalName("collections", "OrderedDict"): rebuildDict,
    GlobalName("torch._utils", "_rebuild_tensor"): rebuildTensor,
    GlobalName("torch._utils", "_rebuild_tensor_v2"): rebuildTensor,
    GlobalName("torch._utils", "_rebuild_tensor_v3"): rebuildTyped,
    GlobalName("torch._utils", "_rebuild_parameter"): rebuildParameter,
    GlobalName("torch._utils", "_rebuild_parameter_with_state"): rebuildParameter,
    GlobalName("torch._tensor", "_rebuild_from_type_v2"): rebuildFromType,
    GlobalName("torch.nn.parameter", "Parameter"): rebuildParameter,
    GlobalName("torch.nn.parameter", "Buffer"): rebuildParameter,
    GlobalName("torch", "Size"): sameTuple,
    GlobalName("torch", "device"): deviceName,
}
VALUES: dict[GlobalName, Any] = {
    **{GlobalName("torch", name): name for name in DTYPES},
    **{GlobalName(module, name): GlobalName("torch", name) for module in ("torch", "torch.cuda") for name in STORAGES},
    GlobalName("torch.storage", "UntypedStorage"): GlobalName("torch", "UntypedStorage"),
    GlobalName("torch", "Tensor"): None,
}


# The machine ----------------------------------------------------------------------------------------------------------


class PickleMachine:
    """A reader of pickles in bytes.

    `steps`     opcodes that it may still take
    `storages`  those that tensors have named, by key
    """

    def __init__(self, data: bytes, steps: int) -> None:
        self.data, self.steps, self.at = data, steps, 0
        self.storages: dict[str, StorageEntry] = {}
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def load(self) -> Any:
        """Read the pickle at position `at`, and set `at` to its end.

        Raises    CheckpointError for a name or an opcode that no state dict needs, and for damage
        """
        self.stack, self.marks, self.memo = [], [], {}
        try:
            while (code := self.data[self.at]) != STOP:
                self.spend(1)
                self.at += 1
                if code not in OPCODES:
                    raise CheckpointError(f"its pickle has an opcode that no state dict needs, {code:#04x}; {INSTEAD}")
                OPCODES[code](self)
            self.at += 1
            (value,) = self.stack
            return value
        except DAMAGED as error:
            raise CheckpointError(f"its pickle is damaged or too long at byte {self.at}: {brief(error)}") from None

    def spend(self, count: int) -> None:
        """Count opcodes, and items that one of them copies."""
        self.steps -= count
        if self.steps < 0:
            raise CheckpointError("its pickle has more opcodes than a file of its size may have")

    def take(self, count: int) -> bytes:
        """The next bytes."""
        part = self.data[self.at : self.at + count]
        if len(part) < count:
            raise IndexError("it ends too early")
        self.at += count
        return part

    def number(self, form: str) -> Any:
        """The next number, in a form of struct's."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        """The next line of text."""
        end = self.data.index(b"\n", self.at)
        return self.take(end - self.at + 1)[:-1].decode("ascii")

    def marked(self) -> list[Any]:
        """Pop all values above the last mark."""
        begin = self.marks.pop()
        values = self.stack[begin:]
        if begin > len(self.stack):
            raise IndexError("a mark is missing")
        del self.stack[begin:]
        return values

    def pushText(self, form: str) -> None:
        """Push a text, whose length comes first."""
        self.stack.append(self.take(self.number(form)).decode("utf-8"))

    def pushBytes(self, form: str) -> None:
        """Push bytes, whose length comes first."""
        self.stack.append(self.take(self.number(form)))

    def pushTuple(self, count: int) -> None:
        """Push a tuple of the last values."""
        if count > len(self.stack):
            raise IndexError("values are missing")
        values = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(values)

    def put(self, index: int) -> None:
        """Keep the last value for `get`."""
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        """Push a value that was kept."""
        if index not in self.memo:
            raise IndexError("a value is missing")
        self.stack.append(self.memo[index])

    def append(self, values: list[Any]) -> None:
        """Append values to the list that is the last value."""
        target = self.stack[-1]
        if type(target) is not list:
            raise TypeError("wanted a list")
        target.extend(values)

    def update(self, values: Sequence[object]) -> None:
        """Set keys and values of the dict that is the last value."""
        for key, value in zip(values[::2], values[1::2], strict=True):
            setItem(self.stack[-1], key, value)

    def pushDict(self) -> None:
        """Push a dict of the marked keys and values."""
        values = self.marked()
        self.stack.append({})
        self.update(values)

    def named(self, module: Any, name: object) -> None:
        """Push the value of a global name.

        Raises    CheckpointError for a name that no state dict needs
        """
        if type(module) is not str or type(name) is not str:
            raise TypeError("wanted a name")
        key = GlobalName(module, name)
        if key in CALLS or key in VALUES:
            self.stack.append(VALUES.get(key, key))
            return
        if name.startswith("Q") and name.endswith("Storage"):
            name = "_rebuild_qtensor"
        if name in REFUSED and module.split(".")[0] == "torch":
            raise CheckpointError(f"it holds {REFUSED[name]}")
        raise CheckpointError(f"it needs {quote(f'{module}.{name}')}, and no code of a file is run; {INSTEAD}")

    def call(self) -> None:
        """Push the result of a call."""
        arguments, function = self.stack.pop(), self.stack.pop()
        if type(arguments) is not tuple:
            raise TypeError("wanted a tuple of arguments")
        self.spend(sum(len(part) for part in arguments if type(part) in (list, dict)))
        self.stack.append(callNamed(function, arguments))

    def build(self) -> None:
        """Drop the attributes of a dict or a tensor."""
        self.stack.pop()
        if type(self.stack[-1]) not in (dict, TensorEntry):
            raise TypeError("wanted a dict or a tensor")

    def storage(self) -> None:
        """Push a storage: ("storage", class, key, device, count), and None in the older form."""
        word, kind, key, _, count, *view = self.stack.pop()
        if word != "storage" or type(kind) is not GlobalName or type(key) is not str or type(count) is not int:
            raise TypeError("wanted a storage")
        if any(part is not None for part in view):
            raise CheckpointError("it holds a view of a storage, as old versions of torch wrote")
        entry = StorageEntry(key, STORAGES[kind.name], count)
        if not 0 <= count < MAX_COUNT or self.storages.setdefault(key, entry) != entry:
            raise CheckpointError(f"storage {quote(key)} cannot have {count} elements, or has two sizes or dtypes")
        self.stack.append(entry)


STOP = ord(".")
OPCODES: dict[int, Callable[[PickleMachine], Any]] = {
    0x80: lambda m: m.take(1),  # protocol
    0x95: lambda m: m.take(8),  # frame
    ord("("): lambda m: m.marks.append(len(m.stack)),
    ord("N"): lambda m: m.stack.append(None),
    0x88: lambda m: m.stack.append(True),
    0x89: lambda m: m.stack.append(False),
    ord("J"): lambda m: m.stack.append(m.number("<i")),
    ord("K"): lambda m: m.stack.append(m.number("<B")),
    ord("M"): lambda m: m.stack.append(m.number("<H")),
    0x8A: lambda m: m.stack.append(int.from_bytes(m.take(m.number("<B")), "little", signed=True)),
    ord("G"): lambda m: m.stack.append(m.number(">d")),
    ord("X"): lambda m: m.pushText("<I"),
    0x8C: lambda m: m.pushText("<B"),
    0x8D: lambda m: m.pushText("<Q"),
    ord("T"): lambda m: m.pushText("<I"),  # texts of Python 2
    ord("U"): lambda m: m.pushText("<B"),
    ord("B"): lambda m: m.pushBytes("<I"),
    ord("C"): lambda m: m.pushBytes("<B"),
    ord(")"): lambda m: m.stack.append(()),
    ord("t"): lambda m: m.stack.append(tuple(m.marked())),
    0x85: lambda m: m.pushTuple(1),
    0x86: lambda m: m.pushTuple(2),
    0x87: lambda m: m.pushTuple(3),
    ord("]"): lambda m: m.stack.append([]),
    ord("l"): lambda m: m.stack.append(m.marked()),
    ord("a"): lambda m: m.append([m.stack.pop()]),
    ord("e"): lambda m: m.append(m.marked()),
    ord("}"): lambda m: m.stack.append({}),
    ord("d"): lambda m: m.pushDict(),
    ord("s"): lambda m: m.update([m.stack.pop(-2), m.stack.pop()]),
    ord("u"): lambda m: m.update(m.marked()),
    ord("q"): lambda m: m.put(m.number("<B")),
    ord("r"): lambda m: m.put(m.number("<I")),
    0x94: lambda m: m.put(len(m.memo)),
    ord("h"): lambda m: m.get(m.number("<B")),
    ord("j"): lambda m: m.get(m.number("<I")),
    ord("c"): lambda m: m.named(m.line(), m.line()),
    0x93: lambda m: m.named(m.stack.pop(-2), m.stack.pop()),
    ord("R"): lambda m: m.call(),
    ord("b"): lambda m: m.build(),
    ord("Q"): lambda m: m.storage(),
}
