"""What is known of a network before it has seen any data: shapes, mistakes, sizes, and its backward pass.

    python examples/shapes.py    about a second, for 70 billion parameters too

No array of any model here is ever made. The first two models can be tried on the command line as well:

    puregraph shapes examples/shapes.py:wrong N,3,64,64 N,20
    puregraph shapes examples/shapes.py:right N,3,64,64 N,20
"""

import time

from puregraph import (
    Concat,
    Conv2D,
    Embedder,
    Flatten,
    Footprint,
    Graph,
    Input,
    LayerNorm,
    Linear,
    MatMul,
    MaxPool2D,
    Mean,
    MulAddConst,
    Relu,
    Reshape,
    Sequential,
    ShapeError,
    SoftMax,
    Swish,
    Transpose,
)
from puregraph.graph.analysis.summary import summary
from puregraph.core.errors import show


def caption(pixels, wordsize):
    """Does this text belong to this picture? Two branches that meet in one number."""
    image, words = Input(name="image").node(), Input(name="words").node()
    h = Conv2D(3, 16, 5, stride=2, name="conv")(image)
    h = MaxPool2D(2, name="pool")(Relu(name="relu")(h))
    seen = Linear(pixels, 64, name="seen")(Flatten(name="flat")(h))
    w = Mean(axis=1, name="mean")(Embedder(1000, 32, name="embed")(words))
    read = Linear(wordsize, 64, name="read")(w)
    both = Concat(axis=1, name="both")(seen, read)
    return Graph([image, words], Linear(128, 1, name="match")(both), name="caption")


def wrong():
    """With two mistakes, one in each branch."""
    return caption(pixels=16 * 16 * 16, wordsize=20)


def right():
    """As it was meant."""
    return caption(pixels=16 * 15 * 15, wordsize=32)


def attention(width, heads, groups, size):
    """Grouped-query attention as a graph of its own; positions and mask, which have no parameters, are left out."""
    x = Input(name="x").node()
    q = Linear(width, heads * size, useBias=False, name="q")(x)
    k = Linear(width, groups * size, useBias=False, name="k")(x)
    v = Linear(width, groups * size, useBias=False, name="v")(x)
    q = Transpose((0, 2, 3, 1, 4))(Reshape((0, 0, groups, heads // groups, size))(q))
    k, v = (Transpose((0, 2, 3, 1, 4))(Reshape((0, 0, groups, 1, size))(each)) for each in (k, v))
    scores = MulAddConst(size**-0.5, name="scale")(MatMul(transpB=True, name="scores")(q, k))
    y = MatMul(name="mix")(SoftMax(axis=-1, name="softmax")(scores), v)
    y = Reshape((0, 0, heads * size))(Transpose((0, 3, 1, 2, 4))(y))
    return Graph(x, Linear(heads * size, width, useBias=False, name="out")(y))


def feedforward(width, inner):
    """W3 (swish(W1 x) * W2 x)"""
    x = Input(name="x").node()
    gate = Swish()(Linear(width, inner, useBias=False, name="gate")(x))
    up = Linear(width, inner, useBias=False, name="up")(x)
    return Graph(x, Linear(inner, width, useBias=False, name="down")(gate * up))


def language(blocks, width=8192, inner=28672, heads=64, groups=8, words=32000):
    """A language model with the sizes of the largest in Touvron et al. 2023, arXiv:2307.09288."""
    text = Input(name="text").node()
    h = Embedder(words, width, name="words")(text)
    for i in range(blocks):
        h = h + attention(width, heads, groups, width // heads).node(LayerNorm(width)(h), name=f"attn{i}")
        h = h + feedforward(width, inner).node(LayerNorm(width)(h), name=f"ffn{i}")
    h = LayerNorm(width, name="last")(h)
    return Graph(text, Linear(width, words, useBias=False, name="head")(h), name="language")


def main():
    shapes = [("N", 3, 64, 64), ("N", 20)]
    print("Two mistakes, both named at once:\n")
    try:
        wrong().dataShapeFrom(shapes)
    except ShapeError as error:
        print(error)

    print("\nCorrected, for a batch of any size N:\n")
    net = right()
    print(summary(net, *shapes))
    image, _ = net.gradShapeFrom(("N", 1))
    print(f"\na gradient of shape (N, 1) reaches the image as {show(image)}")

    print("\nIts sizes may be symbols too:\n")
    front = Sequential(Conv2D(3, 16, 5, stride=2), Relu(), MaxPool2D(2))
    print(f"a picture (N, 3, H, W) leaves the front as {show(front.dataShapeFrom(('N', 3, 'H', 'W')))}")

    print("\nA language model, not one number of which is made:\n")
    start = time.perf_counter()
    found = Footprint(language(80), ("N", 4096))
    seconds = time.perf_counter() - start
    print(f"{len(found.lines)} nodes, {found.params:,} parameters, {len(found.faults)} faults")
    print(f"a step with N = 1 peaks at {found.peak(N=1) / 2**30:.1f} GiB; found in {seconds:.1f} s")

    print("\nThe backward pass is a graph as well:\n")
    print(Sequential(Linear(4, 8), Relu(), Linear(8, 2), name="small").backwardGraph())


if __name__ == "__main__":
    main()
