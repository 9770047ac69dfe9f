"""Layers for JAX as plain functions: images (n, h, w, c), weights taken one after the other.

With `making`, the first run makes the weights, or converts those of a puregraph Graph to the forms used here; every
other run takes them from the list it was given.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

IMAGES = ("NHWC", "HWIO", "NHWC")


class Layers:
    """The weights and running statistics of a network, handed out in the order in which it asks."""

    nn, jnp, lax = jax.nn, jnp, lax

    def __init__(self, params, states, train):
        self.params, self.states, self.train = params, states, train
        self.changed = []
        self.reading = iter(params)
        self.running = iter(states)
        self.given = self.rng = None

    @classmethod
    def making(cls, path, train):
        """Layers that make their weights, from a file if there is one."""
        net = cls([], [], train)
        net.rng = np.random.default_rng(0)
        if path is not None:
            with np.load(path) as found:
                net.given = iter([found[key] for key in found.files])
        return net

    def finish(self):
        """The weights and statistics that a run has made."""
        if self.given is not None and len(list(self.given)):
            raise ValueError("wanted as many weights as the network has, got more")
        return [jnp.asarray(p) for p in self.params], [jnp.asarray(s) for s in self.states]

    def weight(self, shape, scale=None, start=0.0, turn=None):
        """The next weight; `turn` converts puregraph's form to this one, `scale` is the deviation of random values."""
        if self.rng is None:
            return next(self.reading)
        if self.given is not None:
            array = next(self.given)
            array = array if turn is None else turn(array)
        elif scale is None:
            array = np.full(shape, start, np.float32)
        else:
            array = (self.rng.standard_normal(shape) * scale).astype(np.float32)
        if array.shape != tuple(shape):
            raise ValueError(f"wanted a weight of shape {shape}, got {array.shape}")
        self.params.append(np.ascontiguousarray(array))
        return self.params[-1]

    def state(self, shape, start):
        """The next running statistic."""
        if self.rng is None:
            return next(self.running)
        self.states.append(np.full(shape, start, np.float32))
        return self.states[-1]

    # Layers -----------------------------------------------------------------------------------------------------------

    def linear(self, x, insize, outsize):
        """x W + b"""
        W = self.weight((insize, outsize), insize**-0.5)
        return x @ W + self.weight((outsize,))

    def conv(self, x, inmaps, outmaps, size, stride=1, pad=0, groups=1, bias=False):
        """Convolution of images."""
        shape = (size, size, inmaps // groups, outmaps)
        scale = (2 / (size * size * inmaps // groups)) ** 0.5
        W = self.weight(shape, scale, turn=lambda W: W.transpose(2, 3, 1, 0))
        y = lax.conv_general_dilated(
            x, W, (stride, stride), [(pad, pad)] * 2, dimension_numbers=IMAGES, feature_group_count=groups
        )
        return y + self.weight((outmaps,)) if bias else y

    def grow(self, x, inmaps, outmaps):
        """Transposed convolution of size 2 and stride 2, whose windows do not overlap: one matrix product."""
        W = self.weight((inmaps, 2, 2, outmaps), inmaps**-0.5, turn=lambda W: W.transpose(0, 2, 3, 1))
        n, h, w, _ = x.shape
        y = jnp.einsum("nhwi,iklo->nhkwlo".replace(" ", ""), x, W).reshape(n, 2 * h, 2 * w, outmaps)
        return y + self.weight((outmaps,))

    def pool(self, x, size, stride=None, pad=0):
        """Maximum pooling."""
        stride = stride or size
        sides = [(0, 0), (pad, pad), (pad, pad), (0, 0)]
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), sides)

    def batchnorm(self, x, channels):
        """Batch normalisation over the last axis, which updates its running statistics while training."""
        scale, bias = self.weight((channels,), start=1.0), self.weight((channels,))
        mean, var = self.state((channels,), 0.0), self.state((channels,), 1.0)
        if self.train:
            k = x.size // channels
            now, spread = x.mean((0, 1, 2)), x.var((0, 1, 2))
            self.changed += [0.9 * mean + 0.1 * now, 0.9 * var + 0.1 * spread * (k / (k - 1))]
            mean, var = now, spread
        return (x - mean) * (lax.rsqrt(var + 1e-5) * scale) + bias

    def layernorm(self, x, size):
        """Normalisation of the last axis."""
        scale, bias = self.weight((size,), start=1.0), self.weight((size,))
        center = x.mean(-1, keepdims=True)
        return (x - center) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias

    def table(self, count, size):
        """A table of vectors."""
        return self.weight((count, size), 0.02)

    def attention(self, x, size, heads, causal=False):
        """Attention of several heads."""
        n, t, _ = x.shape
        q, k, v = (h.reshape(n, t, heads, size // heads) for h in jnp.split(self.linear(x, size, 3 * size), 3, axis=-1))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
        return self.linear(y.reshape(n, t, size), size, size)

    def block(self, x, size, heads, causal=False, approximate=False):
        """A block of a transformer, normalised before each part."""
        x = x + self.attention(self.layernorm(x, size), size, heads, causal)
        h = self.linear(self.layernorm(x, size), size, 4 * size)
        return x + self.linear(jax.nn.gelu(h, approximate=approximate), 4 * size, size)

    def lstm(self, x, insize, size):
        """All states of a layer of long short-term memory."""
        W, U = self.weight((insize, 4 * size), insize**-0.5), self.weight((size, 4 * size), size**-0.5)
        p = jnp.moveaxis(x @ W + self.weight((4 * size,)), 1, 0)

        def cell(carry, p):
            h, c = carry
            i, f, g, o = jnp.split(p + h @ U, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((x.shape[0], size), x.dtype)
        return jnp.moveaxis(lax.scan(cell, (zeros, zeros), p)[1], 0, 1)
