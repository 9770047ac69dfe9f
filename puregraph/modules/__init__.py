"""The modules that networks are built from: one file, one class, exported here."""

from puregraph.modules import operators as operators  # gives nodes their operators
from puregraph.modules.add import Add
from puregraph.modules.argmax import ArgMax
from puregraph.modules.argmin import ArgMin
from puregraph.modules.attention import Attention
from puregraph.modules.avgpool1d import AvgPool1D
from puregraph.modules.avgpool2d import AvgPool2D
from puregraph.modules.avgpoolnd import AvgPoolNd
from puregraph.modules.batchnorm import BatchNorm
from puregraph.modules.cast import Cast
from puregraph.modules.clip import Clip
from puregraph.modules.compress import Compress
from puregraph.modules.concat import Concat
from puregraph.modules.constant import Constant
from puregraph.modules.conv1d import Conv1D
from puregraph.modules.conv2d import Conv2D
from puregraph.modules.conv3d import Conv3D
from puregraph.modules.convnd import ConvNd
from puregraph.modules.deconv2d import Deconv2D
from puregraph.modules.deconvnd import DeconvNd
from puregraph.modules.div import Div
from puregraph.modules.dropout import Dropout
from puregraph.modules.einsum import Einsum
from puregraph.modules.elu import Elu
from puregraph.modules.embedder import Embedder
from puregraph.modules.equal import Equal
from puregraph.modules.expand import Expand
from puregraph.modules.flatten import Flatten
from puregraph.modules.full import Full
from puregraph.modules.gather import Gather
from puregraph.modules.gelu import Gelu
from puregraph.modules.globalavgpool import GlobalAvgPool
from puregraph.modules.greater import Greater
from puregraph.modules.greaterequal import GreaterEqual
from puregraph.modules.groupnorm import GroupNorm
from puregraph.modules.gru import GRU
from puregraph.modules.hardswish import HardSwish
from puregraph.modules.identity import Identity
from puregraph.modules.layernorm import LayerNorm
from puregraph.modules.leakyrelu import LeakyRelu
from puregraph.modules.less import Less
from puregraph.modules.lessequal import LessEqual
from puregraph.modules.linear import Linear
from puregraph.modules.logicaland import And
from puregraph.modules.logicalnot import Not
from puregraph.modules.logicalor import Or
from puregraph.modules.logicalxor import Xor
from puregraph.modules.lstm import LSTM
from puregraph.modules.matmul import MatMul
from puregraph.modules.max import Max
from puregraph.modules.maxpool1d import MaxPool1D
from puregraph.modules.maxpool2d import MaxPool2D
from puregraph.modules.maxpoolnd import MaxPoolNd
from puregraph.modules.mean import Mean
from puregraph.modules.min import Min
from puregraph.modules.mod import Mod
from puregraph.modules.mul import Mul
from puregraph.modules.muladdconst import MulAddConst
from puregraph.modules.nonzero import NonZero
from puregraph.modules.notequal import NotEqual
from puregraph.modules.onehot import OneHot
from puregraph.modules.pad import Pad
from puregraph.modules.pairdot import PairDot
from puregraph.modules.position import Position
from puregraph.modules.power import Power
from puregraph.modules.prepend import Prepend
from puregraph.modules.range import Range
from puregraph.modules.relu import Relu
from puregraph.modules.reshape import Reshape
from puregraph.modules.rnn import RNN
from puregraph.modules.shapeof import Shape
from puregraph.modules.sigmoid import Sigmoid
from puregraph.modules.size import Size
from puregraph.modules.slice import Slice
from puregraph.modules.softmax import SoftMax
from puregraph.modules.softplus import SoftPlus
from puregraph.modules.split import Split
from puregraph.modules.sub import Sub
from puregraph.modules.sum import Sum
from puregraph.modules.swish import Swish
from puregraph.modules.tanh import Tanh
from puregraph.modules.tile import Tile
from puregraph.modules.transpose import Transpose
from puregraph.modules.unique import Unique
from puregraph.modules.upsample2d import Upsample2D
from puregraph.modules.where import Where

__all__ = [
    "Equal",
    "NotEqual",
    "Less",
    "LessEqual",
    "Greater",
    "GreaterEqual",
    "And",
    "Or",
    "Xor",
    "Not",
    "Mod",
    "Where",
    "Cast",
    "ArgMax",
    "ArgMin",
    "OneHot",
    "Constant",
    "Shape",
    "Size",
    "Range",
    "Full",
    "Expand",
    "Tile",
    "Unique",
    "Compress",
    "NonZero",
    "GRU",
    "LSTM",
    "RNN",
    "Add",
    "Attention",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPoolNd",
    "BatchNorm",
    "Clip",
    "Concat",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "ConvNd",
    "Deconv2D",
    "DeconvNd",
    "Div",
    "Dropout",
    "Einsum",
    "Elu",
    "Embedder",
    "Flatten",
    "Gather",
    "Gelu",
    "GlobalAvgPool",
    "GroupNorm",
    "HardSwish",
    "Identity",
    "LayerNorm",
    "LeakyRelu",
    "Linear",
    "MatMul",
    "Max",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPoolNd",
    "Mean",
    "Min",
    "Mul",
    "MulAddConst",
    "Pad",
    "PairDot",
    "Position",
    "Power",
    "Prepend",
    "Relu",
    "Reshape",
    "Sigmoid",
    "Slice",
    "SoftMax",
    "SoftPlus",
    "Split",
    "Sub",
    "Sum",
    "Swish",
    "Tanh",
    "Transpose",
    "Upsample2D",
]
