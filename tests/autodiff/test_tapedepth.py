"""Depth on the tape costs nothing but its length: 20,000 operations under a recursion limit of 200, in linear time."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from puregraph.autodiff import Function, Variable, grad

HEAD = """
    import copy, gc, pickle, sys
    import numpy as np
    from puregraph.autodiff import Function, Variable, backward, grad
    from puregraph.modules import Identity
    sys.setrecursionlimit(200)
    N = 20_000  # frames of C of so deep a recursion would be more than a stack holds, too
    x = Variable(1.0, requires_grad=True)
"""


def runLimited(body):
    """Run a script with the recursion limit at 200; its output."""
    script = textwrap.dedent(HEAD) + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_chain_of_20000_operators():
    out = runLimited("""
        y = x
        for _ in range(N):
            y = y + 1
        assert y.data == N + 1
        repr(y), str(y.grad_fn), repr(y.grad_fn.next_functions)
        twin = copy.deepcopy(y)
        again = pickle.loads(pickle.dumps(y))
        assert twin.data == again.data == y.data and twin.is_leaf and pickle.loads(pickle.dumps(x)).requires_grad
        y.backward(retain_graph=True)
        assert x.grad == 1
        assert grad(y, x) == (1,)
        del y
        gc.collect()
        print("done")
    """)
    assert out == "done\n"


def test_what_was_never_run_backward_is_freed_as_well():
    out = runLimited("""
        for make in (lambda y: y * 1.0, np.tanh, lambda y: Identity()(y), lambda y: np.concatenate([y.reshape(1), [1.0]])[0]):
            y = x
            for _ in range(N // 4):
                y = make(y)
            del y
            gc.collect()
        print("done")
    """)
    assert out == "done\n"


def test_a_chain_of_functions_and_a_ladder():
    out = runLimited("""
        class Step(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.data + 1

            @staticmethod
            def backward(ctx, g):
                return g

        y = x
        for _ in range(N // 2):
            y = Step.apply(y)
        y.backward()
        assert x.grad == 1
        y = x
        for _ in range(N // 2):
            y = y * 0.5 + y * 0.5
        (g,) = grad(y, x)
        assert g == 1
        print("done")
    """)
    assert out == "done\n"


def test_a_second_derivative_over_10000_operations():
    out = runLimited("""
        y = x
        for _ in range(5_000):
            y = y * x
        (g,) = grad(y, x, create_graph=True)
        (h,) = grad(g, x)
        assert (g.data, h) == (5_001, 5_001 * 5_000)
        del y, g
        gc.collect()
        print("done")
    """)
    assert out == "done\n"


def test_20000_readers_of_one_value():
    out = runLimited("""
        parts = [x * 1.0 for _ in range(N)]
        backward(parts, [1.0] * N)
        assert x.grad == N
        parts = np.stack([x] * 1000).sum()
        assert grad(parts, x) == (1000,)
        print("done")
    """)
    assert out == "done\n"


def calls(run):
    """How many functions a run enters, Python's and C's."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


class Twice(Function):
    """2 x."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


CHAINS = {
    "operators": lambda y, x: y * 0.5 + x,
    "functions of numpy": lambda y, x: np.tanh(y),
    "Functions": lambda y, x: Twice.apply(y),
    "indexing": lambda y, x: y[None][0],
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_work_grows_with_the_length_only(name):
    def run(length, create=False):
        x = Variable(0.5, requires_grad=True)
        y = x
        for _ in range(length):
            y = CHAINS[name](y, x)
        grad(y, x, create_graph=create)

    for create in (False, True):
        run(10, create)
        short, long = calls(lambda: run(200, create)), calls(lambda: run(400, create))  # noqa: B023
        assert long <= 2.05 * short


def test_only_what_leads_to_the_inputs_runs():
    x, others = Variable(1.0, requires_grad=True), [Variable(1.0, requires_grad=True) for _ in range(50)]
    ran = []

    class Watched(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            ran.append(g)
            return g

    total = x * 1
    for v in others:
        total = total + Watched.apply(v)
    assert grad(total, x) == (1,) and not ran
