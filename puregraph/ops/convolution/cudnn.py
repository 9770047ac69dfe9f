"""Convolution by cuDNN: forward with its epilogue, and its two gradients.

    y = activation(sum over c, t of W x + bias + residual)

cuDNN gets arrays in the layout that they have. It is quickest where all activations and weights are channels last, and
copies others in its workspace. Windows of size one without strides are matrix products, see `pointwiseconv`.

Source    Dumoulin and Visin 2016, arXiv:1603.07285
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.base.environment import variable
from puregraph.ops.convolution import pointwiseconv
from puregraph.ops.cuda.libraries.cudnn import CudnnCall, GraphDraft, Tensor, areAligned, isPlain, isPlanned, tensor
from puregraph.ops.cuda.libraries.librarycall import pointers
from puregraph.ops.cuda.libraries.tensorview import flat, load, pick, save
from puregraph.ops.special.error import erf

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.core.protocols import Strided
    from puregraph.ops.product.cuda.librarygemm import Product

RANKS = (1, 2, 3)
MIN_WORKSPACE_BYTES = 256 << 20  # bytes of workspace
ACTIVATIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {  # cuDNN's names, and the same in numpy
    "relu": ("relu", lambda x: np.maximum(x, 0)),
    "gelu": ("gelu", lambda x: x * (1 + erf(x * 0.5**0.5)) / 2),
    "geluTanh": ("gelu_approx_tanh", lambda x: x / 2 * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))),
    "sigmoid": ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    "silu": ("swish", lambda x: x / (1 + np.exp(-x))),
    "tanh": ("tanh", np.tanh),
}


class ConvolutionTask(NamedTuple):
    """A convolution: "convolve" gives y, "convolveData" the gradient of x, "convolveWeight" that of W.

    `pad` is (before, after) per axis; a group has as many channels as W has. `bias` says if there is one, `residual`
    is its layout. `repeats` asks for deterministic sums, which PUREGRAPH_DETERMINISTIC=0 does not.
    """

    what: str
    kind: str
    x: Tensor
    W: Tensor
    y: Tensor
    stride: tuple[int, ...]
    pad: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    bias: bool = False
    activation: str = ""
    residual: Tensor | None = None
    repeats: bool = True

    def __str__(self) -> str:
        words = [self.kind, self.what, f"x {self.x}", f"W {self.W}", f"y {self.y}"]
        words += [f"stride {joined(self.stride)}"] if set(self.stride) != {1} else []
        words += [f"pad {joined(f'{a}:{b}' for a, b in self.pad)}"] if any(map(any, self.pad)) else []
        words += [f"dilation {joined(self.dilation)}"] if set(self.dilation) != {1} else []
        words += [f"+ {self.residual}"] if self.residual else []
        words += [word for word, wanted in (("bias", self.bias), (self.activation, self.activation)) if wanted]
        return " ".join(words + ["anyhow"] * (not self.repeats))

    @property
    def reads(self) -> tuple[Tensor, ...]:
        """The tensors it reads, in the order of its slots, without the bias and the residual."""
        return {
            "convolve": (self.x, self.W),
            "convolveData": (self.y, self.W),
            "convolveWeight": (self.y, self.x),
        }[self.what]

    @property
    def made(self) -> Tensor:
        """The tensor that the task writes."""
        return {"convolve": self.y, "convolveData": self.x, "convolveWeight": self.W}[self.what]

    @property
    def vector(self) -> Tensor:
        """The bias as a tensor of cuDNN."""
        channels, ones = self.W.shape[0], (1,) * len(self.stride)
        return Tensor((1, channels, *ones), (channels, 1, *[channels] * len(ones)))

    @property
    def room(self) -> int:
        """The limit of workspace in bytes: the size of its tensors, and at least MIN_WORKSPACE_BYTES. On an H100
        cuDNN's first plan for 1,024 channels in float32 takes 9.4 GB, beside 71 MB of tensors."""
        size = {"float64": 8, "float32": 4, "tf32": 4}.get(self.kind, 2)
        return max(MIN_WORKSPACE_BYTES, size * sum(prod(tensor.shape) for tensor in (self.x, self.W, self.y)))

    @property
    def isPoint(self) -> bool:
        """True if it is pointwise: all positions are multiplied by the same matrix."""
        once = {1} == {*self.W.shape[2:], *self.stride}
        return once and self.groups == 1 and not any(map(any, self.pad))

    def describe(self, draft: GraphDraft) -> None:
        """Write the task into a graph of cuDNN."""
        g = draft.graph
        how = {
            "pre_padding": [before for before, _ in self.pad],
            "post_padding": [after for _, after in self.pad],
            "stride": list(self.stride),
            "dilation": list(self.dilation),
        }
        first, second = [draft.read(layout) for layout in self.reads]
        if self.what == "convolveData":
            made = g.conv_dgrad(loss=first, filter=second, **how)
        elif self.what == "convolveWeight":
            made = g.conv_wgrad(loss=first, image=second, **how)
        else:
            made = self.withEpilogue(draft, g.conv_fprop(image=first, weight=second, **how))
        draft.write(made, self.made)

    def withEpilogue(self, draft: GraphDraft, made: Any) -> Any:
        """The sums with the epilogue: bias, residual and activation."""
        g = draft.graph
        if self.bias:
            made = g.add(made, draft.read(self.vector))
        if self.residual:
            made = g.add(made, draft.read(self.residual))
        return getattr(g, ACTIVATIONS[self.activation][0])(made) if self.activation else made

    def emulate(self, arrays: Sequence[np.ndarray]) -> None:
        """Compute it in numpy, from the task alone."""
        layouts = self.reads + ((self.vector,) if self.bias else ()) + ((self.residual,) if self.residual else ())
        stored = "float32" if self.kind == "tf32" else self.kind
        views = [pick(flat(x, stored), *layout) for x, layout in zip(arrays, (*layouts, self.made))]
        first, second, *rest = [load(view, stored) for view in views[:-1]]
        if self.kind == "tf32":
            first, second = load(first, "tf32"), load(second, "tf32")
        made = {"convolve": self.forward, "convolveData": self.data, "convolveWeight": self.weight}[self.what](
            first, second
        )
        made = sum(rest, made)
        save(views[-1], ACTIVATIONS[self.activation][1](made) if self.activation else made, stored)

    @property
    def groups(self) -> int:
        return self.x.shape[1] // self.W.shape[1]

    def apart(self, x: np.ndarray) -> np.ndarray:
        """Channels (n, c, ...) by group: (n, groups, c / groups, ...)."""
        return x.reshape(len(x), self.groups, -1, *x.shape[2:])

    def taps(self) -> Iterator[tuple[Any, Any]]:
        """The index of each tap in W, and of the elements of padded x that it reads."""
        steps = list(zip(self.dilation, self.stride, self.y.shape[2:]))
        for tap in product(*map(range, self.W.shape[2:])):
            met = [slice(t * d, t * d + s * (count - 1) + 1, s) for t, (d, s, count) in zip(tap, steps)]
            yield (..., *tap), (..., *met)

    def padded(self, x: np.ndarray) -> np.ndarray:
        return np.pad(x, ((0, 0), (0, 0), *self.pad))

    def forward(self, x: np.ndarray, W: np.ndarray) -> np.ndarray:
        """y from x and W."""
        x, W = self.apart(self.padded(x)), W.reshape(self.groups, -1, *W.shape[1:])
        y = sum(W[tap] @ flatPositions(x[met]) for tap, met in self.taps())
        return np.reshape(y, self.y.shape)

    def data(self, y: np.ndarray, W: np.ndarray) -> np.ndarray:
        """The gradient of x from that of y, and W."""
        y, W = flatPositions(self.apart(y)), W.reshape(self.groups, -1, *W.shape[1:])
        paddedX = self.padded(np.zeros(self.x.shape, y.dtype))
        x = self.apart(paddedX)
        for tap, met in self.taps():
            x[met] += np.reshape(W[tap].swapaxes(1, 2) @ y, x[met].shape)
        inner: Any = (..., *(slice(before, before + n) for (before, _), n in zip(self.pad, self.x.shape[2:])))
        return paddedX[inner]

    def weight(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The gradient of W from that of y, and x."""
        y, x = flatPositions(self.apart(y)), self.apart(self.padded(x))
        W = np.zeros((self.groups, y.shape[2], *self.W.shape[1:]), x.dtype)
        for tap, met in self.taps():
            W[tap] = (y @ flatPositions(x[met]).swapaxes(-1, -2)).sum(axis=0)
        return W.reshape(self.W.shape)


def flatPositions(x: np.ndarray) -> np.ndarray:
    """The positions of an array (n, groups, c, ...) as one axis."""
    return x.reshape(*x.shape[:3], -1)


def convolve(
    out: Strided,
    x: Strided,
    W: Strided,
    stride: Sequence[int],
    pad: Sequence[Sequence[int]],
    dilation: Sequence[int],
    groups: int,
    bias: Strided | None = None,
    activation: str = "",
    residual: Strided | None = None,
    tf32: bool = False,
) -> CudnnCall | Product | NotImplementedType:
    """out = activation(convolve(x, W) + bias + residual); NotImplemented where there is no plan for it.

    Slots are x, W, bias, residual, out.

    Shapes    x (n, c, *spatial), W (o, c / groups, *size), bias (o,), out and residual (n, o, *count)
    """
    tail = [array for array in (bias, residual) if array is not None]
    if not areSupported(out, x, W, *tail) or (activation and activation not in ACTIVATIONS):
        return NotImplemented
    if bias is not None and (bias.shape != (W.shape[0],) or bias.strides[0] != bias.dtype.itemsize):
        return NotImplemented
    if residual is not None and residual.shape != out.shape:
        return NotImplemented
    task = taskOf("convolve", x, W, out, stride, pad, dilation, tf32)
    if task.isPoint and residual is None:
        call = pointwiseconv.forward(out, x, W, bias, activation, tf32)
        if call is not NotImplemented:
            return call
    task = task._replace(bias=bias is not None, activation=activation)
    task = task if residual is None else task._replace(residual=tensor(residual))
    return callOf(task, groups, x, W, *tail, out)


def convolveData(
    out: Strided,
    grad: Strided,
    W: Strided,
    shape: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[Sequence[int]],
    dilation: Sequence[int],
    groups: int,
    tf32: bool = False,
) -> CudnnCall | Product | NotImplementedType:
    """out = the gradient of x, which has the given shape; NotImplemented where there is no plan for it.

    Slots are grad, W, out.
    """
    if not areSupported(out, grad, W) or out.shape != tuple(shape):
        return NotImplemented
    task = taskOf("convolveData", out, W, grad, stride, pad, dilation, tf32)
    call = pointwiseconv.data(out, grad, W, tf32) if task.isPoint else NotImplemented
    return callOf(task, groups, grad, W, out) if call is NotImplemented else call


def convolveWeight(
    out: Strided,
    grad: Strided,
    x: Strided,
    size: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[Sequence[int]],
    dilation: Sequence[int],
    groups: int,
    tf32: bool = False,
) -> Any:
    """out = the gradient of W; NotImplemented where there is no plan for it.

    Slots are grad, x, out.
    """
    if not areSupported(out, grad, x):
        return NotImplemented
    task = taskOf("convolveWeight", x, out, grad, stride, pad, dilation, tf32)
    call = pointwiseconv.weight(out, grad, x, tf32) if task.isPoint else NotImplemented
    return callOf(task, groups, grad, x, out) if call is NotImplemented else call


def areSupported(*arrays: Strided) -> bool:
    """True if all arrays have one dtype that cuDNN supports, and the first has one to three spatial axes."""
    isOne = all(isPlain(x) and x.dtype.name == arrays[0].dtype.name for x in arrays)
    return isOne and len(arrays[0].shape) - 2 in RANKS


def taskOf(
    what: str,
    x: Strided,
    W: Strided,
    y: Strided,
    stride: Sequence[int],
    pad: Sequence[Sequence[int]],
    dilation: Sequence[int],
    tf32: bool,
) -> ConvolutionTask:
    """The task of a call, without an epilogue."""
    rank = len(x.shape) - 2
    kind = "tf32" if tf32 and x.dtype.name == "float32" else x.dtype.name
    pads = tuple([perAxis(side, 2) for side in perAxis(pad, rank)])
    lay = perAxis(stride, rank), pads, perAxis(dilation, rank)
    repeats = variable("DETERMINISTIC") is not False
    return ConvolutionTask(what, kind, tensor(x), tensor(W), tensor(y), *lay, repeats=repeats)


def callOf(task: ConvolutionTask, groups: int, *arrays: Any) -> CudnnCall | NotImplementedType:
    """A task with its arrays, if there is a plan for it."""
    if task.groups != groups or not areAligned(*arrays) or not isPlanned(task):
        return NotImplemented
    return CudnnCall(task, pointers(*arrays))


def perAxis(value: Any, rank: int) -> tuple[Any, ...]:
    """A value for each axis: 3 -> (3, 3); a tuple is returned unchanged."""
    return tuple(value) if isinstance(value, (tuple, list)) else (int(value),) * rank


def joined(values: Any) -> str:
    """Values with commas between them."""
    return ",".join(map(str, values))
