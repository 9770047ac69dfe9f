"""Modules used only for operators of ONNX: with options that depend on the data, or without parameters."""

from puregraph.onnx.modules.controlled import (
    CumulativeAxis,
    Parts,
    ReduceAxes,
    SplitSizes,
    TopCount,
    TriluFrom,
)
from puregraph.onnx.modules.extremeindex import LastExtreme
from puregraph.onnx.modules.filled import ConstantRange, Identical
from puregraph.onnx.modules.onehotvalues import OneHotValues
from puregraph.onnx.modules.quantizedlayers import QuantizedConvolve, QuantizedProduct
from puregraph.onnx.modules.randomlike import RandomLike
from puregraph.onnx.modules.recurrentcells import RecurrentCells
from puregraph.onnx.modules.reduceaxes import ReduceFilled, ReduceMax, ReduceMean, ReduceMin
from puregraph.onnx.modules.scalemaps import ScaleMaps
from puregraph.onnx.modules.scattersequence import ScatterSequence
from puregraph.onnx.modules.slicing import SliceAlong
from puregraph.onnx.modules.vectorproduct import VectorProduct
