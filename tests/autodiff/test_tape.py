"""The tape itself: nodes and edges, Variables, writing in place, what is freed."""

import copy
import gc
import math
import pickle
import threading
import weakref

import numpy as np
import pytest
from tapes import Scaled, Split, leaf, number

from puregraph import Param, Tanh
from puregraph.autodiff import (
    AutoDiffException,
    CycleError,
    GradientEdge,
    Node,
    Variable,
    checkpoint,
    enable_grad,
    get_gradient_edge,
    grad,
    is_grad_enabled,
    no_grad,
    parameter,
)


@pytest.fixture(autouse=True)
def recording():
    with enable_grad():
        yield


# Nodes and edges ------------------------------------------------------------------------------------------------------


NAMES = {
    "AddBackward0": lambda x: x + x,
    "SubBackward0": lambda x: 1 - x,
    "MulBackward0": lambda x: 2 * x,
    "DivBackward0": lambda x: x / 2,
    "PowBackward0": lambda x: x**2,
    "NegBackward0": lambda x: -x,
    "AbsBackward0": abs,
    "MatmulBackward0": lambda x: x @ x,
    "SumBackward0": lambda x: x.sum(),
    "MeanBackward0": lambda x: np.mean(x),
    "MaxBackward0": lambda x: x.max(),
    "ExpBackward0": np.exp,
    "IndexBackward0": lambda x: x[0],
    "ReshapeBackward0": lambda x: x.reshape(-1),
    "TransposeBackward0": lambda x: x.T,
    "ConcatenateBackward0": lambda x: np.concatenate([x, x]),
    "TakeAlongAxisBackward0": lambda x: np.take_along_axis(x, np.zeros((2, 1), int), 1),
    "AstypeBackward0": lambda x: x.astype(np.float32),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_node_is_called_as_in_torch(name):
    y = NAMES[name](leaf([[1.0, 2.0], [3.0, 4.0]]))
    assert y.grad_fn.name() == name
    assert str(y.grad_fn).startswith(f"<{name} object at 0x") and f"grad_fn={name}" in repr(y)


@pytest.mark.parametrize("operator", ["+", "-", "*", "/"])
def test_an_operator_and_numpys_function_leave_the_same_node(operator):
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    function = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[operator]
    pairs = [(eval(f"x {operator} y"), function(x, y)), (eval(f"2 {operator} y"), function(np.array(2.0), y))]
    for a, b in pairs:
        assert a.grad_fn.name() == b.grad_fn.name() and np.array_equal(a.data, b.data)
        wanted = [v for v in (x, y) if get_gradient_edge(v) in a.grad_fn.next_functions]
        seed = np.array([0.3, -0.7])
        for g, h in zip(grad(a, wanted, seed), grad(b, wanted, seed)):
            assert np.array_equal(g, h)


def test_next_functions_are_in_the_order_of_the_arguments():
    x, c, y = leaf([1.0]), Variable(np.ones(1)), leaf([2.0])
    z = np.concatenate([x, c, np.ones(2), y, x])
    edges = z.grad_fn.next_functions
    assert edges == (*map(get_gradient_edge, (x,)), GradientEdge(None, 0), *map(get_gradient_edge, (y, x)))
    assert isinstance(edges, tuple) and all(type(edge) is GradientEdge for edge in edges)
    assert repr(edges[1]) == "(None, 0)" and repr(edges[0]).startswith("(<AccumulateGrad object at 0x")
    assert (c * x).grad_fn.next_functions == (GradientEdge(None, 0), get_gradient_edge(x))
    assert (3 * x).grad_fn.next_functions == (get_gradient_edge(x),)


def test_the_edge_of_a_variable():
    x = leaf([1.0])
    assert get_gradient_edge(x).node is get_gradient_edge(x).node and get_gradient_edge(x).node.variable is x
    parts = np.split(x * np.ones(4), 2)
    assert [get_gradient_edge(part).output_nr for part in parts] == [0, 1]
    assert parts[1].output_nr == 1 and parts[0].grad_fn.num_outputs == 2
    with pytest.raises(RuntimeError, match="does not require grad or does not have a grad_fn"):
        get_gradient_edge(Variable(1.0))


@pytest.mark.parametrize("edges", [[3], [("a", 0)], [(None, "0")], [(None, True)], 5])
def test_next_functions_take_edges_only(edges):
    with pytest.raises(TypeError):
        number(1).__mul__(2).grad_fn.next_functions = edges


def test_next_functions_know_how_many_outputs_a_node_has():
    a, b = number(1) * 2, number(1) * 3
    with pytest.raises(TypeError, match="MulBackward0.next_functions: MulBackward0 has 1 output.*got 1"):
        a.grad_fn.next_functions = [(b.grad_fn, 1)]


def test_edges_may_be_set_by_hand():
    x, other = number(3), number(5)
    y = x * x * x
    y.grad_fn.next_functions = (get_gradient_edge(other), GradientEdge(None, 0))
    y.backward()
    assert (x.grad, other.grad) == (None, 3)  # the right hand x of (x x) x is cut off


def test_a_node_of_ones_own_stands_in_the_graph():
    class Negate(Node):
        def apply(self, g):
            return -g

    x = number(2)
    y = x * 3
    node = Negate([get_gradient_edge(x)])
    y.grad_fn.next_functions = [(node, 0)]
    y.backward()
    assert x.grad == -3 and node.name() == "Negate"
    with pytest.raises(NotImplementedError, match="Subclasses should implement"):
        Node().apply()


def test_a_cycle_is_named():
    x = number(1)
    a = x * 2
    b = np.exp(a)
    a.grad_fn.next_functions = [(b.grad_fn, 0)]
    for kind in (CycleError, ValueError, AutoDiffException):
        with pytest.raises(kind, match="Cycle detected: .*ExpBackward0, MulBackward0"):
            b.backward()


def test_a_node_cannot_be_copied():
    for copied in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="MulBackward0 belongs to one pass"):
            copied((number(1) * 2).grad_fn)


# Variables ------------------------------------------------------------------------------------------------------------


def test_a_leaf_and_what_was_made_of_it():
    x = number(2)
    y = x * x
    assert (x.is_leaf, y.is_leaf, x.requires_grad, y.requires_grad) == (True, False, True, True)
    assert x.grad_fn is None and x.grad is None
    assert repr(x) == "Variable(np.float64(2.0), requires_grad=True)"
    assert (Variable(1.0) * 2).is_leaf and not (Variable(1.0) * 2).requires_grad
    for name, value in [("grad_fn", None), ("is_leaf", True)]:
        with pytest.raises(AttributeError):
            setattr(y, name, value)


def test_what_is_no_leaf_keeps_its_gradient_if_told_to():
    x = number(3)
    y = x * x
    with pytest.raises(RuntimeError, match="MulBackward0's result is not kept: call retain_grad"):
        y.grad
    with pytest.raises(RuntimeError, match="retain_grad"):
        y.grad = 1.0
    with pytest.raises(RuntimeError, match="a leaf keeps its gradient"):
        x.retain_grad()
    y.retain_grad()
    y.retain_grad()
    assert y.grad is None
    z = y * 2 + y * 5
    z.backward(retain_graph=True)
    assert (y.grad, x.grad) == (7, 42)
    z.backward()
    assert y.grad == 14
    y.zero_grad()
    assert y.grad is None


@pytest.mark.parametrize("data", [1, True, np.arange(3), np.array([True]), 1j, np.ones(2, complex), None])
def test_only_floats_can_require_gradients(data):
    with pytest.raises(TypeError, match="only floating point values"):
        Variable(data, requires_grad=True)
    v = Variable(data)
    with pytest.raises(TypeError, match="only floating point values"):
        v.requires_grad = True
    assert not v.requires_grad


def test_integers_are_read_and_have_no_gradient():
    x, i = leaf([1.0, 2.0, 3.0]), Variable(np.array([2, 2, 0]))
    y = (x[i] * i).sum()
    y.backward()
    assert x.grad.tolist() == [0, 0, 4] and not (i * 2).requires_grad
    assert not np.argmax(x).ndim and not np.floor_divide(i, 2).requires_grad
    assert not (x > 1).requires_grad and (x > 1).data.tolist() == [False, True, True]
    assert not x.astype(int).requires_grad


def test_requires_grad_is_for_leaves():
    x = number(1)
    with pytest.raises(AutoDiffException, match="leaf only; use detach"):
        (x * 2).requires_grad_(False)
    x.requires_grad = False
    assert (x * 2).is_leaf
    assert Variable(2.0).requires_grad_().requires_grad


def test_detach_cuts():
    x = number(2)
    y = (x * x).detach()
    assert y.is_leaf and not y.requires_grad and y.data == 4
    (y * x).backward()
    assert x.grad == 4


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gradients_have_the_dtype_of_their_values(dtype):
    x, w = leaf([[0.5, 1.5]], dtype), leaf([[1.0], [2.0]], dtype)
    y = np.tanh((x @ w) * 2 + 1).sum() / 3 - x.mean() ** 2
    assert y.dtype == dtype
    y.backward()
    assert x.grad.dtype == w.grad.dtype == dtype


def test_mixed_dtypes_come_back_each_in_its_own():
    x, y, z = leaf([1.0, 2.0], np.float32), leaf([[3.0], [4.0]]), leaf(0.5, np.float16)
    for make in (lambda: x * y * z, lambda: np.hypot(x, y) * z, lambda: np.concatenate([x, y[:, 0]]) * z):
        for g, v in zip(grad(make().sum(), [x, y, z]), (x, y, z)):
            assert g.dtype == v.dtype and g.shape == v.shape
    (g,) = grad((x * y).sum(), x, create_graph=True)
    assert g.dtype == np.float32


def test_a_deep_copy_is_a_leaf_of_its_own():
    x = Variable(np.ones(2), role="weight", requires_grad=True)
    (x * 3).sum().backward()
    twin, again, other = copy.deepcopy([x, x, x * 2])
    assert twin is again and twin.role == "weight" and twin.requires_grad and twin.grad.tolist() == [3, 3]
    twin.data[0] = 5
    twin.grad[0] = 7
    assert x.data[0] == 1 and x.grad[0] == 3
    assert other.is_leaf and other.requires_grad and other.data.tolist() == [2, 2]
    nested = Variable([["a"]])
    copy.deepcopy(nested).data[0].append("b")
    assert nested.data == [["a"]]


def test_a_pickle_is_a_leaf():
    x = Variable(np.arange(3.0), role="weight", requires_grad=True)
    for v in (x, x * 2):
        twin = pickle.loads(pickle.dumps(v))
        assert np.array_equal(twin.data, v.data) and twin.role == v.role and twin.requires_grad and twin.is_leaf


def test_a_variable_acts_as_a_number():
    x = number(2)
    assert float(x.detach()) == 2 and bool(x) and x.item() == 2 and type(x.item()) is float
    assert int(x) == 2 and f"{x:.2f}" == "2.00" and f"{x}" == repr(x)
    assert Variable(np.arange(3)).tolist() == [0, 1, 2] and Variable("a").tolist() == "a"
    assert (
        (leaf([1.0, 2.0]) > 1).any()
        and not (leaf([1.0, 2.0]) > 1).all()
        and leaf([2.0, 1.0]).argsort().tolist() == [1, 0]
    )
    assert Variable(3).item() == 3 and Variable(3).dtype == int and Variable(3).shape == ()
    assert (x.ndim, x.size, x.shape, x.dtype) == (0, 1, (), np.float64)
    with pytest.raises(TypeError):
        len(x)
    with pytest.raises(TypeError):
        list(x)
    with pytest.raises(AutoDiffException, match="a leaf that requires a gradient is not written into"):
        x[0] = 1


def test_a_variable_is_a_sequence_of_its_rows():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    a, b = x
    (a * b).sum().backward()
    assert len(x) == 2 and x.grad.tolist() == [[3, 4], [1, 2]]


def test_comparing_goes_by_elements_and_hashing_by_identity():
    x, y = leaf([1.0, 2.0]), leaf([1.0, 3.0])
    assert (x == y).data.tolist() == [True, False] and (x != 1).data.tolist() == [False, True]
    assert len({x, y}) == 2 and {x: 1}[x] == 1
    (np.where(x == 1, x * x, x)).sum().backward()
    assert x.grad.tolist() == [2, 1]


def test_a_variable_in_a_variable_is_unwrapped():
    assert Variable(Variable(2.0)).data == 2


# In place -------------------------------------------------------------------------------------------------------------


MAKERS = [
    lambda x: x * x,
    lambda x: x * 2 * x,
    np.exp,
    lambda x: x @ x,
    lambda x: np.concatenate([x, x]),
    lambda x: Scaled.apply(x, x, 1),
    lambda x: Split.apply(x, x, 1),
    lambda x: Tanh()(x),
    lambda x: checkpoint(np.exp, x),
]


@pytest.mark.parametrize("make", MAKERS)
def test_a_saved_value_that_was_modified_is_noticed(make):
    x = leaf([1.0, 2.0])
    y = make(x).sum()
    x.data += 1
    with pytest.raises(RuntimeError, match="Backward0.*modified in place|save_for_backward keeps was modified"):
        y.backward()
    assert x.grad is None
    make(x).sum().backward()


@pytest.mark.parametrize("make", MAKERS)
def test_writing_into_the_array_of_a_leaf_is_noticed(make):
    x = leaf([1.0, 2.0])
    y = make(x).sum()
    x.data[0] = 5
    with pytest.raises(RuntimeError, match="Backward0.*modified in place|save_for_backward keeps was modified"):
        y.backward()
    assert x.grad is None
    make(x).sum().backward()
    assert x.grad is not None


def test_writing_into_the_array_of_a_leaf_is_noticed_between_two_reads_and_by_the_uses_before_alone():
    x = leaf([1.0, 2.0])
    before = x * x
    x.data[0] = 5
    assert x.data.tolist() == [5, 2]
    after = x * x
    x.data.sum()
    after.sum().backward()
    assert x.grad.tolist() == [10, 4]
    with pytest.raises(AutoDiffException, match="modified in place"):
        before.sum().backward()


def test_writing_into_the_array_of_a_parameter_on_the_tape_is_noticed():
    w = parameter(Param((2,), lambda rng, shape: np.array([1.0, 2.0]), np.float64))
    y = (w * w).sum()
    w.data[0] = 5
    with pytest.raises(AutoDiffException, match="modified in place"):
        y.backward()


def test_reading_the_array_of_a_leaf_between_the_passes_is_fine():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    assert x.data.sum() == 3
    y.backward()
    assert x.grad.tolist() == [2, 4]


def test_steps_on_leaves_between_passes_are_fine():
    x = number(4)
    for _ in range(3):
        (x * x).backward()
        x.data = x.data - 0.25 * x.grad
        x.zero_grad()
    assert x.data == 0.5


def test_a_variable_is_not_written_into_an_array():
    x = leaf([1.0, 2.0])
    total = np.zeros(2)
    with pytest.raises(AutoDiffException, match=r"add: writing a Variable .*array = array \+ Variable"):
        total += x
    with pytest.raises(AutoDiffException, match="multiply: writing"):
        np.multiply(x, 2, out=total)
    assert total.tolist() == [0, 0]
    with no_grad():
        total += x
    total += x.detach()
    assert total.tolist() == [2, 4]
    with pytest.raises(AutoDiffException, match="add: writing into this Variable is not supported"):
        np.add(1, 2, out=x)


def test_a_variable_that_is_written_into_becomes_what_was_written():
    x = leaf([1.0, 2.0])
    y = 3 * x
    assert np.add(y, x, out=y) is y
    assert y.data.tolist() == [4, 8]
    (y * y).sum().backward()
    assert x.grad.tolist() == [32, 64]
    with pytest.raises(AutoDiffException, match=r"multiply: wanted out= of shape \(\) and float64, got \(2,\)"):
        np.multiply(2.0, 3.0, out=x.detach())


def test_an_operation_that_needs_what_was_written_over_says_so():
    x = leaf([1.0, 2.0])
    y = 3 * x
    z = y * y
    np.add(y, 1, out=y)
    with pytest.raises(AutoDiffException, match="modified in place"):
        z.sum().backward()


def test_augmented_assignment_makes_a_new_variable():
    x = leaf([1.0, 2.0])
    y = x
    y += 1
    y *= x
    assert x.data.tolist() == [1, 2] and x.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [3, 5]


# What has no gradient -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (np.linalg.eig, "no gradient is known for eig"),
        (np.add.reduce, "no gradient is known for reduce"),
        (lambda x: x * 1j, r"multiply gives complex numbers, but .* real: calculate with ComplexPair\(x, 0 \* x\)"),
        (lambda x: np.add(x, 1, where=np.eye(2, dtype=bool)), "the gradient of add is not known with where="),
        (lambda x: np.sum(x, where=np.eye(2, dtype=bool)), "the gradient of sum is not known with where="),
        (lambda x: np.sum(x, None, None, None, False, 3.0), "the gradient of sum is not known with initial="),
        (lambda x: np.reshape(x, 4, order="F"), "the gradient of reshape is not known with order='F'"),
        (lambda x: np.take(x, [5], mode="wrap"), "the gradient of take is not known with mode='wrap'"),
        (lambda x: np.pad(x, 1, mode="edge"), "the gradient of pad is not known with mode='edge'"),
    ],
)
@pytest.mark.filterwarnings("ignore:'where' used without 'out'")
def test_what_has_no_gradient_says_so_when_it_is_called(make, words):
    x = leaf([[2.0, 1.0], [1.0, 2.0]])
    with pytest.raises(AutoDiffException, match=words):
        make(x)
    make(x.detach())


def test_variables_may_be_given_by_name():
    x, low = leaf([1.0, 2.0, 3.0]), leaf(1.5)
    np.clip(a=x, a_min=low, a_max=2.5).sum().backward()
    assert x.grad.tolist() == [0, 1, 0] and low.grad == 1
    x.zero_grad()
    np.concatenate(arrays=[x, x]).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    with no_grad():
        assert np.sum(a=x).data == 6


# Memory and threads ---------------------------------------------------------------------------------------------------


def test_a_freed_graph_lets_its_values_go():
    x = leaf(np.ones(10))
    middle = x * 2
    watched = weakref.ref(middle)
    out = (middle * middle).sum()
    del middle
    out.backward()
    gc.collect()
    assert watched() is None and out.grad_fn is not None


def test_a_dropped_graph_needs_no_collector():
    x = leaf(np.ones(10))
    gc.collect()
    gc.disable()
    try:
        node = weakref.ref((np.exp(x) * 2).grad_fn)
        assert node() is None
    finally:
        gc.enable()


def test_two_threads_record_and_go_back_at_once():
    shared = leaf(np.zeros(3))
    found, start = {}, threading.Barrier(2)

    def work(key):
        start.wait()
        x = number(key)
        y = x
        for _ in range(300):
            y = y * 1.001 + x * 0
            (shared * 1.0).sum().backward()
        with no_grad():
            silent = y * 2
        (g,) = grad(y, x)
        found[key] = (float(g), silent.requires_grad, is_grad_enabled())

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expected = number(1)
    y = expected
    for _ in range(300):
        y = y * 1.001 + expected * 0
    wanted = float(grad(y, expected)[0])
    assert found == {1: (wanted, False, True), 2: (wanted, False, True)}
    assert shared.grad.tolist() == [600, 600, 600]


def test_an_array_takes_no_variable_whose_gradient_would_be_lost():
    v, w = Variable(np.array(3.0), requires_grad=True), Variable(np.ones(1), requires_grad=True)
    a = np.zeros(2)
    losing = {
        "an item": lambda: a.__setitem__(0, v),
        "an item of one place": lambda: a.__setitem__(0, w),
        "an item of what was made": lambda: a.__setitem__((0,), v * v),
        "a slice": lambda: a.__setitem__(slice(None), v),
        "fill": lambda: a.fill(v),
        "fromiter": lambda: np.fromiter([v, v], float),
        "array": lambda: np.array([v, v]),
        "full": lambda: np.full(2, v),
        "initial": lambda: a.sum(initial=v),
        "math": lambda: math.sin(v),
        "float": lambda: float(v * 2),
        "complex": lambda: complex(v),
        "put": lambda: np.put(a, 0, v),
        "in place": lambda: a.__iadd__(v),
    }
    for name, lose in losing.items():
        with pytest.raises((TypeError, ValueError, AutoDiffException)) as error:
            lose()
        said = f"{error.value} {error.value.__cause__}"
        assert "requires a gradient" in said and ("data" in said or "detach" in said), name
        assert not a.any(), name
    a[0], a[1] = v.item(), v.data
    assert a.tolist() == [3, 3] and float(v.detach()) == 3 and f"{v:.1f}" == "3.0"
    with no_grad():
        b = v * 2
    a[0] = b
    assert a[0] == 6


def test_what_an_operation_made_can_be_read_but_not_written_to():
    x = leaf([1.0, 2.0])
    y = x * 3
    for held in (y.data, y.detach().data):
        with pytest.raises(ValueError, match="read-only"):
            held[0] = 5
    (y * y).sum().backward()
    assert x.grad.tolist() == [18, 36]
    x.data[0] = 5
    assert (x * 3).data.tolist() == [15, 6]
