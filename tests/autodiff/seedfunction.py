"""The claims of afnio's page of Function."""

import inspect

import numpy as np
import pytest
from seedclaims import SeedPage

from puregraph import autodiff
from puregraph.autodiff import AutoDiffException, Function, Variable

PAGE = SeedPage("afnio: Function", "`afnio.autodiff.function`, here `puregraph.autodiff.function`")


class Scaled(Function):
    """y = k x, in one method."""

    @staticmethod
    def forward(ctx, x, k=2.0):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad_out):
        return (grad_out * ctx.k, None)[: len(ctx.needs_input_grad)]


class Separate(Function):
    """y = x y, in two methods."""

    seen: list = []

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        Separate.seen[:] = [inputs, output]
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_out):
        x, y = ctx.saved_variables
        return grad_out * y, grad_out * x


class Func(Function):
    """The example of the page."""

    @staticmethod
    def forward(ctx, x: Variable):
        reverse = x.data[::-1]
        out = Variable(data=reverse, role=x.role, requires_grad=True)
        ctx.save_for_backward(x, reverse, out)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        x, reverse, out = ctx.saved_variables
        grad = f"Here is the feedback for {x.role} (reversed): {grad_out.grad}"
        role = f"Feedback to {x.role}"
        x.grad = Variable(data=grad, role=role)
        return x.grad


def leaf(*values):
    return Variable(np.array(values), requires_grad=True)


def written(forward, backward):
    """A Function of two functions."""
    return type("Written", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


# The class -----------------------------------------------------------------------------------------------------------


@PAGE.holds("Function", "Function is the base class of operations of one's own.")
def base():
    assert autodiff.function.Function is Function and issubclass(Scaled, Function)


@PAGE.holds("Function", "A subclass writes the static methods `forward` and `backward`.")
def subclass():
    x = leaf(3.0)
    Scaled.apply(x).backward(np.ones(1))
    assert x.grad.tolist() == [2]


@PAGE.holds("Function", "In the forward pass the class method `apply` is called.")
def applies():
    y = Scaled.apply(leaf(3.0))
    assert (y.data.tolist(), y.grad_fn.name()) == ([6], "ScaledBackward0")


@PAGE.holds("Function", "`forward` is not to be called directly: that records nothing of the operation.")
def notDirectly():
    y = Separate.forward(np.array([2.0]), np.array([3.0]))
    assert y.tolist() == [6] and not hasattr(y, "grad_fn")


@PAGE.holds("Function", "It may be called with any arguments, `Function(*args, **kwargs)`; that makes no instance.")
def instance():
    for cls in (Function, Scaled):
        with pytest.raises(RuntimeError, match="should not be instantiated"):
            cls(1, k=2)


@PAGE.holds("example", "The printed class can be defined, and applied to a text with a role that requires a gradient.")
def exampleApplies():
    a = Variable(data="This is a string", role="Input string", requires_grad=True)
    c = Func.apply(a)
    assert (c.data, c.role, c.grad_fn.name()) == ("gnirts a si sihT", "Input string", "FuncBackward0")


@PAGE.holds("example", "Its `backward` unpacks Variables and a plain text from `ctx.saved_variables`.")
def exampleSaved():
    seen = []
    keep = type("Keep", (Func,), {"backward": staticmethod(lambda ctx, g: seen.extend(ctx.saved_variables))})
    keep.apply(Variable("ab", role="r", requires_grad=True)).backward("good")
    x, reverse, out = seen
    assert (x.data, reverse, out.data) == ("ab", "ba", "ba")


@PAGE.holds("example", "Its `backward` reads the feedback to the output as `grad_out.grad`.")
def exampleGradOut():
    a = Variable(data="This is a string", role="Input string", requires_grad=True)
    Func.apply(a).backward("too short")
    assert a.grad[0].data == "Here is the feedback for Input string (reversed): too short"


@PAGE.holds(
    "example", "Its `backward` sets `x.grad` to a Variable with a role and returns it: this is the gradient of x."
)
def exampleGrad():
    a = Variable(data="This is a string", role="Input string", requires_grad=True)
    Func.apply(a).backward("too short")
    assert [g.role for g in a.grad] == ["Feedback to Input string"]


# apply ---------------------------------------------------------------------------------------------------------------


@PAGE.holds("apply", "It is a class method.")
def applyIsClassMethod():
    assert inspect.ismethod(Scaled.apply) and Scaled.apply.__self__ is Scaled


@PAGE.holds("apply", "It runs `forward` of the class on positional and keyword arguments.")
def applyRuns():
    x = leaf(3.0)
    y = Scaled.apply(x, k=5.0)
    y.backward(np.ones(1))
    assert (y.data.tolist(), x.grad.tolist()) == ([15], [5])


@PAGE.holds("apply", "It serves both styles: a context that `setup_context` fills, and one that `forward` fills.")
def applyBoth():
    x, y = leaf(2.0), leaf(5.0)
    (Separate.apply(x, y) + Scaled.apply(x)).backward(np.ones(1))
    assert (x.grad.tolist(), y.grad.tolist()) == ([7], [2])


# backward ------------------------------------------------------------------------------------------------------------


@PAGE.holds("backward", "It gives the formula by which the operation is differentiated backward.")
def formula():
    x = leaf(3.0)
    cube = written(lambda ctx, x: ctx.save_for_backward(x) or x**3, lambda ctx, g: 3 * ctx.saved_variables[0] ** 2 * g)
    cube.apply(x).backward(np.ones(1))
    up, down = ((3 + step) ** 3 for step in (1e-5, -1e-5))
    np.testing.assert_allclose(x.grad, (up - down) / 2e-5, rtol=1e-8)


@PAGE.holds("backward", "Every subclass overrides it.")
def backwardOverridden():
    with pytest.raises(NotImplementedError, match=r"static method backward\(ctx, \*grads\)"):
        type("Half", (Function,), {"forward": staticmethod(lambda ctx, x: x * 1)}).apply(leaf(1.0)).backward(np.ones(1))


@PAGE.holds("backward", "It gets the context first, then one argument for each output of `forward`.")
def backwardArguments():
    seen = []
    both = written(lambda ctx, x: (x * 2, x * 3), lambda ctx, *grads: seen.append((ctx, len(grads))))
    y, _ = both.apply(leaf(1.0))
    y.backward(np.ones(1))
    assert seen[0][0].needs_input_grad == (True,) and seen[0][1] == 2


@PAGE.holds("backward", "It gets None for outputs of `forward` that are no Variables.")
def backwardNone():
    seen = []
    mixed = written(lambda ctx, x: (x * 2, 7, None, np.arange(2)), lambda ctx, *g: seen.extend(g))
    mixed.apply(leaf(1.0))[0].backward(np.ones(1))
    assert seen[0].data.tolist() == [1] and seen[1:] == [None, None, None]


@PAGE.differs(
    "backward",
    "This goes for outputs of every kind that are no Variables.",
    "a bare array of floats or a bare text becomes a Variable, so that `forward` may be written with numpy; it has a "
    "gradient like any other",
)
def backwardBare():
    doubled = written(lambda ctx, x: x.data * 2, lambda ctx, g: g * 2)
    x = leaf(1.0)
    y = doubled.apply(x)
    y.backward(np.ones(1))
    assert isinstance(y, Variable) and x.grad.tolist() == [2]


@PAGE.holds("backward", "It returns as many gradients as `forward` has inputs.")
def backwardCount():
    wrong = written(lambda ctx, x, y: x * y, lambda ctx, g: (g, g, g))
    with pytest.raises(AutoDiffException, match="returned 3 gradients, expected 2"):
        wrong.apply(leaf(1.0), leaf(1.0)).backward(np.ones(1))


@PAGE.holds("backward", "Each argument is the gradient with respect to that output.")
def backwardByOutput():
    seen = []
    both = written(lambda ctx, x: (x * 2, x * 3), lambda ctx, a, b: seen.extend((a.data.tolist(), b.data.tolist())))
    autodiff.backward(list(both.apply(leaf(1.0))), [np.array([5.0]), np.array([7.0])])
    assert seen == [[5], [7]]


@PAGE.holds("backward", "Each returned value is the gradient with respect to that input.")
def backwardByInput():
    x, y = leaf(1.0), leaf(1.0)
    written(lambda ctx, x, y: x * y, lambda ctx, g: (g * 10, g * 100)).apply(x, y).backward(np.ones(1))
    assert (x.grad.tolist(), y.grad.tolist()) == ([10], [100])


@PAGE.holds("backward", "None may be returned for an input that is no Variable, or requires no gradient.")
def backwardNoneReturned():
    x, y = leaf(2.0), Variable(np.array([3.0]))
    written(lambda ctx, x, y, k: x * y * k, lambda ctx, g: (g * 12, None, None)).apply(x, y, 4).backward(np.ones(1))
    assert x.grad.tolist() == [12] and y.grad is None


@PAGE.holds("backward", "The context gives back the Variables that the forward pass saved.")
def contextSaved():
    x, y = leaf(2.0), leaf(5.0)
    Separate.apply(x, y).backward(np.ones(1))
    assert (x.grad.tolist(), y.grad.tolist()) == ([5], [2])


@PAGE.holds("backward", "`ctx.saved_tensors`, the name that PyTorch has for it, gives the same.")
def contextTensors():
    x = leaf(2.0)
    keep = written(lambda ctx, x: ctx.save_for_backward(x) or x * x, lambda ctx, g: 2 * ctx.saved_tensors[0] * g)
    keep.apply(x).backward(np.ones(1))
    assert x.grad.tolist() == [4]


@PAGE.holds("backward", "`ctx.needs_input_grad` is a tuple of booleans, one for each input.")
def contextNeeds():
    seen = []
    look = written(lambda ctx, x, y, k: x * y, lambda ctx, g: seen.append(ctx.needs_input_grad) or (None, g, None))
    look.apply(Variable(np.ones(1)), leaf(1.0), 3).backward(np.ones(1))
    assert seen == [(False, True, False)] and {type(need) for need in seen[0]} == {bool}


@PAGE.holds("backward", "`ctx.needs_input_grad[0]` is True if the first input needs a gradient.")
def contextNeedsFirst():
    seen = []
    look = written(lambda ctx, x: x * 1, lambda ctx, g: seen.append(ctx.needs_input_grad[0]) or g)
    look.apply(leaf(1.0)).backward(np.ones(1))
    assert seen == [True]


# forward and setup_context -------------------------------------------------------------------------------------------


@PAGE.holds("forward", "Every subclass overrides it.")
def forwardOverridden():
    with pytest.raises(NotImplementedError, match=r"static method forward\(ctx, \*inputs\)"):
        type("Empty", (Function,), {}).apply(leaf(1.0))


@PAGE.holds("forward", "It may be written with the context: `forward(ctx, *args, **kwargs)`.")
def forwardCombined():
    assert Scaled.apply(leaf(3.0), k=4.0).data.tolist() == [12]


@PAGE.holds("forward", "It then gets the context first, and any number of arguments: Variables or other types.")
def forwardArguments():
    seen = []
    look = written(lambda ctx, *args, **options: seen.append((ctx, args, options)) or args[0] * 1, None)
    x = leaf(1.0)
    look.apply(x, 3, "text", [1, 2], flag=True)
    ctx, args, options = seen[0]
    assert hasattr(ctx, "save_for_backward") and args[0] is x
    assert (args[1:], options) == ((3, "text", [1, 2]), {"flag": True})


@PAGE.holds("forward", "It may be written without the context: `forward(*args, **kwargs)` beside `setup_context`.")
def forwardSeparate():
    assert Separate.apply(leaf(3.0), leaf(4.0)).data.tolist() == [12]


@PAGE.holds("forward", "Without a context, `setup_context` has to be overridden to fill it.")
def forwardNeedsSetup():
    with pytest.raises(TypeError):  # the context arrives as the first argument
        written(lambda x: x * 1, None).apply(leaf(1.0))


@PAGE.holds("forward", "`setup_context` gets the inputs of `forward` as a tuple, and its output.")
def setupArguments():
    x, y = leaf(2.0), leaf(5.0)
    Separate.apply(x, y)
    inputs, output = Separate.seen
    assert type(inputs) is tuple and inputs[0] is x and inputs[1] is y and output.data.tolist() == [10]


@PAGE.holds("forward", "The context stores any data for the backward pass, as attributes.")
def contextStores():
    x = leaf(3.0)
    Scaled.apply(x, 7.0).backward(np.ones(1))
    assert x.grad.tolist() == [7]


@PAGE.holds(
    "forward", "Variables are to be saved by `ctx.save_for_backward`, not as attributes: then changes are noticed."
)
def contextSaves():
    x = leaf(3.0)
    y = written(lambda ctx, x: ctx.save_for_backward(x) or x * x, lambda ctx, g: ctx.saved_variables[0] * g).apply(x)
    x.data = np.array([5.0])
    with pytest.raises(AutoDiffException, match="modified in place"):
        y.backward(np.ones(1))


@PAGE.holds("forward", "What `save_for_backward` saved is meant for `backward`, and freed after it.")
def contextFrees():
    y = Separate.apply(leaf(2.0), leaf(5.0))
    y.backward(np.ones(1))
    with pytest.raises(AutoDiffException, match="retain_graph=True"):
        y.backward(np.ones(1))


@PAGE.holds("setup_context", "It is a static method `setup_context(ctx, inputs, output)`.")
def setupIsStatic():
    assert isinstance(vars(Function)["setup_context"], staticmethod)
    assert list(inspect.signature(Function.setup_context).parameters) == ["ctx", "inputs", "output"]


@PAGE.holds("setup_context", "It need not be overridden: `forward` then sets up the context itself.")
def setupNotOverridden():
    assert Scaled.setup_context is Function.setup_context and Scaled.apply(leaf(1.0)).data.tolist() == [2]


@PAGE.holds("setup_context", "Where it is overridden, `forward` gets no context: it is set up here.")
def setupOverridden():
    x = leaf(2.0)
    Separate.apply(x, leaf(5.0)).backward(np.ones(1))
    assert list(inspect.signature(Separate.forward).parameters) == ["x", "y"] and x.grad.tolist() == [5]
