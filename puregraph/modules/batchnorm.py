"""BatchNorm: normalisation of each channel by its statistics over the batch."""

import numpy as np

from puregraph.core.arguments import Count, Flag, Fraction, NotNegative, isWhole
from puregraph.core.base.widen import widen
from puregraph.core.errors import GraphWarning, need
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.param import Param, State
from puregraph.core.shape import product
from puregraph.graph.module import Module
from puregraph.modules.windows import channelHint, overMaps, perMap
from puregraph.ops.reduction.reference import moments, total

KERAS = 0.9  # from here on a momentum is probably meant as in Keras: the share of the old statistics


class BatchNorm(Module):
    """y = scale (x - m) f + bias, f = 1 / sqrt(v + epsilon), for each channel; no bias if not `useBias`, nor `affine`

    In trainMode m and v are the mean and variance of the channel over samples and positions, and the running ones are
    updated:

        count += 1, mean += r (m - mean), var += r (v k / (k - 1) - var), k elements a channel,

    r is `momentum`, or 1 / count if momentum is None (a plain average). In evalMode m and v are the running ones. m and
    f are the hidden outputs `center` and `factor`. Statistics are in float32 or better.

    If a Trainer splits a batch into microbatches, each has separate statistics. With `synchronized`, all use the
    statistics of the whole batch, across processes: sums are exchanged in the forward and backward pass.

    Shapes    x (n, maps, *spatial), any number of spatial axes or none; the others (maps,), count () -> y as x
    Source    Ioffe and Szegedy 2015, arXiv:1502.03167, algorithms 1 and 2; the gradient is in section 3
    Raises    ShapeError if maps is not an integer of at least 1, if the second axis of x is not maps long, or in
              trainMode a channel has fewer than two elements
    """

    reads = ("x", "scale", "center", "factor")
    needsFloats = needsOneFloat = featuresFirst = True
    hidden = ("center", "factor")
    flopsPerElement = 4

    def __init__(
        self,
        maps: Count,
        epsilon: NotNegative = 1e-5,
        momentum: Fraction | None = 0.1,
        affine: Flag = True,
        synchronized: Flag = False,
        name=None,
        *,
        useBias: Flag = True,
    ):
        super().__init__(name)
        need(isWhole(maps, 1), "maps as a whole number of at least 1", repr(maps))
        if momentum is not None and KERAS <= momentum < 1:
            warnUser(
                f"BatchNorm: momentum={momentum} is the share of a new batch in the running statistics, as in PyTorch; "
                f"Keras counts the other share: its momentum={momentum} is momentum={1 - momentum:.3g} here",
                GraphWarning,
            )
        self.maps, self.epsilon, self.momentum, self.synchronized = maps, epsilon, momentum, synchronized
        self.scale = Param((maps,), "ones") if affine else None
        self.bias = Param((maps,)) if affine and useBias else None
        self.mean = State((maps,))
        self.var = State((maps,), "ones")
        self.count = State((), dtype=np.int64)

    def dataShapeFrom(self, x):
        need(len(x) >= 2 and x[1] == self.maps, f"(n, {self.maps}, *spatial)", x, channelHint(x, self.maps))
        values = product((x[0], *x[2:]))
        hint = "give a larger batch, leave out a last batch of one, or use evalMode()"
        need(not self.isTraining or values >= 2, "at least two values of each map in trainMode", x, hint)
        return x

    def hiddenShapeFrom(self, x):
        return [(self.maps,)] * 2

    def hiddenTypeFrom(self, x):
        return [self.mean.dtype] * 2

    def updateData(self, x, scale, bias, mean, var, count):
        if self.isTraining:
            self.dataShapeFrom(x.shape)
            center, variance = (m.astype(mean.dtype, copy=False) for m in moments(x, overMaps(x)))
            self.follow(center, variance, x.size // self.maps, mean, var, count)
        else:
            center, variance = mean.copy(), var
        return self.normalized(x, scale, bias, center, variance)

    def normalized(self, x, scale, bias, center, variance):
        """Return y and the hidden outputs, for these statistics."""
        factor = 1 / np.sqrt(variance + self.epsilon)
        y = x - perMap(center, x)
        y *= perMap(factor if scale is None else factor * scale, x)
        if bias is not None:
            y += perMap(bias, x)
        return y.astype(x.dtype, copy=False), center, factor

    def follow(self, center, variance, values, mean, var, count):
        """Update the running statistics with batch statistics."""
        count += 1
        rate = 1 / count if self.momentum is None else self.momentum
        mean += rate * (center - mean)
        var += rate * (variance * (values / (values - 1)) - var)

    def updateTogether(self, arguments, total):
        """Return the outputs of each microbatch from its entry of `arguments`. `total(arrays, length)` adds arrays of
        that length over all microbatches."""
        xs = [x for x, *_ in arguments]
        sums = total([np.append(x.sum(overMaps(x), np.float64), x.size // self.maps) for x in xs], self.maps + 1)
        values = int(sums[-1])
        self.dataShapeFrom((values, self.maps))
        center = sums[:-1] / values
        far = [np.square(x - perMap(center, x)).sum(overMaps(x)) for x in xs]
        variance = total(far, self.maps) / values
        outputs = []
        for x, scale, bias, mean, var, count in arguments:
            m, v = center.astype(mean.dtype), variance.astype(mean.dtype)
            self.follow(m, v, values, mean, var, count)
            outputs.append(self.normalized(x, scale, bias, m, v))
        return outputs

    def gradTogether(self, arguments, needs, total):
        """Return the gradients of each microbatch; that of x depends on the statistics of all microbatches."""
        sums = []
        for grad, x, *_, center, factor in arguments:
            g, z = grad.astype(np.float64), perMap(factor, x) * (x - perMap(center, x))
            sums.append(np.concatenate([(g * z).sum(overMaps(x)), g.sum(overMaps(x)), [x.size // self.maps]]))
        gscale, gbias, (values,) = np.split(total(sums, 2 * self.maps + 1), [self.maps, 2 * self.maps])
        grads = []
        for grainSums, (grad, x, scale, bias, *_, center, factor) in zip(sums, arguments):
            z = perMap(factor, x) * (x - perMap(center, x))
            g = widen(grad) - perMap(gbias / values, x) - z * perMap(gscale / values, x)
            gx = (g * perMap(factor if scale is None else factor * scale, x)).astype(x.dtype, copy=False)
            both = zip(np.split(grainSums[:-1], 2), (scale, bias))
            params = [None if p is None else s.astype(x.dtype) for s, p in both]
            grads.append((gx if needs[0] else None, *params, None, None, None))
        return grads

    def updateGrad(self, grad, x, scale, bias, mean, var, count, y, center, factor, needs):
        g, axes = widen(grad), overMaps(grad)
        z = (x - perMap(center, x)) * perMap(factor, x)
        gscale, gbias = total(g * z, axes), total(g, axes)
        gx = None
        if needs[0]:
            if self.isTraining:
                k = x.size // self.maps
                g = g - perMap(gbias / k, x) - z * perMap(gscale / k, x)
            gx = (g * perMap(factor if scale is None else factor * scale, x)).astype(x.dtype, copy=False)
        both = ((gscale, scale), (gbias, bias))
        return gx, *(None if p is None else g.astype(x.dtype, copy=False) for g, p in both), None, None, None

    @classmethod
    def examples(cls):
        yield cls(3), [(4, 3)]
        yield cls(2, epsilon=1e-3, momentum=0.3), [(2, 2, 5)]
        yield cls(3), [(2, 3, 3, 2)]
        yield cls(2, affine=False), [(2, 2, 2, 1, 3)]
        yield cls(2, momentum=None), [(3, 2, 2)]
        yield cls(2, synchronized=True), [(3, 2, 2)]
        yield cls(3, useBias=False), [(4, 3)]
