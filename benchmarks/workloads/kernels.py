"""Single kernels: puregraph's modules beside the functions of torch, forward alone, and forward with backward.

Every kernel takes the same values on both sides, in the layouts that each has its data in.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.workloads import floats

TITLE = "single kernels"


class Kernel(NamedTuple):
    """A module of puregraph, a function of torch, and the arguments of both."""

    module: Callable  # () -> a Module
    torch: Callable  # (torch) -> a function of the same arguments
    arguments: Callable  # (rng) -> arrays, parameters after inputs
    backward: bool = False
    images: bool = False  # channels-last may help
    wanted: tuple = ()  # which arguments have a gradient; all floating ones where it is empty
    optimizer: bool = False

    def make(self):
        """The arguments."""
        return self.arguments(np.random.default_rng(0))

    def gradFor(self, output):
        """The gradient of the output."""
        grad = floats(np.random.default_rng(1), *output.shape)
        return grad if output.ndim else np.ones_like(output)

    def needs(self):
        """Which arguments have a gradient."""
        return self.wanted or tuple(x is not None and x.dtype.kind == "f" for x in self.make())


KERNELS = {}


def both(title, *arguments, **options):
    """Register a kernel forward, and with its gradients."""
    KERNELS[f"{title} forward"] = Kernel(*arguments, **options)
    KERNELS[f"{title} training"] = Kernel(*arguments, **options, backward=True)


def modules():
    """puregraph, where it is wanted."""
    import puregraph

    return puregraph


def convolution(inmaps, outmaps, size, batch, groups=1):
    """3x3, padded, without bias."""
    both(
        f"conv {inmaps}->{outmaps} @{size} b{batch}{' depthwise' if groups > 1 else ''}",
        lambda: modules().Conv2D(inmaps, outmaps, 3, pad=1, useBias=False, groups=groups),
        lambda torch: lambda x, W, b: torch.nn.functional.conv2d(x, W, padding=1, groups=groups),
        lambda rng: [floats(rng, batch, inmaps, size, size), floats(rng, outmaps, inmaps // groups, 3, 3), None],
        images=True,
    )


def product(m, k, n):
    """A matrix product."""
    KERNELS[f"matmul {m}x{k}x{n}"] = Kernel(
        lambda: modules().MatMul(),
        lambda torch: torch.mm,
        lambda rng: [floats(rng, m, k), floats(rng, k, n)],
    )


def attention(batch, heads, length, size, causal):
    """Attention without a mask."""
    both(
        f"attention {batch}x{heads}x{length}x{size}{' causal' if causal else ''}",
        lambda: modules().Attention(causal),
        lambda torch: lambda q, k, v, mask: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
        lambda rng: [floats(rng, batch, heads, length, size) for _ in range(3)] + [None],
    )


def pooling(channels, size, batch, *window):
    """Maximum pooling: size, stride and padding."""
    both(
        f"maxpool {'/'.join(map(str, window))} {channels} @{size} b{batch}",
        lambda: modules().MaxPool2D(*window),
        lambda torch: lambda x: torch.nn.functional.max_pool2d(x, *window),
        lambda rng: [floats(rng, batch, channels, size, size)],
        images=True,
    )


def lstmOf(torch):
    """torch's LSTM as a function of puregraph's arguments."""

    def run(x, h0, c0, lengths, W, b, U):
        zeros = torch.zeros(1, len(x), U.shape[0])
        weights = [W.t().contiguous(), U.t().contiguous(), b, torch.zeros_like(b)]
        return torch._VF.lstm(x, (zeros, zeros), weights, True, 1, 0.0, True, False, True)[0]

    return run


def lstmArguments(rng):
    """32 sequences of 64 time steps, 256 features in and out."""
    weights = [0.05 * floats(rng, *shape) for shape in ((256, 1024), (1024,), (256, 1024))]
    return [floats(rng, 32, 64, 256), None, None, None, *weights]


def batchnormOf(torch):
    """torch's function with its arguments in puregraph's order; the count of batches is left alone."""

    def run(x, scale, bias, mean, var, count):
        return torch.nn.functional.batch_norm(x, mean, var, scale, bias, True)

    return run


def batchnormArguments(rng):
    """64 images of 64 channels of 32 x 32."""
    states = [np.zeros(64, np.float32), np.ones(64, np.float32), np.zeros((), np.int64)]
    return [floats(rng, 64, 64, 32, 32), 1 + floats(rng, 64) / 10, floats(rng, 64), *states]


convolution(64, 64, 56, 8)
convolution(256, 256, 14, 8)
convolution(16, 16, 32, 64)
convolution(96, 96, 48, 16, groups=96)
for width in (128, 512, 1024, 2048):
    product(width, width, width)
product(64, 784, 512)
both(
    "batchnorm 64 @32 b64",
    lambda: modules().BatchNorm(64),
    batchnormOf,
    batchnormArguments,
    images=True,
    wanted=(True, True, True, False, False, False),
)
both(
    "layernorm 8192x512",
    lambda: modules().LayerNorm(512),
    lambda torch: lambda x, scale, bias: torch.nn.functional.layer_norm(x, (512,), scale, bias),
    lambda rng: [floats(rng, 8192, 512), 1 + floats(rng, 512) / 10, floats(rng, 512)],
)
both(
    "softmax 4096x1000",
    lambda: modules().SoftMax(),
    lambda torch: lambda x: torch.softmax(x, -1),
    lambda rng: [floats(rng, 4096, 1000)],
)
both(
    "crossentropy 1024x1000",
    lambda: modules().CrossEntropy(),
    lambda torch: lambda x, labels, weights: torch.nn.functional.cross_entropy(x, labels),
    lambda rng: [floats(rng, 1024, 1000), rng.integers(0, 1000, 1024), None],
)
for axis in (1, 0):
    both(
        f"cumulative sum 8192x512 axis {axis}",
        lambda axis=axis: modules().CumSum(axis),
        lambda torch, axis=axis: lambda x, along: torch.cumsum(x, axis),
        lambda rng: [floats(rng, 8192, 512), None],
    )
pooling(64, 112, 8, 3, 2, 1)
pooling(64, 32, 64, 2, 2)
attention(8, 4, 128, 64, False)
attention(8, 6, 256, 64, True)
both(
    "embedding 8192x384 b2048",
    lambda: modules().Embedder(8192, 384),
    lambda torch: torch.nn.functional.embedding,
    lambda rng: [rng.integers(0, 8192, (8, 256)), floats(rng, 8192, 384)],
)
both("lstm 256, 64 time steps, b32", lambda: modules().LSTM(256, 256), lstmOf, lstmArguments)
KERNELS["adam 2048x2048"] = Kernel(
    None, None, lambda rng: [floats(rng, 2048, 2048), floats(rng, 2048, 2048)], optimizer=True
)
