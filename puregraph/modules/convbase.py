"""The base of ConvNd and its transpose DeconvNd: options of the windows, a weight and a bias for each channel of y."""

from math import prod

import numpy as np

from puregraph.base.widen import asResultType
from puregraph.core import initial
from puregraph.core.param import Param
from puregraph.errors import need
from puregraph.kernels.convolution import convolveWeight
from puregraph.kernels.reduce import total
from puregraph.module import Module
from puregraph.modules.windows import overMaps, perAxis, perMap, sides, windowSize


class _Convolution(Module):
    """A subclass says how its weight is applied, and how gradients go back: ConvNd by convolve and its adjoint,
    DeconvNd the other way around. The weight of both has the channels first that its convolution gives."""

    rank = None
    reads = ("x", "W")
    needsFloats = True
    isTransposed = False

    def setWindows(self, inmaps, outmaps, size, stride, pad, dilation, groups):
        """Check and keep the options of the windows."""
        checkMaps(inmaps, outmaps, groups)
        self.size = windowSize(size, self.rank, type(self).__name__)
        self.stride = perAxis(stride, len(self.size), "stride")
        self.dilation = perAxis(dilation, len(self.size), "dilation")
        self.pad = sides(pad, self.size, self.stride, self.dilation)
        self.inmaps, self.outmaps, self.groups = inmaps, outmaps, groups

    def setWeights(self, useBias, initscheme, wscale):
        """Make W and b."""
        fans = [maps // self.groups * prod(self.size) for maps in (self.inmaps, self.outmaps)]
        first, second = (self.inmaps, self.outmaps) if self.isTransposed else (self.outmaps, self.inmaps)
        self.W = Param((first, second // self.groups, *self.size), initial.weights(initscheme, *fans, wscale))
        self.b = Param((self.outmaps,)) if useBias else None

    @property
    def layout(self):
        """The options of the convolution kernels."""
        return self.stride, self.pad, self.dilation, self.groups

    def updateData(self, x, W, b):
        y = self.apply(*asResultType(x, W))
        return y if b is None else np.add(y, perMap(b, y), out=y)

    def updateGrad(self, grad, x, W, b, y, needs):
        given, made = (x, self.reached(grad)) if self.isTransposed else (grad, x)
        return (
            self.applyAdjoint(grad, W, x.shape) if needs[0] else None,
            convolveWeight(given, made, self.size, *self.layout) if needs[1] else None,
            total(grad, overMaps(grad)) if needs[2] else None,
        )


def checkMaps(inmaps, outmaps, groups):
    """Check that groups divide the input and output channels.

    Raises    ShapeError otherwise
    """
    hint = f"groups={groups} must divide both"
    need(inmaps % groups == outmaps % groups == 0, f"inmaps and outmaps in {groups} groups", (inmaps, outmaps), hint)
