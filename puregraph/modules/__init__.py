"""The modules that networks are built from, by family."""

from puregraph.modules import operators as operators  # gives nodes their operators
from puregraph.modules.activation import (
    Celu,
    Elu,
    Gelu,
    HardShrink,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    LogSigmoid,
    Mish,
    PRelu,
    QuickGelu,
    Relu,
    Relu6,
    Selu,
    Sigmoid,
    SoftPlus,
    SoftShrink,
    SoftSign,
    SquaredRelu,
    Swish,
    Tanh,
    TanhShrink,
    Threshold,
)
from puregraph.modules.adaptivepool import AdaptiveAvgPool, AdaptiveMaxPool
from puregraph.modules.arithmetic import Add, Clip, Div, Mod, Mul, MulAddConst, Power, Sub
from puregraph.modules.attention import Attention
from puregraph.modules.batchnorm import BatchNorm
from puregraph.modules.bits import BitCast, BitShift, Bitwise
from puregraph.modules.comparison import (
    And,
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Not,
    NotEqual,
    Or,
    Where,
    Xor,
)
from puregraph.modules.constant import Constant, EyeLike, Full, Range, Weight
from puregraph.modules.control.ifelse import If
from puregraph.modules.control.loop import Loop
from puregraph.modules.control.scan import Scan
from puregraph.modules.convolution import Conv1D, Conv2D, Conv3D, ConvNd, Convolve
from puregraph.modules.cumulative import CumProd, CumSum
from puregraph.modules.deconvolution import Deconv2D, DeconvNd, Deconvolve
from puregraph.modules.detection import NonMaxSuppression, RoiAlign, RoiPool
from puregraph.modules.dropout import (
    AlphaDropout,
    Dropout,
    Dropout2D,
    Multinomial,
    NoiseInjector,
    RRelu,
    StochasticDepth,
)
from puregraph.modules.embedding import Embedder, Position, Prepend
from puregraph.modules.gated import GLU, GeGLU, ReGLU, SwiGLU
from puregraph.modules.gathering import Gather, GatherElements, GatherND, ReverseSequence
from puregraph.modules.gridsample import AffineGrid, GridSample
from puregraph.modules.identity import Cast, Identity, StopGradient
from puregraph.modules.joining import Concat, Split
from puregraph.modules.linear import Bilinear, Linear
from puregraph.modules.localnorm import LocalResponseNorm, LpNormalize
from puregraph.modules.normalization import GroupNorm, InstanceNorm, LayerNorm, RmsNorm
from puregraph.modules.normreduction import L1Norm, L2Norm, LogSum, LogSumExp, LpNorm, Prod, SumSquares
from puregraph.modules.pad import Pad
from puregraph.modules.parametrizations import (
    FakeQuantise,
    LoRA,
    Masked,
    Orthogonal,
    SpectralNorm,
    Standardised,
    WeightNorm,
)
from puregraph.modules.penalty import Penalty
from puregraph.modules.pooling import (
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    AvgPoolNd,
    GlobalAvgPool,
    LpPoolNd,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
    MaxPoolNd,
    MaxUnpool,
)
from puregraph.modules.product import Determinant, Einsum, MatMul, PairDot
from puregraph.modules.quantization import Dequantize, Quantize
from puregraph.modules.quantizedlayers import QuantizedConvolve, QuantizedMatMul
from puregraph.modules.randomlike import RandomLike
from puregraph.modules.recurrent import GRU, LSTM, RNN
from puregraph.modules.recurrentcells import RecurrentCells
from puregraph.modules.reducealong import ReduceAlong
from puregraph.modules.reduction import ArgMax, ArgMin, Max, Mean, Min, Sum
from puregraph.modules.reshaping import Expand, Flatten, Reshape, Squeeze, Tile, Transpose, Unsqueeze
from puregraph.modules.resize import Resize, Upsample2D
from puregraph.modules.scalemaps import ScaleMaps
from puregraph.modules.scattering import ScatterElements, ScatterND
from puregraph.modules.selection import Compress, NonZero, OneHot, TopKValues, Trilu, Unique
from puregraph.modules.shapeof import Shape, Size
from puregraph.modules.signal import DFT, Col2Im
from puregraph.modules.slice import DynamicSlice, Slice
from puregraph.modules.softmax import GumbelSoftMax, HardMax, LogSoftMax, SoftMax, SoftMin, SparseMax
from puregraph.modules.tensorscatter import TensorScatter

__all__ = [
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "Add",
    "AffineGrid",
    "AlphaDropout",
    "And",
    "ArgMax",
    "ArgMin",
    "Attention",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "AvgPoolNd",
    "BatchNorm",
    "Bilinear",
    "BitCast",
    "BitShift",
    "Bitwise",
    "Cast",
    "Celu",
    "Clip",
    "Col2Im",
    "Compress",
    "Concat",
    "Constant",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "ConvNd",
    "Convolve",
    "CumProd",
    "CumSum",
    "DFT",
    "Deconv2D",
    "DeconvNd",
    "Deconvolve",
    "Dequantize",
    "Determinant",
    "Div",
    "Dropout",
    "Dropout2D",
    "DynamicSlice",
    "Einsum",
    "Elu",
    "Embedder",
    "Equal",
    "Expand",
    "EyeLike",
    "FakeQuantise",
    "Flatten",
    "Full",
    "GLU",
    "GRU",
    "Gather",
    "GatherElements",
    "GatherND",
    "GeGLU",
    "Gelu",
    "GlobalAvgPool",
    "Greater",
    "GreaterEqual",
    "GridSample",
    "GroupNorm",
    "GumbelSoftMax",
    "HardMax",
    "HardShrink",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "If",
    "InstanceNorm",
    "L1Norm",
    "L2Norm",
    "LSTM",
    "LayerNorm",
    "LeakyRelu",
    "Less",
    "LessEqual",
    "Linear",
    "LoRA",
    "LocalResponseNorm",
    "LogSigmoid",
    "LogSoftMax",
    "LogSum",
    "LogSumExp",
    "Loop",
    "LpNorm",
    "LpNormalize",
    "LpPoolNd",
    "Masked",
    "MatMul",
    "Max",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "MaxPoolNd",
    "MaxUnpool",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "MulAddConst",
    "Multinomial",
    "NoiseInjector",
    "NonMaxSuppression",
    "NonZero",
    "Not",
    "NotEqual",
    "OneHot",
    "Or",
    "Orthogonal",
    "PRelu",
    "Pad",
    "PairDot",
    "Penalty",
    "Position",
    "Power",
    "Prepend",
    "Prod",
    "Quantize",
    "QuantizedConvolve",
    "QuantizedMatMul",
    "QuickGelu",
    "RNN",
    "RRelu",
    "RandomLike",
    "Range",
    "ReGLU",
    "RecurrentCells",
    "ReduceAlong",
    "Relu",
    "Relu6",
    "Reshape",
    "Resize",
    "ReverseSequence",
    "RmsNorm",
    "RoiAlign",
    "RoiPool",
    "ScaleMaps",
    "Scan",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Shape",
    "Sigmoid",
    "Size",
    "Slice",
    "SoftMax",
    "SoftMin",
    "SoftPlus",
    "SoftShrink",
    "SoftSign",
    "SparseMax",
    "SpectralNorm",
    "Split",
    "SquaredRelu",
    "Squeeze",
    "Standardised",
    "StochasticDepth",
    "StopGradient",
    "Sub",
    "Sum",
    "SumSquares",
    "SwiGLU",
    "Swish",
    "Tanh",
    "TanhShrink",
    "TensorScatter",
    "Threshold",
    "Tile",
    "TopKValues",
    "Transpose",
    "Trilu",
    "Unique",
    "Unsqueeze",
    "Upsample2D",
    "Weight",
    "WeightNorm",
    "Where",
    "Xor",
]
