"""Modules that operators of ONNX are read as, and networks are seldom written with."""

from puregraph.onnx.modules.axes.accumulation import CumProd, CumSum
from puregraph.onnx.modules.axes.choosing import (
    CompressAxis,
    ReverseLengths,
    UniqueAlong,
)
from puregraph.onnx.modules.axes.controlled import (
    CumulativeAxis,
    Parts,
    ReduceAxes,
    SplitSizes,
    SqueezeAxes,
    TopCount,
    TriluFrom,
    UnsqueezeAxes,
)
from puregraph.onnx.modules.axes.extremeindex import LastExtreme
from puregraph.onnx.modules.axes.filled import ConstantRange, Identical
from puregraph.onnx.modules.axes.gathering import (
    GatherAxis,
    GatherElements,
    GatherPoints,
)
from puregraph.onnx.modules.axes.onehotvalues import OneHotValues
from puregraph.onnx.modules.axes.padding import PadAll
from puregraph.onnx.modules.axes.reduceaxes import (
    ReduceFilled,
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceLp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSumSquare,
)
from puregraph.onnx.modules.axes.reshaping import (
    MatrixFrom,
    NewAxes,
    ReshapeTo,
    WithoutAxes,
)
from puregraph.onnx.modules.axes.scattering import (
    ScatterElements,
    ScatterPoints,
    ScatterSequence,
)
from puregraph.onnx.modules.axes.slicing import SliceAlong
from puregraph.onnx.modules.axes.topelements import TopElements
from puregraph.onnx.modules.axes.trilu import Trilu
from puregraph.onnx.modules.control.ifelse import If
from puregraph.onnx.modules.control.loop import Loop
from puregraph.onnx.modules.control.scan import Scan
from puregraph.onnx.modules.layers.bits import BitCast, BitShift, Bitwise
from puregraph.onnx.modules.layers.col2im import Col2Im
from puregraph.onnx.modules.layers.convolving import Convolve, ConvolveTransposed
from puregraph.onnx.modules.layers.determinant import Determinant
from puregraph.onnx.modules.layers.fourier import Fourier
from puregraph.onnx.modules.layers.logsoftmax import Hardmax, LogSoftMax
from puregraph.onnx.modules.layers.multinomial import Multinomial
from puregraph.onnx.modules.layers.normalizing import (
    LocalResponse,
    NormalizeLp,
    ScaleMaps,
)
from puregraph.onnx.modules.layers.pools import (
    PoolMax,
    PoolMean,
    PoolNorm,
    Unpool,
)
from puregraph.onnx.modules.layers.randomlike import RandomLike
from puregraph.onnx.modules.layers.rmsnorm import RmsNorm
from puregraph.onnx.modules.layers.vectorproduct import VectorProduct
from puregraph.onnx.modules.layers.weight import Weight
from puregraph.onnx.modules.quantization.quantized import Dequantize, Quantize
from puregraph.onnx.modules.quantization.quantizedlayers import QuantizedConvolve, QuantizedProduct
from puregraph.onnx.modules.recurrence.recurrentcells import RecurrentCells
from puregraph.onnx.modules.sampling.affinegrid import AffineGrid
from puregraph.onnx.modules.sampling.gridsample import GridSample
from puregraph.onnx.modules.sampling.resizeaxes import ResizeAxes
from puregraph.onnx.modules.sampling.roialign import RoiAlign
from puregraph.onnx.modules.sampling.roipool import RoiPool
from puregraph.onnx.modules.sampling.suppression import NonMaxSuppression
