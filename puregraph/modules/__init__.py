"""Everything a network is built from: one file, one class, exported here."""

from puregraph.modules.add import Add
from puregraph.modules.clip import Clip
from puregraph.modules.concat import Concat
from puregraph.modules.div import Div
from puregraph.modules.elu import Elu
from puregraph.modules.flatten import Flatten
from puregraph.modules.gelu import Gelu
from puregraph.modules.identity import Identity
from puregraph.modules.leakyrelu import LeakyRelu
from puregraph.modules.linear import Linear
from puregraph.modules.mean import Mean
from puregraph.modules.mul import Mul
from puregraph.modules.muladdconst import MulAddConst
from puregraph.modules.pad import Pad
from puregraph.modules.power import Power
from puregraph.modules.relu import Relu
from puregraph.modules.reshape import Reshape
from puregraph.modules.sigmoid import Sigmoid
from puregraph.modules.slice import Slice
from puregraph.modules.softplus import SoftPlus
from puregraph.modules.split import Split
from puregraph.modules.sub import Sub
from puregraph.modules.sum import Sum
from puregraph.modules.swish import Swish
from puregraph.modules.tanh import Tanh
from puregraph.modules.transpose import Transpose

__all__ = [
    "Add",
    "Clip",
    "Concat",
    "Div",
    "Elu",
    "Flatten",
    "Gelu",
    "Identity",
    "LeakyRelu",
    "Linear",
    "Mean",
    "Mul",
    "MulAddConst",
    "Pad",
    "Power",
    "Relu",
    "Reshape",
    "Sigmoid",
    "Slice",
    "SoftPlus",
    "Split",
    "Sub",
    "Sum",
    "Swish",
    "Tanh",
    "Transpose",
]
