"""OpRegistry: the functions that read the operators of ONNX, each from an opset on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from puregraph.core.errors import PuregraphError

NEWEST = 28  # the newest opset whose operators are known here
MICROSOFT = "com.microsoft"  # the domain of onnxruntime's own operators
NOTREAD = """
AttnLSTM BeamSearch BiasAdd BiasDropout BiasSoftmax BiasSplitGelu BitmaskBiasDropout BitmaskDropout CDist ComplexMul
ConvTransposeWithDynamicPads CropAndResize DecoderAttention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention
DequantizeBFP DynamicTimeWarping EPContext ExpandDims FusedMatMulActivation GatedDeltaNet GatedRelativePositionBias
GatherBlockQuantized GemmFastGelu GemmFloat8 GreedySearch GridSample GroupNorm GroupQueryAttention Inverse Irfft
LongformerAttention MatMulBnb4 MatMulFpQ4 MatMulInteger16 MaxpoolWithMask MoE MulInteger MurmurHash3 NGramRepeatBlock
NhwcConv NhwcFusedConv PackedAttention PackedMultiHeadAttention PagedAttention QEmbedLayerNormalization
QLinearReduceMean QMoE QOrderedAttention QOrderedGelu QOrderedLayerNormalization QOrderedMatMul QuantizeBFP
ReduceSumInteger RelativePositionBias RemovePadding RestorePadding Rfft Sampling SkipGroupNorm SparseAttention
SparseToDenseMatMul Tokenizer TorchEmbedding Trilu Unique WhisperBeamSearch WordConvEmbedding
""".split()  # operators of that domain
FAMILIES = """
activation convolution detection elementwise indexing microsoft microsoftattention microsoftquantized normalization
pooling product quantized recurrent reduction sampling sequence shaping signal
""".split()


class OnnxReader(NamedTuple):
    """A function that reads an operator, and the first opset that it reads."""

    since: int
    read: Callable[..., Any]


WRITING = """
activation axis composed control convolution cost formula joint layer operator quantized recurrent sampling shape
""".split()
READERS: dict[tuple[str, str], list[OnnxReader]] = {}


def onnxOp(*names: str, since: int = 1, domain: str = "") -> Callable[[Callable], Callable]:
    """Register the function below it as the reader of an operator, from opset `since` of its domain on.

    The function gets an `OnnxNode`, which has the attributes and makes nodes, and an `OnnxValue` for each input, or
    None for one that is left out. It returns an output, or a tuple of them.

    Raises    PuregraphError if the operator has a reader from the same opset on
    """

    def register(read: Callable) -> Callable:
        for name in names:
            known = READERS.setdefault((domain, name), [])
            if any(other.since == since for other in known):
                raise PuregraphError(f"onnxOp: {name!r} has a reader since opset {since} already")
            known.append(OnnxReader(since, read))
            known.sort(reverse=True)
        return read

    return register


def readerOf(domain: str, name: str, opset: int) -> Callable | None:
    """The reader of an operator in an opset; None if unknown."""
    loadFamilies()
    return next((read for since, read in READERS.get((domain, name), ()) if since <= opset), None)


@cache
def loadFamilies() -> None:
    """Import the readers of puregraph's own, a file for each family of operators."""
    for family in FAMILIES:
        import_module(f"puregraph.onnx.operators.{family}ops")


@cache
def loadWriters() -> None:
    """Import the writers of puregraph's own modules."""
    for family in WRITING:
        import_module(f"puregraph.onnx.writers.{family}writers")
