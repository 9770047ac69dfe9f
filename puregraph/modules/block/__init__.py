"""Blocks: functions that make a Graph of several modules, named like a module; also imported as `puregraph.block`."""

from puregraph.modules.block.additive import AdditiveAttention
from puregraph.modules.block.convlstm import ConvLSTM
from puregraph.modules.block.decoding import Transformer, TransformerDecoder, TransformerDecoderLayer
from puregraph.modules.block.encoding import TransformerEncoder, TransformerEncoderLayer
from puregraph.modules.block.globalmax import GlobalMaxPool
from puregraph.modules.block.graphconv import GINConv
from puregraph.modules.block.mamba import Mamba
from puregraph.modules.block.merging import Average, Maximum, Minimum
from puregraph.modules.block.mixture import MoE
from puregraph.modules.block.multihead import MultiHeadAttention
from puregraph.modules.block.recurrentlayers import GRUCell, LSTMCell, RecurrentLayers, RNNCell
from puregraph.modules.block.relative import alibiBias, relativeBias
from puregraph.modules.block.repeatvector import RepeatVector
from puregraph.modules.block.separable import SeparableConv
from puregraph.modules.block.timedistributed import TimeDistributed

__all__ = [
    "AdditiveAttention",
    "SeparableConv",
    "Average",
    "Maximum",
    "Minimum",
    "GlobalMaxPool",
    "RepeatVector",
    "ConvLSTM",
    "GINConv",
    "GRUCell",
    "LSTMCell",
    "Mamba",
    "MoE",
    "MultiHeadAttention",
    "RNNCell",
    "RecurrentLayers",
    "TimeDistributed",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "alibiBias",
    "relativeBias",
]
