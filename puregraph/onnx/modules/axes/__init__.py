"""Modules that choose, move, count and reduce elements along axes, as operators of ONNX do."""

from puregraph.onnx.modules.axes.accumulation import CumProd, CumSum
from puregraph.onnx.modules.axes.choosing import CompressAxis, ReverseLengths, UniqueAlong
from puregraph.onnx.modules.axes.controlled import (
    CumulativeAxis,
    NewAxes,
    Parts,
    ReduceAxes,
    SplitSizes,
    SqueezeAxes,
    TopCount,
    TriluFrom,
    UnsqueezeAxes,
    WithoutAxes,
)
from puregraph.onnx.modules.axes.extremeindex import LastExtreme
from puregraph.onnx.modules.axes.filled import ConstantRange, Identical
from puregraph.onnx.modules.axes.gathering import GatherAxis, GatherElements, GatherPoints
from puregraph.onnx.modules.axes.onehotvalues import OneHotValues
from puregraph.onnx.modules.axes.padding import PadAll
from puregraph.onnx.modules.axes.reduceaxes import (
    ReduceFilled,
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceLp,
    ReduceProd,
    ReduceSumSquare,
)
from puregraph.onnx.modules.axes.reshaping import MatrixFrom, ReshapeTo
from puregraph.onnx.modules.axes.scattering import ScatterElements, ScatterPoints, ScatterSequence
from puregraph.onnx.modules.axes.slicing import SliceAlong
from puregraph.onnx.modules.axes.topelements import TopElements
from puregraph.onnx.modules.axes.trilu import Trilu

__all__ = [
    "CompressAxis",
    "ConstantRange",
    "CumProd",
    "CumSum",
    "CumulativeAxis",
    "GatherAxis",
    "GatherElements",
    "GatherPoints",
    "Identical",
    "LastExtreme",
    "MatrixFrom",
    "NewAxes",
    "OneHotValues",
    "PadAll",
    "Parts",
    "ReduceAxes",
    "ReduceFilled",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceLp",
    "ReduceProd",
    "ReduceSumSquare",
    "ReshapeTo",
    "ReverseLengths",
    "ScatterElements",
    "ScatterPoints",
    "ScatterSequence",
    "SliceAlong",
    "SplitSizes",
    "SqueezeAxes",
    "TopCount",
    "TopElements",
    "Trilu",
    "TriluFrom",
    "UniqueAlong",
    "UnsqueezeAxes",
    "WithoutAxes",
]
