"""Known networks: each function returns a Graph; its docstring has the paper and the parameter count."""

from puregraph.models.bert import bert
from puregraph.models.dlrm import dlrm
from puregraph.models.gpt import gpt, gpt2
from puregraph.models.lenet import lenet
from puregraph.models.llama import llama
from puregraph.models.lstm import lstm
from puregraph.models.mlp import mlp
from puregraph.models.mobilenet import mobilenet
from puregraph.models.resnet import (
    cifarResnet,
    resnet,
    resnet18,
    resnet20,
    resnet32,
    resnet34,
    resnet44,
    resnet50,
    resnet56,
    resnet101,
    resnet110,
    resnet152,
)
from puregraph.models.t5 import t5
from puregraph.models.transformer import multiHeadAttention, transformer, transformerBlock
from puregraph.models.unet import unet
from puregraph.models.vgg import vgg, vgg11, vgg13, vgg16, vgg19
from puregraph.models.vit import vit

__all__ = [
    "bert",
    "cifarResnet",
    "dlrm",
    "gpt",
    "gpt2",
    "lenet",
    "llama",
    "lstm",
    "mlp",
    "mobilenet",
    "multiHeadAttention",
    "resnet",
    "resnet101",
    "resnet110",
    "resnet152",
    "resnet18",
    "resnet20",
    "resnet32",
    "resnet34",
    "resnet44",
    "resnet50",
    "resnet56",
    "t5",
    "transformer",
    "transformerBlock",
    "unet",
    "vgg",
    "vgg11",
    "vgg13",
    "vgg16",
    "vgg19",
    "vit",
]
