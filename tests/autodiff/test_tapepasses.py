"""Passes back over a tape: seeds, leaves, options, hooks, modes, failures."""

import threading

import numpy as np
import pytest
from tapes import Scaled, leaf, number

from puregraph.autodiff import (
    AutoDiffException,
    Function,
    Node,
    Variable,
    backward,
    enable_grad,
    get_gradient_edge,
    grad,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)


@pytest.fixture(autouse=True)
def recording():
    with enable_grad():
        yield


# Passes ---------------------------------------------------------------------------------------------------------------


def test_gradients_add_up_over_passes():
    x = number(3)
    y = x * x
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    assert x.grad == 12
    x.zero_grad()
    backward(y)
    assert x.grad == 6


def test_a_graph_is_freed_unless_it_is_kept():
    x = leaf([1.0, 2.0])
    for y in (x * x, np.exp(x), np.concatenate([x, x]), Scaled.apply(x, x, 1)):
        seed = np.ones(y.shape)
        y.backward(seed, retain_graph=True)
        y.backward(seed)
        with pytest.raises(RuntimeError, match=rf"{y.grad_fn.name()}: .*retain_graph=True"):
            y.backward(seed)


def test_create_graph_keeps_the_graph_too():
    x = number(2)
    y = x**3
    (g,) = grad(y, x, create_graph=True)
    assert isinstance(g, Variable) and g.requires_grad and g.data == 12
    assert grad(g, x) == (12,)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        grad(g, x)


def test_without_create_graph_there_is_no_second_derivative():
    x = number(2)
    (g,) = grad(x**3, x)
    assert not isinstance(g, Variable) and g == 12
    with pytest.raises(TypeError, match="wanted a Variable"):
        grad(g, x)
    (x**3).backward(create_graph=True)
    assert isinstance(x.grad, Variable) and x.grad.data == 12
    assert grad(x.grad, x) == (12,)


def test_third_derivatives():
    x = number(2)
    g = x**4
    for wanted in (32, 48, 48, 24):
        (g,) = grad(g, x, create_graph=True)
        assert g.data == wanted


def test_backward_of_several_variables():
    x = number(2)
    a, b = x * 3, x * x
    backward([a, b], [Variable(10.0), 1.0])
    assert x.grad == 34
    backward((x * 3, x * 4), None)
    assert x.grad == 41
    with pytest.raises(RuntimeError, match="wanted 2 gradients, one per output, got 1"):
        backward([x * 1, x * 2], [1.0])


def test_inputs_narrow_a_pass():
    x, y, z = number(2), number(3), number(4)
    out = x * y * z
    out.backward(inputs=[x, get_gradient_edge(y), x], retain_graph=True)
    assert (x.grad, y.grad, z.grad) == (12, 8, None)
    out.backward(inputs=z)
    assert z.grad == 6
    with pytest.raises(RuntimeError, match="inputs is empty"):
        (x * 2).backward(inputs=[])
    middle = x * 2
    with pytest.raises(RuntimeError, match="inputs must be leaves, got one that <MulBackward0"):
        (middle * 2).backward(inputs=[middle])


def test_inputs_that_are_not_reached_get_nothing():
    x, y = number(1), number(1)
    (x * 2).backward(inputs=[x, y])
    assert (x.grad, y.grad) == (2, None)


def test_grad_returns_and_stores_nothing():
    x, y = number(2), number(3)
    middle = x * y
    middle.retain_grad()
    out = middle * middle
    found = grad(out, [x, middle, get_gradient_edge(y), get_gradient_edge(middle)])
    assert found == (36, 12, 24, 12)
    assert (x.grad, y.grad, middle.grad) == (None, None, None)


def test_grad_of_something_unused():
    x, y = number(1), number(2)
    with pytest.raises(RuntimeError, match=r"do not depend on input 1, Variable\(np.float64\(2.0\).*allow_unused"):
        grad(x * 2, [x, y])
    assert grad(x * 2, [x, y], allow_unused=True) == (2, None)
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(x * 2, Variable(1.0), allow_unused=True)


def test_grad_takes_several_outputs():
    x = leaf([1.0, 2.0])
    (g,) = grad([x * 2, x * x], x, [np.ones(2), np.array([1.0, 10.0])])
    assert g.tolist() == [4, 42]


def test_only_what_leads_to_an_input_runs():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ZeroDivisionError

    x, y = number(1), number(1)
    assert grad(Bad.apply(x) * y, y) == (2,)


@pytest.mark.parametrize("wrong", [3.0, np.ones(2), "text", None, [1.0]])
def test_a_pass_starts_at_a_variable(wrong):
    with pytest.raises(TypeError, match="wanted a Variable or a GradientEdge"):
        backward(wrong)


def test_a_leaf_that_needs_no_gradient_cannot_go_back():
    with pytest.raises(RuntimeError, match="does not require grad or does not have a grad_fn"):
        Variable(1.0).backward()


def test_a_leaf_is_its_own_gradient():
    x = leaf([1.0, 2.0])
    x.backward(np.array([3.0, 4.0]))
    assert x.grad.tolist() == [3, 4]
    assert grad(x, x, np.ones(2))[0].tolist() == [1, 1]


def test_a_seed_has_the_shape_of_its_output():
    x = leaf([1.0, 2.0])
    with pytest.raises(RuntimeError, match=r"only for scalar outputs, got shape \(2,\)"):
        (x * 2).backward()
    for seed in (np.ones(3), np.ones((1, 2)), Variable(np.ones(1)), [[1.0, 2.0, 3.0]]):
        with pytest.raises(RuntimeError, match=r"wanted .*gradient"):
            (x * 2).backward(seed)
    assert x.grad is None
    (x * 2).backward(5)
    assert x.grad.tolist() == [10, 10]


@pytest.mark.parametrize(
    "start", [2, 2.0, np.float32(2), np.array(2), Variable(2.0), Variable(np.float32(2))], ids=repr
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_seed_takes_the_dtype_of_its_output(start, dtype):
    x = leaf(3, dtype)
    for y, slope in [(x * 4, 4), (x + 0, 1), (x**2, 6), (x, 1), (x.reshape(1)[0], 1)]:
        (g,) = grad(y, x, start)
        assert g.dtype == dtype and g == 2 * slope


def test_seeds_are_neither_written_nor_handed_on():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    seed = np.array([1.0, 10.0])
    seed.flags.writeable = False
    for make in (
        lambda: x + y,
        lambda: x.reshape(2, 1).reshape(2) + y,
        lambda: x + x + x + y,
        lambda: +x + np.copy(y),
        lambda: np.broadcast_to(x, (2,)) + y,
    ):
        x.zero_grad()
        y.zero_grad()
        make().backward(seed)
        assert not np.shares_memory(x.grad, seed) and not np.shares_memory(x.grad, y.grad)
        x.grad *= 2
        x.grad[0] = 0
        assert seed.tolist() == [1, 10] and y.grad.tolist() == [1, 10]
        a, b = grad(make(), [x, y], seed)
        assert not np.shares_memory(a, seed) and not np.shares_memory(a, b) and a.flags.writeable
    x.zero_grad()
    x.sum().backward()
    x.grad += 1
    assert x.grad.tolist() == [2, 2]


def test_a_gradient_that_a_rule_keeps_is_not_written():
    class Keeps(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            kept.append(np.ones(2))
            return Variable(kept[-1])

    kept = []
    x = leaf([1.0, 2.0])
    y = Keeps.apply(x) + Keeps.apply(x) + Keeps.apply(x)
    y.backward(np.ones(2))
    y = Keeps.apply(x)
    y.backward(np.ones(2))
    assert x.grad.tolist() == [4, 4] and all(g.tolist() == [1, 1] for g in kept)


def test_three_readers_are_added_in_the_order_in_which_they_ran():
    values = [0.1, 0.7, 1e16, -1e16, 0.3]
    x = number(1)
    middle = x * 1
    out = 0.0
    for v in values:
        out = middle * v + out
    total = values[0]
    for v in values[1:]:
        total = total + v
    out.backward()
    assert x.grad == total != sum(sorted(values))
    seen = []
    y = number(1)
    inner = y * 1
    backward(inner * 2 + inner * 3 + inner * inner, accumulate=lambda a, b: seen.append((a, b)) or a + b)
    assert seen == [(2, 3), (5, 1), (6, 1)] and y.grad == 7


def test_accumulate_of_a_pass_goes_for_leaves_too():
    x = number(2)
    (x * 3 + x * 5).backward(accumulate=max)
    assert x.grad == 5
    assert grad(x * 3 + x * 5, x, accumulate=min) == (3,)


def test_a_pass_that_fails_changes_nothing_and_can_be_tried_again():
    class Fragile(Function):
        broken = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            if Fragile.broken:
                raise KeyError("not today")
            return g * 2 * ctx.saved_variables[0]

    x, y = number(3), number(5)
    middle = Fragile.apply(x) * y
    middle.retain_grad()
    out = middle * y
    with pytest.raises(KeyError) as caught:
        out.backward()
    notes = getattr(caught.value, "__notes__", None) or list(caught.value.args)
    assert any("FragileBackward0" in str(note) for note in notes)
    assert (x.grad, y.grad, middle.grad) == (None, None, None) and is_grad_enabled()
    Fragile.broken = False
    out.backward()
    assert (x.grad, y.grad, middle.grad) == (150, 90, 5)


def test_an_accumulate_that_fails_changes_no_leaf():
    def refuse(a, b):
        raise ValueError("no")

    x, y = number(1), number(1)
    with pytest.raises(ValueError, match="no"):
        (x * y + y).backward(accumulate=refuse)
    assert (x.grad, y.grad) == (None, None)


def test_a_wrong_number_of_gradients_names_the_node():
    class Three(Node):
        def apply(self, g):
            return g, g, g

    x = number(1)
    y = x * 2
    y.grad_fn.next_functions = [(Three([get_gradient_edge(x)]), 0)]
    with pytest.raises(RuntimeError, match="Three returned 3 gradients, expected 1"):
        y.backward()
    assert x.grad is None


def test_no_gradient_is_no_zero():
    class Nothing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return None

    class Never(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise ZeroDivisionError

    x = number(1)
    Nothing.apply(Never.apply(x)).backward()
    assert x.grad is None


# Hooks ----------------------------------------------------------------------------------------------------------------


def test_hooks_of_variables():
    x = number(2)
    y = x * 3
    seen = []
    first = y.register_hook(lambda g: seen.append(float(g)))
    second = y.register_hook(lambda g: g * 10)
    third = x.register_hook(lambda g: seen.append(float(g)))
    (y + y).backward(retain_graph=True)
    assert seen == [2, 60] and x.grad == 60
    second.remove()
    second.remove()
    third.remove()
    x.zero_grad()
    y.backward(retain_graph=True)
    assert seen == [2, 60, 1] and x.grad == 3
    first.remove()
    assert grad(y, x) == (3,) and seen == [2, 60, 1]


def test_hooks_count_for_grad_and_for_what_is_retained():
    x = number(2)
    y = x * 3
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    assert grad(y * 1, [y, x], retain_graph=True) == (10, 31)
    (y * 1).backward()
    assert (y.grad, x.grad) == (10, 31)


def test_hooks_of_nodes():
    x = number(2)
    y = x * x
    seen = []
    handle = y.grad_fn.register_hook(lambda found, given: seen.append((found, given)))
    y.grad_fn.register_hook(lambda found, given: tuple(g * 2 for g in found))
    y.backward(retain_graph=True)
    assert seen == [((2, 2), (1,))] and x.grad == 8
    handle.remove()
    y.backward()
    assert len(seen) == 1 and x.grad == 16


def test_a_hook_sees_variables_when_the_pass_is_recorded():
    x = number(2)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = grad(y, x, create_graph=True)
    assert g.data == 8 and grad(g, x) == (8,)  # 2 x^2


def test_a_hook_wants_a_gradient():
    with pytest.raises(AutoDiffException, match="does not require grad"):
        Variable(1.0).register_hook(print)


def test_a_hook_on_a_leaf_that_collects_sees_each_contribution():
    x = Variable({"a": 1}, requires_grad=True)

    class Both(Function):
        @staticmethod
        def forward(ctx, a, b):
            return {**a.data, **b.data}

        @staticmethod
        def backward(ctx, g):
            return g.data, {"b": 2}

    x.register_hook(lambda g: {**g, "seen": True})
    Both.apply(x, x).backward({"a": 1})
    assert x.grad == [{"a": 1, "seen": True}, {"b": 2, "seen": True}]


# Modes ----------------------------------------------------------------------------------------------------------------


def test_no_grad_in_all_spellings():
    x = number(2)

    @no_grad
    def bare(v):
        return v * v

    @no_grad()
    def called(v):
        """Says what it does."""
        return v * v

    @enable_grad()
    def enabled(v):
        return v * v

    @set_grad_enabled(False)
    def disabled(v):
        return v * v

    assert is_grad_enabled()
    assert not bare(x).requires_grad and not called(x).requires_grad and not disabled(x).requires_grad
    assert called.__name__ == "called" and called.__doc__ == "Says what it does."
    with no_grad():
        assert not is_grad_enabled() and (x * x).is_leaf and enabled(x).requires_grad
        with enable_grad():
            assert (x * x).requires_grad
            with set_grad_enabled(False):
                assert not (x * x).requires_grad
            assert is_grad_enabled()
        assert not is_grad_enabled()
    with pytest.raises(ZeroDivisionError), no_grad():
        raise ZeroDivisionError
    assert is_grad_enabled()
    switch = no_grad()
    with switch:
        with switch:
            pass
        assert not is_grad_enabled()
    set_grad_enabled(False)
    assert not is_grad_enabled()
    set_grad_enabled(True)
    assert is_grad_enabled()


def test_without_recording_everything_computes_the_same():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    with no_grad():
        for f in (
            lambda x: x @ x,
            lambda x: np.split(x, 2)[1],
            lambda x: np.fft.fft(x),
            lambda x: np.linalg.eigh(x)[0],
        ):
            y = f(x)
            assert y.is_leaf and not y.requires_grad and np.array_equal(y.data, f(x.data))


def test_modes_belong_to_threads():
    found = []
    with no_grad():
        thread = threading.Thread(target=lambda: found.append(((number(1) * 2).requires_grad, is_grad_enabled())))
        thread.start()
        thread.join()
        assert not is_grad_enabled()
    assert found == [(True, True)]
