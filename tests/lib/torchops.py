"""Operations of PyTorch's op_db as functions of numpy on Variables, and why the others have none.

OPS      functions of a sample's arguments, in which tensors are Variables or arrays
LeftError     raised by one for a sample that it does not take, with the reason
LEFT     (reason, pattern of names): the first that fits says why an operation is not in OPS
"""

import re

import numpy as np
import torch

from puregraph.autodiff import ComplexPair, Variable
from puregraph.graph.pointwise import Pointwise

L = np.linalg


class LeftError(Exception):
    """A sample that is left out, with the reason."""


def ours(x):
    """A tensor as a Variable, or an array if it has no gradient; other arguments as they are, in lists too."""
    if isinstance(x, torch.Tensor):
        array = x.detach().resolve_conj().numpy().copy()
        return Variable(array, requires_grad=True) if x.requires_grad else array
    if isinstance(x, (list, tuple)):
        return type(x)([ours(y) for y in x]) if type(x) in (list, tuple) else tuple(map(ours, x))
    if isinstance(x, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator)):
        raise LeftError("a dtype, device or layout as an argument")
    return x


NAMES = {"dim": "axis", "dims": "axis", "keepdim": "keepdims"}


def plain(function):
    """A function of numpy with the same arguments, by numpy's names for axes."""
    return lambda *args, **options: function(*args, **{NAMES.get(k, k): v for k, v in options.items()})


def axes(dim):
    """An axis or axes as numpy has them: none are all."""
    return None if dim is None or dim == [] or dim == () else tuple(dim) if isinstance(dim, (list, tuple)) else dim


def reduced(function):
    """A reduction along axes."""

    def call(x, dim=None, keepdim=False, dtype=None):
        if x.ndim == 0:
            raise LeftError("an axis of a number")
        return function(x, axis=axes(dim), keepdims=keepdim)

    return call


def spread(function):
    """A variance: torch divides by n - 1 unless it is said otherwise."""

    def call(x, dim=None, unbiased=True, keepdim=False, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        correction = (1 if unbiased else 0) if correction is None else correction
        if x.ndim == 0:
            raise LeftError("an axis of a number")
        count = np.prod([x.shape[i] for i in np.atleast_1d(range(x.ndim) if axes(dim) is None else axes(dim))])
        if count <= correction:
            raise LeftError("a variance of too few values")
        return function(x, axis=axes(dim), keepdims=keepdim, ddof=correction)

    return call


def scaled(function):
    """A sum of two, the second one times alpha."""
    return lambda a, b, alpha=1: function(a, b if alpha == 1 else b * alpha)


def along(function):
    """A function along one axis, by position or name."""

    def call(x, dim, **options):
        if x.ndim == 0:
            raise LeftError("an axis of a number")
        return function(x, axis=dim)

    return call


def ordered(function):
    """The values of a function that also gives indices."""

    def call(x, dim=-1, descending=False, stable=None):
        if x.ndim == 0:
            raise LeftError("an axis of a number")
        if descending:
            return -function(-x, axis=dim)
        return function(x, axis=dim)

    return call


def extreme(function, pair):
    """The largest or smallest of all, along an axis, or of two."""

    def call(x, *args, keepdim=False, dim=None):
        if args and not isinstance(args[0], (int, bool)):
            return pair(x, args[0])
        dim = args[0] if args else dim
        if x.ndim == 0:
            raise LeftError("an axis of a number")
        return function(x, axis=dim, keepdims=args[1] if len(args) > 1 else keepdim)

    return call


def product(beta, x, alpha, y):
    """beta x + alpha y; without x where beta is 0."""
    return (beta * x if beta else 0) + alpha * y


def divided(a, b, rounding_mode=None):
    """a / b, rounded down or towards 0."""
    return {None: np.true_divide, "floor": np.floor_divide, "trunc": lambda a, b: np.trunc(a / b)}[rounding_mode](a, b)


def fullTensordot(a, b, dims=2):
    """The tensor product, with axes as lists."""
    if not isinstance(dims, int) and any(a.shape[i] != b.shape[j] for i, j in zip(*dims)):
        raise LeftError("a sum over axes of other lengths")
    return np.tensordot(a, b, dims)


def einsum(operands, equation):
    """A sum of products, whose result has the axes that ... stands for."""
    if "..." in equation and "..." not in equation.rpartition("->")[2]:
        raise LeftError("a sum over the axes of ...")
    return np.einsum(equation, *operands)


def quantile(function):
    """A quantile of all, or along an axis, of which new axes come first."""

    def call(x, q, dim=None, keepdim=False, interpolation="linear"):
        if isinstance(q, Variable):
            raise LeftError("a gradient of the share of a quantile")
        if x.ndim == 0 or 0 in x.shape:
            raise LeftError("an axis of a number")
        return function(x, np.asarray(q), axis=dim, keepdims=keepdim, method=interpolation)

    return call


def narrow(x, dim, start, length):
    """Some elements along an axis."""
    start = int(start) % max(1, x.shape[dim]) if start < 0 else int(start)
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, start + length),)]


def select(x, dim, index):
    """One index of an axis."""
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def sized(x, *shape):
    """A reshape, to sizes or a list of them."""
    return np.reshape(x, shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape)


def cut(x, sizes, dim=0):
    """Parts of a size, or of these sizes."""
    n = x.shape[dim]
    ends = np.cumsum(sizes)[:-1] if isinstance(sizes, (list, tuple)) else np.arange(sizes, n, sizes) if sizes else []
    return np.split(x, list(ends), axis=dim)


def chunks(x, count, dim=0):
    """Parts of one size, as many as asked or fewer."""
    return cut(x, -(-x.shape[dim] // count) or 1, dim)


def parts(x, sections, dim=0):
    """Parts by their number or their ends."""
    return np.array_split(
        x,
        sections if isinstance(sections, (int, list)) else int(sections) if np.ndim(sections) == 0 else list(sections),
        axis=dim,
    )


def normed(x, ord=None, dim=None, keepdim=False):
    """A norm as numpy has it."""
    return L.norm(x, ord, axis=axes(dim), keepdims=keepdim)


def softmax(x, dim, **options):
    """exp(x) / sum exp(x)."""
    if x.ndim == 0 or 0 in x.shape:
        raise LeftError("an axis of a number, or of nothing")
    e = np.exp(x - np.max(x, axis=dim, keepdims=True))
    return e / np.sum(e, axis=dim, keepdims=True)


def logSumExp(x, dim, keepdim=False):
    """ln sum exp(x)."""
    if x.ndim == 0:
        raise LeftError("an axis of a number")
    if 0 in x.shape:
        raise LeftError("the largest of nothing")
    top = np.max(x, axis=axes(dim), keepdims=True)
    y = np.log(np.sum(np.exp(x - top), axis=axes(dim), keepdims=True)) + top
    return y if keepdim else np.squeeze(y, axis=axes(dim))


def repeated(x, *times):
    """Copies along each axis."""
    times = times[0] if len(times) == 1 and isinstance(times[0], (list, tuple)) else times
    return np.tile(x, times)


def extended(x, *shape):
    """A broadcast in which -1 keeps a size."""
    shape = list(shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape)
    lead = len(shape) - x.ndim
    return np.broadcast_to(x, tuple(x.shape[i - lead] if n == -1 else n for i, n in enumerate(shape)))


def squeezed(x, dim=None):
    """Without axes of size 1, of those that are named."""
    named = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return np.squeeze(x, axis=tuple(i for i in named if x.ndim and x.shape[i] == 1))


def joined(x, dim0=0, dim1=-1):
    """Axes as one."""
    if x.ndim == 0:
        return np.reshape(x, 1)
    a, b = dim0 % x.ndim, dim1 % x.ndim
    return np.reshape(x, (*x.shape[:a], int(np.prod(x.shape[a : b + 1])), *x.shape[b + 1 :]))


def vander(x, N=None):
    """The powers of a vector."""
    if x.ndim != 1:
        raise LeftError("powers of several vectors at once")
    return np.vander(x, N, increasing=True)


def vectorNorm(x, ord=2, dim=None, keepdim=False):
    """A norm of vectors; numpy's names vectors by axes."""
    if x.ndim == 0 or dim == ():
        raise LeftError("an axis of a number")
    return L.vector_norm(x, ord=ord, axis=axes(dim), keepdims=keepdim)


def solved(a, b, left=True):
    """The solution of a x = b, or of x a = b."""
    isVector = b.ndim == 1 or b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]
    if not left:
        return np.swapaxes(solved(np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2)), -1, -2)
    return np.squeeze(L.solve(a, np.expand_dims(b, -1)), -1) if isVector else L.solve(a, b)


def gathered(x, dim, index):
    """Elements at an index for each along an axis."""
    if x.ndim == 0 or index.ndim != x.ndim:
        raise LeftError("an axis of a number")
    crop = tuple(slice(None) if i == dim % x.ndim else slice(n) for i, n in enumerate(index.shape))
    return np.take_along_axis(x[crop], index, dim)


def batched(function):
    """A function of beta x + alpha times a product of two."""
    return lambda x, a, b, beta=1, alpha=1: product(beta, x, alpha, function(a, b))


def filled(x, mask, value):
    """x, the value where the mask is true."""
    return np.where(mask, value, x)


def taken(x, dim, index):
    """The slices at an index along an axis."""
    if x.ndim == 0:
        raise LeftError("an axis of a number")
    return np.take(x, np.atleast_1d(index), axis=dim)


def diagonals(x, offset=0, dim1=0, dim2=1):
    """The diagonal of two axes."""
    return np.diagonal(x, offset, dim1, dim2)


def fourier(name):
    """A Fourier transform along one axis; the real and imaginary part of a complex result."""

    def call(x, n=None, dim=-1, norm=None):
        y = getattr(np.fft, name)(x, n, dim, norm)
        return [y.real, y.imag] if isinstance(y, ComplexPair) else y

    return call


def spectrum(name):
    """A Fourier transform along several axes; the real and imaginary part of a complex result."""

    def call(x, s=None, dim=None, norm=None):
        axes = {} if dim is None else {"axes": dim if isinstance(dim, (list, tuple)) else (dim,)}
        y = getattr(np.fft, name)(x, s, norm=norm, **axes)
        return [y.real, y.imag] if isinstance(y, ComplexPair) else y

    return call


def moments(function):
    """A variance or deviation, and the mean."""

    def call(x, dim=None, unbiased=True, keepdim=False, correction=None):
        value = spread(function)(x, dim, unbiased, keepdim, correction)
        return [value, np.mean(x, axis=None if isinstance(dim, bool) else axes(dim), keepdims=keepdim)]

    return call


def extremes(x, dim=None, keepdim=False):
    """The smallest and the largest."""
    if x.ndim == 0:
        raise LeftError("an axis of a number")
    return [f(x, axis=dim, keepdims=keepdim) for f in (np.min, np.max)]


def sumTo(x, *shape):
    """The sum over axes that a broadcast of `shape` to the shape of x has repeated."""
    shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
    lead = x.ndim - len(shape)
    narrow = tuple(i + lead for i, n in enumerate(shape) if n == 1 and x.shape[i + lead] != 1)
    return np.reshape(np.sum(x, axis=(*range(lead), *narrow)), shape)


def unflattened(x, dim, sizes):
    """An axis as several."""
    dim %= x.ndim
    return np.reshape(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


def sliced(x, dim=0, start=None, end=None, step=1):
    """Some elements along an axis, by steps."""
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def smallest(x, k, dim=-1, keepdim=False):
    """The k-th smallest along an axis."""
    if x.ndim == 0:
        raise LeftError("an axis of a number")
    y = np.take(np.sort(x, axis=dim), [k - 1], axis=dim)
    return y if keepdim else np.squeeze(y, axis=dim)


def largest(x, k, dim=-1, largest=True, sorted=True):
    """The k largest or smallest along an axis."""
    if x.ndim == 0:
        raise LeftError("an axis of a number")
    y = -np.sort(-x, axis=dim) if largest else np.sort(x, axis=dim)
    return sliced(y, dim, 0, k)


SPECTRA = ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
FOURIER = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
FROM = {  # the same name and the same arguments
    n: vars(np)[n]
    for n in "abs acos acosh asin asinh atan atan2 atanh ceil floor trunc cos cosh sin sinh tan tanh sinc exp exp2 expm1"
    " log log10 log2 log1p logaddexp logaddexp2 sqrt square reciprocal sign positive copysign fmax fmin maximum minimum"
    " fmod remainder hypot deg2rad rad2deg true_divide dot vdot inner outer kron trace flip fliplr flipud rot90 ravel"
    " hstack vstack dstack column_stack tril triu corrcoef swapaxes real conj nan_to_num"
    "".split()
    if n in vars(np)
}
OPS = {
    **{n: plain(f) for n, f in FROM.items()},
    **{n: reduced(f) for n, f in {"sum": np.sum, "mean": np.mean, "nansum": np.nansum, "nanmean": np.nanmean}.items()},
    **{n: reduced(f) for n, f in {"amax": np.max, "amin": np.min}.items()},
    **dict.fromkeys(("var", "var.unbiased"), spread(np.var)),
    **dict.fromkeys(("std", "std.unbiased"), spread(np.std)),
    **{n: along(f) for n, f in {"cumsum": np.cumsum, "cumprod": np.cumprod}.items()},
    **dict.fromkeys(("max.reduction_with_dim", "max.reduction_no_dim", "max.binary"), extreme(np.max, np.maximum)),
    **dict.fromkeys(("min.reduction_with_dim", "min.reduction_no_dim", "min.binary"), extreme(np.min, np.minimum)),
    "prod": lambda x, dim=None, keepdim=False, dtype=None: reduced(np.prod)(x, dim, keepdim),
    "add": scaled(np.add),
    **dict.fromkeys(("sub", "subtract"), scaled(np.subtract)),
    "rsub": lambda a, b, alpha=1: b - a * alpha,
    "mul": np.multiply,
    **dict.fromkeys(("div.no_rounding_mode", "div.trunc_rounding", "div.floor_rounding"), divided),
    "neg": np.negative,
    "frac": lambda x: x - np.trunc(x),
    **dict.fromkeys(("pow", "float_power"), np.power),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sgn": np.sign,
    "lerp": lambda a, b, w: a + w * (b - a),
    "addcmul": lambda x, a, b, value=1: x + value * a * b,
    "addcdiv": lambda x, a, b, value=1: x + value * a / b,
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "__rmatmul__"), np.matmul),
    "__rmatmul__": lambda a, b: np.matmul(b, a),
    "__radd__": lambda a, b: b + a,
    "__rmul__": lambda a, b: b * a,
    "__rsub__": lambda a, b: b - a,
    "__rdiv__": lambda a, b: b / a,
    "__rpow__": lambda a, b: b**a,
    "__rmod__": lambda a, b: np.remainder(b, a),
    **dict.fromkeys(("addmm", "addmm.decomposed", "addmv", "baddbmm"), batched(np.matmul)),
    "addr": batched(np.outer),
    "addbmm": batched(lambda a, b: np.sum(np.matmul(a, b), axis=0)),
    "tensordot": fullTensordot,
    "einsum": einsum,
    "cross": lambda a, b, dim=None: np.cross(a, b, axis=list(a.shape).index(3) if dim is None else dim),
    "linalg.cross": lambda a, b, dim=-1: np.cross(a, b, axis=dim),
    "linalg.vecdot": lambda a, b, dim=-1: np.sum(a * b, axis=dim),
    "cov": lambda x, correction=1, fweights=None, aweights=None: np.cov(x, ddof=correction, fweights=fweights, aweights=aweights),
    **dict.fromkeys(("clamp",), lambda x, min=None, max=None: np.clip(x, min, max)),
    "clamp_max": np.minimum,
    "clamp_min": np.maximum,
    **dict.fromkeys(("round", "round.decimals_0"), lambda x, decimals=0: np.round(x, decimals)),
    "quantile": quantile(np.quantile),
    "nanquantile": quantile(np.nanquantile),
    **dict.fromkeys(("sort", "msort"), ordered(np.sort)),
    "msort": lambda x: np.sort(x, axis=0),
    "diff": lambda x, n=1, dim=-1, prepend=None, append=None: np.diff(x, n, dim, **{k: v for k, v in {"prepend": prepend, "append": append}.items() if v is not None}),
    **dict.fromkeys(("trapz", "trapezoid"), lambda y, x=None, dx=1, dim=-1: np.trapezoid(y, x, dx, dim)),
    "logsumexp": logSumExp,
    **dict.fromkeys(("softmax", "nn.functional.softmin"), softmax),
    "nn.functional.softmin": lambda x, dim: softmax(-x, dim),
    "log_softmax": lambda x, dim: x - logSumExp(x, dim, True),
    "logit": lambda x, eps=None: np.log(np.clip(x, eps, 1 - eps) if eps else x) - np.log(1 - (np.clip(x, eps, 1 - eps) if eps else x)),
    **dict.fromkeys(("clone", "contiguous", "alias_copy", "resolve_conj", "resolve_neg", "conj_physical", "double"), lambda x, **options: np.copy(x)),
    **dict.fromkeys(("reshape", "view", "view_copy"), sized),
    **dict.fromkeys(("reshape_as", "view_as"), lambda x, like: np.reshape(x, like.shape)),
    "flatten": lambda x, start_dim=0, end_dim=-1: joined(x, start_dim, end_dim),
    **dict.fromkeys(("permute", "permute_copy"), lambda x, *axes: np.transpose(x, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)),
    **dict.fromkeys(("transpose", "transpose_copy"), lambda x, a, b: np.swapaxes(x, a, b) if x.ndim else x),
    **dict.fromkeys(("T", "H", "t", "t_copy"), lambda x: np.transpose(x)),
    **dict.fromkeys(("mT", "mH"), lambda x: np.swapaxes(x, -1, -2)),
    "movedim": lambda x, a, b: np.moveaxis(x, a, b),
    "roll": lambda x, shifts, dims=None: np.roll(x, shifts, dims if dims != () else None),
    **dict.fromkeys(("squeeze", "squeeze.multiple", "squeeze_copy"), squeezed),
    **dict.fromkeys(("unsqueeze", "unsqueeze_copy"), lambda x, dim: np.expand_dims(x, dim)),
    **dict.fromkeys(("expand", "expand_copy", "broadcast_to"), extended),
    "expand_as": lambda x, like: np.broadcast_to(x, like.shape),
    "broadcast_tensors": lambda *xs: np.broadcast_arrays(*xs),
    **dict.fromkeys(("repeat", "tile"), repeated),
    "repeat_interleave": lambda x, repeats=None, dim=None, output_size=None: np.repeat(x, repeats, dim),
    "cat": lambda xs, dim=0: np.concatenate([x for x in xs if x.shape != (0,)] or xs, axis=dim),
    "stack": lambda xs, dim=0: np.stack(xs, axis=dim),
    **dict.fromkeys(("split", "split.list_args", "unsafe_split", "split_with_sizes", "split_with_sizes_copy"), cut),
    **dict.fromkeys(("chunk", "unsafe_chunk"), chunks),
    "tensor_split": parts,
    **{n: vars(np)[n] for n in ("hsplit", "vsplit", "dsplit")},
    **dict.fromkeys(("unbind", "unbind_copy"), lambda x, dim=0: np.unstack(x, axis=dim)),
    **dict.fromkeys(("meshgrid.variadic_tensors", "meshgrid.list_of_tensors"), lambda *xs, indexing="ij": np.meshgrid(*(xs[0] if isinstance(xs[0], list) else xs), indexing=indexing)),
    "diagflat": lambda x, offset=0: np.diagflat(x, offset),
    **{f"atleast_{n}d": lambda *xs, n=n: vars(np)[f"atleast_{n}d"](*(xs[0] if isinstance(xs[0], list) else xs)) for n in (1, 2, 3)},
    "diag": lambda x, k=0: np.diag(x, k),
    **dict.fromkeys(("diagonal", "diagonal_copy"), diagonals),
    "linalg.diagonal": lambda x, offset=0, dim1=-2, dim2=-1: np.diagonal(x, offset, dim1, dim2),
    **dict.fromkeys(("narrow", "narrow_copy"), narrow),
    "select": select,
    "__getitem__": lambda x, index: x[tuple(index) if isinstance(index, list) and not all(isinstance(i, int) for i in index) else index],
    "index_select": taken,
    "gather": gathered,
    "take_along_dim": lambda x, index, dim=None: np.take_along_axis(np.ravel(x), np.ravel(index), 0) if dim is None else np.take_along_axis(x, index, dim),
    "take": lambda x, index: np.take(x, index),
    "masked_fill": filled,
    "masked_select": lambda x, mask: np.broadcast_arrays(x, mask)[0][np.broadcast_to(mask, np.broadcast_shapes(x.shape, mask.shape))],
    "where": lambda a, condition, b: np.where(condition, a, b),
    "dist": lambda a, b, p=2: L.norm(np.ravel(a - b), p),
    "linalg.vector_norm": vectorNorm,
    "linalg.matrix_norm": lambda x, ord="fro", dim=(-2, -1), keepdim=False: L.norm(x, ord, axis=tuple(dim), keepdims=keepdim),
    "linalg.norm": normed,
    **{f"linalg.{n}": getattr(L, n) for n in ("det", "cholesky", "eigvalsh", "inv", "slogdet", "svdvals", "multi_dot", "matrix_power", "cond", "pinv")},
    "cholesky": lambda x, upper=False: np.swapaxes(L.cholesky(x), -1, -2) if upper else L.cholesky(x),
    "pinverse": L.pinv,
    "logdet": lambda x: L.slogdet(x)[1],
    "linalg.solve": solved,
    "linalg.tensorinv": lambda x, ind=2: L.tensorinv(x, ind),
    "linalg.tensorsolve": lambda a, b, dims=None: L.tensorsolve(a, b, dims),
    "linalg.vander": vander,
    **{f"fft.{name}": fourier(name) for name in FOURIER},
    **{f"fft.{name}": spectrum(name) for name in SPECTRA},
    "var_mean": moments(np.var),
    "var_mean.unbiased": moments(np.var),
    "std_mean": moments(np.std),
    "std_mean.unbiased": moments(np.std),
    "aminmax": extremes,
    "sum_to_size": sumTo,
    "unflatten": unflattened,
    "slice": sliced,
    "kthvalue": smallest,
    "topk": largest,
    "ldexp": lambda x, n: x * np.exp2(n),
    "xlogy": lambda x, y: Pointwise(formula="where(x == 0, 0 * y, x * log(y))")(*np.broadcast_arrays(x, y)),
    "cartesian_prod": lambda *xs: np.stack([np.ravel(x) for x in np.meshgrid(*(xs[0] if isinstance(xs[0], (list, tuple)) else xs), indexing="ij")], axis=-1) if len(xs) > 1 else xs[0],
    "cumulative_trapezoid": lambda y, x=None, dx=1, dim=-1: np.cumsum((sliced(y, dim, 1) + sliced(y, dim, 0, -1)) / 2 * (dx if x is None else np.diff(x, axis=dim if x.ndim == y.ndim else -1)), axis=dim),
    "linalg.inv_ex": lambda x, check_errors=False: [L.inv(x)],
    "linalg.cholesky_ex": lambda x, upper=False, check_errors=False: [np.swapaxes(L.cholesky(x), -1, -2) if upper else L.cholesky(x)],
    "linalg.solve_ex": lambda a, b, left=True, check_errors=False: [solved(a, b, left)],
    **dict.fromkeys(("norm", "norm.nuc", "norm.fro", "norm.inf"), lambda x, p="fro", dim=None, keepdim=False, dtype=None: (normed if isinstance(p, str) else vectorNorm)(x, p, dim, keepdim)),
    "fft.fftshift": lambda x, dim=None: np.fft.fftshift(x, dim),
    "fft.ifftshift": lambda x, dim=None: np.fft.ifftshift(x, dim),
    "erf": lambda x: Pointwise(formula="erf(x)")(x),
    "erfc": lambda x: Pointwise(formula="erfc(x)")(x),
}  # fmt: skip
LEFT = [
    ("complex numbers", r"fft\.|stft|istft|complex|polar|cdouble|cfloat|chalf|imag|view_as|angle|linalg\.eig(vals)?$"),
    ("compared as modules, by module_db", r"nn\.functional|native_|_batch_norm|_native|_upsample|grid_sampler|constant_pad"),
    ("masks of torch.masked", r"masked\.|_unsafe_masked"),
    ("special functions without a counterpart in numpy", r"special\.|polygamma|mvlgamma|igamma|i0|digamma|lgamma|erfinv"),
    ("random numbers", r"rand|normal|bernoulli|multinomial|cauchy|exponential|geometric|dropout|uniform|lowrank"),
    ("makes arrays, without an input that moves", r"empty|zeros|ones|full|new_|eye|linspace|logspace|arange|scalar_tensor|signal"),
    ("writes into its input, which rules never do", r"scatter|index_|put|fill|zero_|resize_|as_strided|copy_"),
    ("factorizations and solvers that numpy has not", r"linalg\.|lu|qr|geqrf|ormqr|cholesky_|triangular|svd|householder|matrix_exp"),
    ("dtypes and formats of tensors", r"bfloat16|float|half|bool|byte|char|int|long|short|to$|to_sparse|sparse|alias"),
    ("bits and integers", r"bitwise|gcd|lcm|__r(and|or|xor)|count|nonzero|bincount"),
    ("no gradient", r"eq$|ne$|lt$|le$|gt$|ge$|is|all$|any|arg|logical|hist|sorted|bucket|unique|signbit|equal|nextafter|hash"),
]  # fmt: skip


def leftFor(op):
    """Why an operation is not compared."""
    if not op.supports_autograd:
        return "no gradient there"
    for reason, names in LEFT:
        if re.search(names, op.name):
            return reason
    return "no function of numpy computes it by itself"


def leaves(x):
    """Tensors, Variables and arrays in lists and tuples, in order."""
    if isinstance(x, (list, tuple)):
        return [leaf for y in x for leaf in leaves(y)]
    return [x] if isinstance(x, (torch.Tensor, Variable, np.ndarray, np.generic)) else []
