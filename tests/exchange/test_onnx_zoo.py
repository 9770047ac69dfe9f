"""Layers without an operator of their own: written by the calls of their rules, and read back with the same numbers."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from puregraph import modules
from puregraph.graph import Graph, Input
from puregraph.onnx import fromOnnx, toOnnx

ACTIVATIONS = "Celu HardShrink HardSigmoid LogSigmoid Mish PRelu QuickGelu RRelu Relu6 Selu SoftPlus SoftShrink SoftSign SquaredRelu TanhShrink Threshold"
DROPS = "AlphaDropout DropBlock Dropout2D FeatureAlphaDropout NoiseInjector StochasticDepth"
AUGMENTATIONS = """AutoContrast CutMix MixUp RandomBrightness RandomColorDegeneration RandomContrast RandomElasticTransform
RandomErasing RandomFlip RandomGaussianBlur RandomGrayscale RandomHue RandomInvert RandomPerspective RandomPosterization
RandomRotation RandomSaturation RandomSharpness RandomShear RandomTranslation RandomZoom Solarization"""
OTHERS = """AdaptiveAvgPool AdaptiveMaxPool BatchNorm Bilinear ChannelShuffle CosineSimilarity DepthConcat EmbedderBag Entmax GLU GeGLU GroupLinear GroupNorm
InstanceNorm KMaxPool LCN LayerNorm MapLRN MoveAxis PairwiseDistance PixelShuffle PixelUnshuffle ReGLU SoftMin SparseMax SubtractMean
SwapAxes SwiGLU Unfold Upsample1D Upsample3D GATConv GCNConv NeighborSum SAGEConv"""


@pytest.mark.parametrize("name", f"{ACTIVATIONS} {DROPS} {AUGMENTATIONS} {OTHERS}".split())
def test_a_layer_is_written_and_read_with_the_same_numbers(name, tmp_path):
    rng = np.random.default_rng(0)
    for module, shapes in getattr(modules, name).examples():
        nodes = [Input(name=f"i{i}").node() for i in range(len(shapes))]
        net = Graph(nodes, module(*nodes)).evalMode()
        data = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in module.sample(rng, *shapes)]
        toOnnx(net, tmp_path / "layer.onnx", shapes)
        again = fromOnnx(tmp_path / "layer.onnx").evalMode()
        wanted, got = (g(*data) if len(data) == 1 else g(data) for g in (net, again))
        pairs = zip(wanted, got, strict=True) if isinstance(wanted, list) else [(wanted, got)]
        assert all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs)
