"""Leaves, and one Function in both styles, for tests of the tape."""

import numpy as np

from puregraph.autodiff import Function, Variable


def leaf(data, dtype=np.float64):
    return Variable(np.array(data, dtype), requires_grad=True)


def number(value):
    return Variable(float(value), requires_grad=True)


class Scaled(Function):
    """x * y * k, the context in forward."""

    needs = None

    @staticmethod
    def forward(ctx, x, y, k):
        ctx.save_for_backward(x, y)
        ctx.k = k
        return x * y * k

    @staticmethod
    def backward(ctx, g):
        Scaled.needs = ctx.needs_input_grad
        x, y = ctx.saved_variables
        return g * y * ctx.k, g * x * ctx.k if ctx.needs_input_grad[1] else None, None


class Split(Function):
    """The same in the other style."""

    @staticmethod
    def forward(x, y, k):
        return x * y * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, ctx.k = inputs
        ctx.save_for_backward(x, y)

    backward = Scaled.backward
