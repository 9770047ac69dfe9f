"""numpy's Fourier transforms on Variables and in forward mode, next to numpy and torch."""

import numpy as np
import pytest
from directions import dataOf, verify

from puregraph.autodiff import AutoDiffException, ComplexPair, Variable, grad, jvp
from puregraph.core.errors import ShapeError
from puregraph.modules import DFT

RNG = np.random.default_rng(4)
NORMS = (None, "backward", "ortho", "forward")
LENGTHS = (1, 2, 5, 12, 17, 30)
ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = [
    (name, options)
    for name in ("fft", "ifft", "rfft", "irfft")
    for options in (
        ("2", {}),
        ("2", {"s": (5, 4), "axes": (0, 1)}),
        ("n", {}),
        ("n", {"s": (2, 7), "axes": (2, 0), "norm": "ortho"}),
        ("n", {"axes": (1,), "norm": "forward"}),
        ("n", {"s": (-1, 3), "axes": (0, 2)}),
    )
]


def readsComplex(name):
    """Whether a transform is of complex values."""
    return not name.startswith(("rfft", "ihfft"))


def parts(z):
    """Real and imaginary part of a result, as one array."""
    isPair = isinstance(z, ComplexPair)
    return np.stack([z.real, z.imag]) if isPair else z if z.dtype.kind == "f" else np.stack([z.real, z.imag])


def onParts(name, **options):
    """A transform as a function of the parts of its argument."""
    function = getattr(np.fft, name)

    def call(a, b):
        isTraced = not isinstance(a, np.ndarray)
        z = (ComplexPair(a, b) if isTraced else a + 1j * b) if readsComplex(name) else a * b
        return parts(function(z, **options))

    return call


def checkWithTorch(name, x, options, theirs):
    """Values and gradients of a real and a complex argument, next to torch."""
    torch = pytest.importorskip("torch")
    f = getattr(torch.fft, name)
    for z in [x] + ([x + 1j * x[::-1] ** 2] if readsComplex(name) else []):
        t = torch.tensor(z, requires_grad=True)
        wanted = f(t, **theirs)
        re, im = (Variable(np.ascontiguousarray(p), requires_grad=True) for p in (z.real, z.imag))
        y = getattr(np.fft, name)(ComplexPair(re, im) if z.dtype.kind == "c" else re, **options)
        outs = [y.real, y.imag] if isinstance(y, ComplexPair) else [y]
        truth = [wanted.real, wanted.imag] if wanted.is_complex() else [wanted]
        for a, b in zip(outs, truth, strict=True):
            np.testing.assert_allclose(a.data, b.numpy(force=True), 1e-10, 1e-10)
        seeds = [RNG.normal(size=a.shape) for a in outs]
        (dt,) = torch.autograd.grad(truth, t, [torch.tensor(s) for s in seeds], materialize_grads=True)
        slopes = grad(outs, [re, im], seeds, allow_unused=True)
        for slope, d in zip(slopes, [dt.real, dt.imag] if z.dtype.kind == "c" else [dt]):
            np.testing.assert_allclose(slope, d.numpy(force=True), 1e-10, 1e-10)


@pytest.mark.peers
@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("norm", [NORMS[0], *(pytest.param(norm, marks=pytest.mark.slow) for norm in NORMS[1:])])
def test_transforms_along_one_axis_equal_those_of_torch(name, norm):
    for length in LENGTHS:
        for n in (None, length, length + 3, max(1, length - 2)):
            if n is None and length == 1 and name in ("irfft", "hfft"):
                continue  # 2 (1 - 1) elements, which numpy refuses as well
            checkWithTorch(name, RNG.normal(size=(3, length)), {"n": n, "norm": norm}, {"n": n, "norm": norm})
    checkWithTorch(name, RNG.normal(size=(4, 5, 2)), {"axis": 1}, {"dim": 1})


@pytest.mark.peers
@pytest.mark.parametrize(("name", "case"), SEVERAL)
def test_transforms_along_several_axes_equal_those_of_torch(name, case):
    suffix, options = case
    theirs = {"dim" if key == "axes" else key: value for key, value in options.items()}
    checkWithTorch(name + suffix, RNG.normal(size=(4, 3, 5)), options, theirs)


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("n", [None, 4, 7])
def test_both_modes_and_second_derivatives(name, n):
    xs = RNG.normal(size=(2, 2, 5))
    f = onParts(name, n=n)
    np.testing.assert_allclose(dataOf(f(*[Variable(x, requires_grad=True) for x in xs])), f(*xs), 1e-12, 1e-12)
    verify(RNG, lambda a, b: f(a * a, b) ** 2, *xs, near=2e-5)


@pytest.mark.parametrize(("name", "case"), SEVERAL)
def test_both_modes_and_second_derivatives_along_several_axes(name, case):
    suffix, options = case
    f = onParts(name + suffix, **options)
    verify(RNG, lambda a, b: f(a * a, b) ** 2, *RNG.normal(size=(2, 4, 3, 5)), near=2e-5)


@pytest.mark.parametrize("name", ONE)
def test_an_empty_batch_has_an_empty_gradient(name):
    v = Variable(np.zeros((0, 5)), requires_grad=True)
    y = getattr(np.fft, name)(v)
    wanted = getattr(np.fft, name)(v.data)
    part = y.real if isinstance(y, ComplexPair) else y
    assert part.shape == wanted.shape and grad(part, v, np.zeros(part.shape))[0].shape == (0, 5)


C = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
RULES = {
    "abs": lambda z: abs(z),
    "angle": lambda z: np.angle(z),
    "conj": lambda z: z.conj() * z,
    "exp": lambda z: np.exp(z),
    "product": lambda z: z * C + C * z,
    "with reals": lambda z: 2 * z + z / 3 - z.real * z + z * z.imag,
    "sum": lambda z: 1j + z - C,
    "quotient": lambda z: C / z + z / C + 1 / z,
    "power": lambda z: z**5 + np.square(z) - z**1,
    "matrix product": lambda z: z @ C.T @ z,
    "views": lambda z: z[1:, ::2].reshape(2, 2).T,
    "means": lambda z: z.mean(axis=0) * z.sum(),
    "joined": lambda z: np.concatenate([z, C, z.real]),
    "shifted": lambda z: np.fft.ifftshift(np.fft.fft(np.fft.fftshift(z), axis=0)),
    "filtered": lambda z: np.fft.ifft(np.fft.fft(z) * C),
}


@pytest.mark.parametrize("name", RULES)
def test_arithmetic_of_pairs_is_that_of_complex_numbers(name):
    def f(a, b):
        return parts(RULES[name](a + 1j * b if isinstance(a, np.ndarray) else ComplexPair(a, b)))

    xs = RNG.normal(size=(2, 3, 4)) + 0.3
    np.testing.assert_allclose(dataOf(f(*[Variable(x, requires_grad=True) for x in xs])), f(*xs), 1e-12, 1e-12)
    verify(RNG, f, *xs, near=2e-5)


def test_the_magnitude_has_a_gradient_of_zero_at_zero():
    v = Variable(np.zeros((2, 3)), requires_grad=True)
    np.testing.assert_array_equal(grad(np.abs(np.fft.fft(v)).sum(), v)[0], np.zeros((2, 3)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_precision_is_that_of_numpy(dtype):
    v = Variable(np.arange(6, dtype=dtype), requires_grad=True)
    y = np.fft.rfft(v)
    assert y.dtype == np.fft.rfft(v.data).dtype and y.real.dtype == np.float32
    assert grad(abs(y).sum(), v)[0].dtype == dtype


def test_what_pairs_do_not_take_is_refused_with_what_to_do():
    z = np.fft.fft(Variable(np.ones(4), requires_grad=True))
    for call in (np.sort, np.fft.rfft, np.log, lambda z: np.multiply(z, z, out=z)):
        with pytest.raises(AutoDiffException, match=r"of complex numbers .* \.real and \.imag"):
            call(z)
    for exponent in (0.5, -1, 0):
        with pytest.raises(AutoDiffException, match="integer exponent of at least 1"):
            z**exponent
    with pytest.raises(AutoDiffException, match="complex dtype"):
        z.astype(np.float32)


def test_wrong_options_are_refused():
    v = Variable(np.ones(4), requires_grad=True)
    with pytest.raises(ShapeError, match="at least one element"):
        np.fft.fft(v, 0)
    with pytest.raises(ShapeError, match="ortho"):
        np.fft.fft(v, norm="both")
    with pytest.raises(ShapeError, match="at least one element"):
        np.fft.irfft(v[:1])


def test_a_gradient_through_a_spectrum_in_forward_mode():
    x, t = RNG.normal(size=(2, 9))
    change = jvp(lambda x: np.fft.irfft(np.fft.rfft(x) * 1j, 9), x, t)[1]
    np.testing.assert_allclose(change, np.fft.irfft(np.fft.rfft(t) * 1j, 9), 1e-12, 1e-12)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_module_has_derivatives_in_graphs_and_on_the_tape(length):
    for module, shape in (
        (DFT(-2), (3, length, 2)),
        (DFT(0, length + 3, oneSided=True), (length, 2, 1)),
        (DFT(1, max(1, length - 2), inverse=True), (2, length, 2)),
        (DFT(-2, length + 1, inverse=True, oneSided=True), (2, length, 2)),
    ):
        verify(RNG, lambda x, module=module: module(x) ** 2, RNG.normal(size=shape), near=2e-5)


@pytest.mark.parametrize(
    "function", [lambda x: x * 1j, lambda x: 1j + x, lambda x: np.exp(x * 1j), lambda x: x @ [1j, 2]]
)
def test_complex_numbers_of_a_real_value_are_refused_with_what_to_do(function):
    x = np.array([1.0, 2.0])
    for calculate in (lambda: function(Variable(x, requires_grad=True)), lambda: jvp(function, x, x)):
        with pytest.raises(
            AutoDiffException, match=r"gives complex numbers, .* calculate with ComplexPair\(x, 0 \* x\)"
        ):
            calculate()
    value, tangent = jvp(lambda x: abs(np.exp(ComplexPair(x, 0 * x) * 1j) + 1), x, np.ones(2))
    assert np.allclose(value, 2 * np.cos(x / 2)) and np.allclose(tangent, -np.sin(x / 2))
