"""Names of torchvision: the networks of `puregraph.models` that it has as well.

Source    the torchvision reference, torchvision.models: names in the state dicts of vgg, resnet, mobilenet_v2 and vit
"""

from __future__ import annotations

from puregraph.core.errors import ArgumentError
from puregraph.graph import Graph
from puregraph.serialize.weights.namemap import NameMap
from puregraph.serialize.weights.transforms import squeeze

RESNET = NameMap(
    [
        ("conv1", "conv"),
        ("bn1", "norm"),
        ("layer{s}.{b}.downsample.0", "stage{s}.block{b+1}.convskip"),
        ("layer{s}.{b}.downsample.1", "stage{s}.block{b+1}.normskip"),
        ("layer{s}.{b}.conv{c}", "stage{s}.block{b+1}.conv{c}"),
        ("layer{s}.{b}.bn{c}", "stage{s}.block{b+1}.norm{c}"),
    ]
)
MOBILENET = NameMap(
    [
        ("features.0.0", "conv"),
        ("features.0.1", "norm"),
        ("features.1.conv.0.0", "block1.path.conv2"),  # the first block has no expansion
        ("features.1.conv.0.1", "block1.path.norm2"),
        ("features.1.conv.1", "block1.path.conv3"),
        ("features.1.conv.2", "block1.path.norm3"),
        ("features.{b}.conv.0.0", "block{b}.path.conv1"),
        ("features.{b}.conv.0.1", "block{b}.path.norm1"),
        ("features.{b}.conv.1.0", "block{b}.path.conv2"),
        ("features.{b}.conv.1.1", "block{b}.path.norm2"),
        ("features.{b}.conv.2", "block{b}.path.conv3"),
        ("features.{b}.conv.3", "block{b}.path.norm3"),
        ("features.18.0", "convlast"),
        ("features.18.1", "normlast"),
        ("classifier.1", "fc"),
    ]
)
BLOCK, LAYER = "block{i+1}", "encoder.layers.encoder_layer_{i}"
VIT = NameMap(
    [
        ("conv_proj", "patches"),
        ("class_token", "token.W", squeeze(0)),
        ("encoder.pos_embedding", "where.W", squeeze(0)),
        (f"{LAYER}.ln_{{k}}", f"{BLOCK}.norm{{k}}"),
        (f"{LAYER}.self_attention.in_proj_weight", f"{BLOCK}.attn.qkv.W"),
        (f"{LAYER}.self_attention.in_proj_bias", f"{BLOCK}.attn.qkv.b"),
        (f"{LAYER}.self_attention.out_proj", f"{BLOCK}.attn.out"),
        (f"{LAYER}.mlp.0", f"{BLOCK}.mlp.fc1"),
        (f"{LAYER}.mlp.3", f"{BLOCK}.mlp.fc2"),
        (f"{LAYER}.mlp.linear_{{k}}", f"{BLOCK}.mlp.fc{{k}}"),  # in older files
        ("encoder.ln", "norm"),
        ("heads.head", "head"),
    ]
)
FAMILIES = {  # a path that only this family has
    "stage1.block1.conv1.W": RESNET,
    "block1.path.conv2.W": MOBILENET,
    "patches.W": VIT,
}


def mapFor(graph: Graph) -> NameMap:
    """The map of the family that a graph belongs to.

    Raises    ArgumentError for a graph of no such family
    """
    paths = graph.params
    if "stage1.conv1.W" in paths:
        return vggMap(graph)
    for path, names in FAMILIES.items():
        if path in paths:
            return names
    raise ArgumentError(
        "names='torchvision' is for vgg, resnet, mobilenet and vit of puregraph.models; this graph has other paths; "
        "names='torch' loads a torch module whose layers have the names of the graph's nodes"
    )


def vggMap(graph: Graph) -> NameMap:
    """The map of a VGG: `features` counts convolutions, norms, rectifiers and pooling in their order."""
    layers = [step.path for step in graph.steps().items if step.path.startswith("stage")]
    held = {path.rpartition(".")[0] for path in graph.params}
    rows = [(f"features.{i}", path) for i, path in enumerate(layers) if path in held]
    return NameMap([*rows, *((f"classifier.{3 * i}", f"head.fc{i + 1}") for i in range(3))])
