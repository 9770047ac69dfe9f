"""Class names: the registry of the classes that files may name, puregraph's and the users' classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from puregraph import modules, optimizers
from puregraph.autodiff.tape.activationrecompute import Checkpoint
from puregraph.core.errors import CheckpointError, PuregraphError
from puregraph.graph import Graph
from puregraph.graph.function import Function, FunctionCall
from puregraph.graph.input import Input
from puregraph.graph.lookup import nearest
from puregraph.graph.module import Module
from puregraph.graph.parallel import Parallel
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.modules import costs
from puregraph.optimizers import InitRecorder

NAMED = (Module, Function, InitRecorder)  # InitRecorder: optimizers and schedules
OWN: dict[str, type] = {}  # registered classes of users, in files "user:NAME"
BARE = frozenset(  # built-ins that files name without a prefix; other bare names, in older files, are users' classes
    """
    Add Attention AvgPool1D AvgPool2D AvgPoolNd BatchNorm Call Checkpoint Clip Concat Conv1D Conv2D Conv3D ConvNd
    Deconv2D DeconvNd Div Dropout Einsum Elu Embedder Flatten GRU Gather Gelu GlobalAvgPool Graph GroupNorm HardSwish
    Identity Input LSTM LayerNorm LeakyRelu Linear MatMul Max MaxPool1D MaxPool2D MaxPoolNd Mean Min Mul MulAddConst
    Pad PairDot Parallel Pointwise Position Power Prepend RNN Relu Reshape Sequential Sigmoid Slice SoftMax SoftPlus
    Split Sub Sum Swish Tanh Transpose Upsample2D costs.Abs costs.BCE costs.CrossEntropy costs.MSE costs.PointwiseCost
    costs.SmoothL1 optimizers.Adam optimizers.AdamW optimizers.Cosine optimizers.MomentumSGD optimizers.NesterovSGD
    optimizers.OneCycle optimizers.Optimizer optimizers.RMSProp optimizers.SGD optimizers.Schedule optimizers.Step
    optimizers.WarmUp
    """.split()
)


class Former(NamedTuple):
    """A class of older files: its current name, its old defaults, and its old arguments in order: name, or old=new."""

    name: str
    implied: dict[str, Any] = {}
    arguments: str = ""
    values: dict[str, Callable[[Any], Any]] = {}  # converts old values to new ones
    other: tuple[str, Any, str] | None = None  # an argument that is none now, and the name for one of its values

    def nameFrom(self, args: list, kwargs: dict[str, Any]) -> str:
        """The name now of a module that was made with these arguments."""
        if self.other is None:
            return self.name
        argument, value, name = self.other
        names = [word.partition("=")[0] for word in self.arguments.split()]
        return name if (dict(zip(names, args)) | kwargs).get(argument) == value else self.name

    def current(self, args: list, kwargs: dict[str, Any], known: list[str]) -> tuple[list, dict[str, Any]]:
        """Convert old arguments to those of the current class, whose parameters are `known`, in order."""
        if self.arguments:
            names = dict(word.partition("=")[::2] for word in self.arguments.split())
            kwargs = {**dict(zip(names, args)), **kwargs}
            if self.other is not None:
                kwargs.pop(self.other[0], None)
            args, kwargs = [], {names.get(name) or name: value for name, value in kwargs.items()}
        kwargs = {k: self.values[k](v) if k in self.values else v for k, v in kwargs.items()}
        return args, {k: v for k, v in self.implied.items() if k not in known[: len(args)]} | kwargs


def pairs(flat: Any) -> Any:
    """Convert pads in the order of all befores, then all afters, to (before, after) per axis; None stays None."""
    return flat and tuple(zip(flat[: len(flat) // 2], flat[len(flat) // 2 :]))


FORMER: dict[str, Former] = {  # by their names in older files
    **{
        f"puregraph:onnx.{name}": Former(f"puregraph:{name}")
        for name in """
        AffineGrid BitCast BitShift Bitwise Col2Im CumProd CumSum Dequantize Determinant GatherElements GridSample If
        LogSoftMax Loop Multinomial NonMaxSuppression Quantize RmsNorm RoiAlign RoiPool Scan ScatterElements Trilu
        Convolve QuantizedConvolve RandomLike RecurrentCells ScaleMaps Weight
        """.split()
    },
    "puregraph:onnx.CompressAxis": Former("puregraph:Compress", {"axis": None, "mayBeShorter": True}),
    "puregraph:onnx.ConstantRange": Former("puregraph:Range"),
    "puregraph:onnx.ConvolveTransposed": Former("puregraph:Deconvolve"),
    "puregraph:onnx.CumulativeAxis": Former(
        "puregraph:CumSum",
        {"axis": None},
        "kind exclusive reverse name",
        other=("kind", "product", "puregraph:CumProd"),
    ),
    "puregraph:onnx.Fourier": Former("puregraph:DFT"),
    "puregraph:onnx.GatherAxis": Former("Gather", {"fromEnd": True}),
    "puregraph:onnx.GatherPoints": Former("puregraph:GatherND"),
    "puregraph:onnx.Hardmax": Former("puregraph:HardMax"),
    "puregraph:onnx.Identical": Former("puregraph:EyeLike"),
    "puregraph:onnx.LastExtreme": Former(
        "puregraph:ArgMax", {"last": True}, "axis keepdims largest name", other=("largest", False, "puregraph:ArgMin")
    ),
    "puregraph:onnx.LocalResponse": Former("puregraph:LocalResponseNorm"),
    "puregraph:onnx.MatrixFrom": Former("Flatten", {"asMatrix": True}, "axis=start"),
    "puregraph:onnx.NewAxes": Former("puregraph:Unsqueeze"),
    "puregraph:onnx.NormalizeLp": Former("puregraph:LpNormalize"),
    "puregraph:onnx.OneHotValues": Former("puregraph:OneHot", {"classes": None}, "axis name"),
    "puregraph:onnx.PadAll": Former("Pad", {}, "axes mode fillValue pads=pad", {"pad": pairs}),
    "puregraph:onnx.Parts": Former("Split"),
    "puregraph:onnx.PoolMax": Former(
        "MaxPoolNd", {"useMask": True}, "size stride pad dilation isOpen=ceil columns name"
    ),
    "puregraph:onnx.PoolMean": Former(
        "AvgPoolNd", {"includePad": False}, "size stride pad dilation isOpen=ceil includePad name"
    ),
    "puregraph:onnx.PoolNorm": Former("puregraph:LpPoolNd", {}, "p size stride pad dilation isOpen=ceil"),
    "puregraph:onnx.QuantizedProduct": Former("puregraph:QuantizedMatMul"),
    "puregraph:onnx.ReduceAxes": Former("puregraph:ReduceAlong", {}, "kind keepdims ifEmpty name"),
    "puregraph:onnx.ReduceFilled": Former("puregraph:ReduceAlong", {}, "kind axes keepdims name"),
    "puregraph:onnx.ReduceL1": Former("puregraph:L1Norm"),
    "puregraph:onnx.ReduceL2": Former("puregraph:L2Norm"),
    "puregraph:onnx.ReduceLogSum": Former("puregraph:LogSum"),
    "puregraph:onnx.ReduceLogSumExp": Former("puregraph:LogSumExp"),
    "puregraph:onnx.ReduceLp": Former("puregraph:LpNorm"),
    **{f"puregraph:onnx.Reduce{name}": Former(name, {"mayBeEmpty": True}) for name in ("Max", "Mean", "Min")},
    "puregraph:onnx.ReduceProd": Former("puregraph:Prod"),
    "puregraph:onnx.ReduceSumSquare": Former("puregraph:SumSquares"),
    "puregraph:onnx.ReshapeTo": Former("Reshape", {"keepsZero": True}, "keepsZero shape"),
    "puregraph:onnx.ResizeAxes": Former("puregraph:Resize"),
    "puregraph:onnx.ReverseLengths": Former("puregraph:ReverseSequence"),
    "puregraph:onnx.ScatterPoints": Former("puregraph:ScatterND"),
    "puregraph:onnx.ScatterSequence": Former("puregraph:TensorScatter"),
    "puregraph:onnx.SliceAlong": Former("puregraph:DynamicSlice"),
    "puregraph:onnx.SplitSizes": Former("Split", {}, "axis count name"),
    "puregraph:onnx.SqueezeAxes": Former("puregraph:Squeeze"),
    "puregraph:onnx.TopCount": Former("puregraph:TopKValues", {"count": None}, "axis largest name"),
    "puregraph:onnx.TopElements": Former("puregraph:TopKValues"),
    "puregraph:onnx.TriluFrom": Former("puregraph:Trilu", {"diagonal": None}, "upper name"),
    "puregraph:onnx.UniqueAlong": Former("puregraph:Unique"),
    "puregraph:onnx.Unpool": Former("puregraph:MaxUnpool"),
    "puregraph:onnx.UnsqueezeAxes": Former("puregraph:Unsqueeze"),
    "puregraph:onnx.VectorProduct": Former("MatMul"),
    "puregraph:onnx.WithoutAxes": Former("puregraph:Squeeze"),
}


@cache
def builtin() -> dict[str, type]:
    """Return the classes that puregraph exports: modules by name, others as `costs.NAME` and `optimizers.NAME`."""
    classes: dict[str, type] = {c.__name__: c for c in (Checkpoint, Graph, Input, Parallel, Pointwise, Sequential)}
    classes["Call"] = FunctionCall
    for prefix, package in (("", modules), ("costs.", costs), ("optimizers.", optimizers)):
        for name, value in vars(package).items():
            if isinstance(value, type) and issubclass(value, NAMED) and name[0] != "_":
                classes[prefix + name] = value
    return classes


def registerModule(cls: type | None = None, name: str | None = None) -> Any:
    """Register a class of your own (a Module, Function, Optimizer or Schedule) by name, so that files can name it.

    Use it as a decorator, with or without a name, or as a call. Files name the class `user:NAME`.

    Raises    PuregraphError if it is neither, or the name belongs to another class that was registered
    """
    if cls is None:
        return lambda decorated: registerModule(decorated, name)
    if not (isinstance(cls, type) and issubclass(cls, NAMED)):
        raise PuregraphError(
            f"registerModule: wanted a subclass of {' or '.join(c.__name__ for c in NAMED)}, got {cls!r:.80}"
        )
    name = name or cls.__name__
    other = OWN.get(name)
    again = other is not None and (other.__module__, other.__qualname__) == (cls.__module__, cls.__qualname__)
    if other is not None and not again:
        raise PuregraphError(f"registerModule: {name!r} is {fullName(other)} already; give {fullName(cls)} a name=")
    OWN[name] = cls
    return cls


def classNamed(name: Any) -> type:
    """Return the class of a name.

    Raises    CheckpointError for an unknown name, with a hint at `registerModule`
    """
    full = f"user:{name}" if isinstance(name, str) and ":" not in name and name not in BARE else name
    cls = classOf(full) if isinstance(full, str) else None
    if cls is None:
        near = nearest(str(name)[:80], sorted({**builtin(), **OWN}))
        raise CheckpointError(
            f"unknown class {name!r:.80}: a class of your own is made known with puregraph.registerModule(TheClass); "
            f"known are {', '.join(near)} and {len(builtin()) + len(OWN)} in all"
        )
    return cls


def classOf(name: str) -> type | None:
    """The class that files give this name, None if there is none."""
    if name in BARE:
        return builtin()[name]
    kind, _, shortName = name.partition(":")
    if kind == "user":
        return OWN.get(shortName)
    if kind != "puregraph" or shortName in BARE:
        return None
    return builtin().get(shortName)


def nameOf(cls: type, where: str) -> str:
    """Return the name of a class in files."""
    known = builtin()
    if known.get(cls.__name__) is cls:
        return fileName(cls.__name__)
    names = [fileName(name) for name, value in known.items() if value is cls]
    names += [f"user:{name}" for name, value in OWN.items() if value is cls]
    if names:
        return names[0]
    raise CheckpointError(
        f"{where}: {fullName(cls)} is not known by name, so no file can name it; "
        f"put @puregraph.registerModule above the class {cls.__name__}"
    )


def fileName(name: str) -> str:
    """The name that files give a class of puregraph's."""
    return name if name in BARE else f"puregraph:{name}"


def fullName(cls: type) -> str:
    """Return the module and qualified name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"
