"""ViT: a transformer that reads an image as a sequence of patches."""

from puregraph.core.arguments import Count, takes
from puregraph.graph.sequential import Sequential
from puregraph.models.transformer import transformerBlock
from puregraph.modules import Conv2D, Dropout, LayerNorm, Linear, Position, Prepend, Reshape, Slice, Transpose


@takes(image=Count, patch=Count, layers=Count, heads=Count, size=Count, classes=Count, inmaps=Count)
def vit(
    image=224,
    patch=16,
    layers=12,
    heads=12,
    size=768,
    classes=1000,
    inmaps=3,
    dropout=0.0,
    inner=None,
    epsilon=1e-6,
    name="vit",
):
    """Patch embeddings, a class token before them, position embeddings, blocks, a last norm, and scores of the token.

    By default ViT-B/16; S/16 has 6 heads and a size of 384, L/16 24 layers, 16 heads and a size of 1024.
    `inner` is the width of the networks in the blocks, 4 size unless given; `epsilon` is that of the norms.

    Shapes    x (n, inmaps, image, image) -> (n, classes)
    Source    Dosovitskiy et al. 2020, arXiv:2010.11929, eq. 1 to 4
    Params    86,567,656 (B/16), 22,050,664 (S/16), 304,326,632 (L/16)
    Raises    ValueError if patches do not fill the image, or heads do not divide the size

    >>> vit(image=32, patch=4, layers=2, classes=10).dataShapeFrom(("N", 3, 32, 32))
    ('N', 10)
    """
    if image % patch:
        raise ValueError(f"vit: wanted patches that fill an image of {image}, got {patch}")
    return Sequential(
        Conv2D(inmaps, size, patch, stride=patch, name="patches"),
        Reshape((0, size, -1), name="positions"),
        Transpose((0, 2, 1), name="sequence"),
        Prepend(1, size, name="token"),
        Position((image // patch) ** 2 + 1, size, name="where"),
        *([Dropout(dropout, name="drop")] if dropout else []),
        *(
            transformerBlock(size, heads, inner, dropout=dropout, epsilon=epsilon, name=f"block{i + 1}")
            for i in range(layers)
        ),
        LayerNorm(size, epsilon, name="norm"),
        Slice((slice(None), 0), name="first"),
        Linear(size, classes, name="head"),
        name=name,
    )
