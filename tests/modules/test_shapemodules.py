"""Modules that move data without computing: exact equality with numpy, adjoint gradients, symbols, refusals."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import compare

from puregraph import Footprint, Graph, Input, Linear
from puregraph.core.dim import Dim
from puregraph.core.errors import ShapeError
from puregraph.core.shape import asShape, bind
from puregraph.modules import Concat, Flatten, Identity, Pad, Reshape, Slice, Split, Transpose


def counting(*shape):
    """Numbers that are all different."""
    return np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)


def back(module, x, grad):
    """The gradient of the input."""
    module(x)
    module.backward(grad)
    return module.grad


def isAdjoint(module, x, rng):
    """Whether <module(x), g> = <x, gradient of g>: what moves data is linear, and its gradient is its transpose."""
    y = module(x)
    g = rng.standard_normal(y.shape)
    gx = back(module, x, g)
    assert gx.shape == x.shape and gx.dtype == x.dtype
    return np.isclose((y * g).sum(), (x * gx).sum(), rtol=1e-12)


# Identity, Flatten, Reshape -----------------------------------------------------------------------------------------


def test_identity_gives_the_same_array():
    x = counting(2, 3)
    assert Identity()(x) is x
    assert Identity().dataShapeFrom(("N", 3)) == ("N", 3)


@pytest.mark.parametrize(
    ("start", "shape", "wanted"),
    [
        (1, (2, 3, 4), (2, 12)),
        (1, (2, 3), (2, 3)),
        (0, (2, 3), (6,)),
        (2, (2, 3, 4, 5), (2, 3, 20)),
        (-2, (2, 3, 4), (2, 12)),
        (1, (0, 3, 4), (0, 12)),
        (1, ("N", 16, 4, 4), ("N", 256)),
        (1, ("N", "C", 4), ("N", "4*C")),
    ],
)
def test_flatten_keeps_what_is_before_its_start(start, shape, wanted):
    shape = asShape(shape)
    assert Flatten(start).dataShapeFrom(shape) == wanted
    if all(type(size) is int for size in shape):
        assert np.array_equal(Flatten(start)(counting(*shape)), counting(*shape).reshape(wanted))


@pytest.mark.parametrize(
    ("given", "shape", "wanted"),
    [
        ((0, 2, -1, 0), (1, 4, 7, 7), (1, 2, 14, 7)),
        ((0, -1), (2, 16, 4, 4), (2, 256)),
        ((-1,), (2, 3), (6,)),
        ((3, 2), (2, 3), (3, 2)),
        ((0, 0), (2, 3), (2, 3)),
        ((), (1, 1), ()),
        ((1, 1), (), (1, 1)),
        ((0, -1), (0, 16, 4), (0, 64)),
        ((0, 0, 3), (1, 0, 0, 3), (1, 0, 3)),
        ((-1, 4), (0, 4), (0, 4)),
        ((0, -1), ("N", 16, 4, 4), ("N", 256)),
        ((-1, 256), ("N", 16, 4, 4), ("N", 256)),
        ((-1, 64), ("N", 16, 4, 4), ("4*N", 64)),
        ((0, 0, -1), ("N", "C", "H", "W"), ("N", "C", "H*W")),
        ((-1, 5), ("N", 5), ("N", 5)),
    ],
)
def test_reshape_infers_and_copies(given, shape, wanted):
    shape = asShape(shape)
    assert Reshape(given).dataShapeFrom(shape) == wanted
    if all(type(size) is int for size in shape):
        assert np.array_equal(Reshape(given)(counting(*shape)), counting(*shape).reshape(wanted))


@pytest.mark.parametrize(
    ("given", "shape", "message"),
    [
        ((3, 2), (2, 4), r"wanted as many elements as \(3, 2\) has, got \(2, 4\)"),
        ((-1, 4), (2, 3), r"wanted a multiple of 4 elements, got \(2, 3\); -1 in \(-1, 4\)"),
        ((-1, 512), ("N", 16, 16), r"wanted a multiple of 512 elements, got \(N, 16, 16\)"),
        ((32, 4), ("N", 4), r"wanted as many elements as \(32, 4\) has, got \(N, 4\)"),
        ((0, 0, -1), (2,), r"wanted at least 2 axes, got \(2,\); 0 copies an axis"),
    ],
)
def test_reshape_refuses_what_does_not_fit(given, shape, message):
    with pytest.raises(ShapeError, match=message):
        Reshape(given).dataShapeFrom(asShape(shape))


@pytest.mark.parametrize("given", [(-1, -1), (-2, 3), 6, (2.0, 3), ("N", 3), (True, 3)])
def test_reshape_refuses_a_shape_that_is_none(given):
    with pytest.raises(
        ShapeError, match="wanted shape as a tuple of sizes, with 0 to copy an axis, and -1 at most once"
    ):
        Reshape(given)


def test_what_has_no_axis_to_start_at_is_refused():
    with pytest.raises(ShapeError, match="wanted start from -1 to 0, got 1"):
        Flatten().dataShapeFrom((5,))


# Transpose ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [None, *permutations(range(3)), (-1, 0, 1), (2, 4, 1, 3, 0)], ids=str)
def test_transpose_is_that_of_numpy_and_its_gradient_turns_back(axes):
    x = counting(10, 3, 5, 4, 2) if axes is not None and len(axes) == 5 else counting(2, 3, 4)
    module = Transpose(axes)
    y = module(x)
    assert np.array_equal(y, x.transpose(axes)) and module.dataShapeFrom(x.shape) == y.shape
    assert np.array_equal(back(module, x, y), x)
    names = asShape(tuple("ABCDE"[: x.ndim]))
    wanted = tuple(reversed(names)) if axes is None else tuple(names[axis] for axis in axes)
    assert module.dataShapeFrom(names) == wanted


def test_axes_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match=r"wanted 3 axes, got \(2, 3\); the axes are \(0, 2, 1\)"):
        Transpose((0, 2, 1)).dataShapeFrom((2, 3))
    with pytest.raises(ShapeError, match=r"wanted every axis once, got \(0, 0, 1\)"):
        Transpose((0, 0, 1))
    with pytest.raises(ShapeError, match="wanted axes from -2 to 1, got 2"):
        Transpose((0, 2))


# Concat, Split ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_concat_is_that_of_numpy_and_split_undoes_it(axis, rng):
    sizes = (2, 1, 3)
    parts = [rng.standard_normal(tuple(n if k == axis % 3 else 4 for k in range(3))) for n in sizes]
    module, split = Concat(axis), Split(axis, sizes)
    y = module(*parts)
    assert np.array_equal(y, np.concatenate(parts, axis))
    module.backward(y)
    again = split(y)
    for part, grad, piece in zip(parts, module.grad, again, strict=True):
        assert np.array_equal(part, grad) and np.array_equal(part, piece)
    split.backward(again)
    assert np.array_equal(split.grad, y)


def test_split_names_its_outputs_and_makes_equal_parts():
    assert Split(axis=1, sections=(3, 1)).outputNames == ("0", "1")
    assert Split(axis=-1, sections=3).outputNames == ("0", "1", "2")
    assert [y.tolist() for y in Split(axis=1, sections=2)(counting(2, 4))] == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert Split(axis=0, sections=1)(counting(2, 2)).tolist() == [[0, 1], [2, 3]]


def test_an_output_that_nobody_used_has_gradient_zero():
    split = Split(axis=1, sections=(1, 2, 1))
    split(counting(2, 4))
    split.backward([None, np.ones((2, 2)), None])
    assert split.grad.tolist() == [[0, 1, 1, 0]] * 2


def test_concat_and_split_carry_symbols():
    assert Concat(axis=1).dataShapeFrom(*map(asShape, [("N", 2), ("N", "C")])) == ("N", "C + 2")
    assert Concat(axis=0).dataShapeFrom(*map(asShape, [("N", 2), ("N", 2)])) == ("2*N", 2)
    assert Split(axis=1, sections=(1, 2)).dataShapeFrom(("N", 3)) == [("N", 1), ("N", 2)]
    assert Split(axis=0, sections=2).dataShapeFrom(asShape(("2*N", 3))) == [("N", 3), ("N", 3)]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            [(2, 3), (3, 3)],
            r"wanted inputs like the first, \(2, \*\), got \[\(2, 3\), \(3, 3\)\]; .* differ only in axis 1",
        ),
        ([("N", 3), (5, 3)], r"wanted inputs like the first, \(N, \*\)"),
        ([(2, 3), (2, 3, 1)], r"wanted inputs like the first"),
        ([(3,)], "wanted axis from -1 to 0, got 1"),
        ([], "wanted at least one input, got none"),
    ],
)
def test_concat_refuses_what_does_not_fit(shapes, message):
    with pytest.raises(ShapeError, match=message):
        Concat(axis=1).dataShapeFrom(*map(asShape, shapes))


@pytest.mark.parametrize(
    ("sections", "shape", "message"),
    [
        ((1, 2), (2, 4), r"wanted an axis 1 of 3, the sum of the sections \(1, 2\), got 4"),
        ((1, 2), (2, "C"), "of 3, .*, got C"),
        (3, (2, 4), "wanted an axis 1 that is a multiple of 3, got 4"),
        (2, (2, "C"), "a multiple of 2, got C"),
    ],
)
def test_split_refuses_what_does_not_fit(sections, shape, message):
    with pytest.raises(ShapeError, match=message):
        Split(1, sections).dataShapeFrom(asShape(shape))


@pytest.mark.parametrize("sections", [0, (), (1, -1), 1.5, (True,), "2"])
def test_sections_that_are_none_are_refused(sections):
    with pytest.raises(ShapeError, match="wanted sections of at least 0, or one number of equal parts of at least 1"):
        Split(1, sections)


# Slice --------------------------------------------------------------------------------------------------------------

KEYS = [
    np.s_[0],
    np.s_[-1],
    np.s_[:, 1],
    np.s_[1:, ::2],
    np.s_[::-1],
    np.s_[:, ::-2, 1:-1],
    np.s_[..., 0],
    np.s_[0, ..., -1],
    np.s_[None, :, None, 0],
    np.s_[..., None],
    np.s_[-2:, 10:0:-1],
    np.s_[5:2],
    np.s_[0, 1, 2],
    np.s_[:100, -100:],
    (),
    np.s_[...],
    np.s_[np.int64(1)],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_slice_is_that_of_numpy(key, rng):
    x = rng.standard_normal((3, 4, 5))
    y = Slice()[key](x)
    assert isinstance(y, np.ndarray) and np.array_equal(y, x[key]) and y.shape == Slice(key).dataShapeFrom(x.shape)
    assert isAdjoint(Slice(key), x, rng)
    wanted = np.zeros_like(x)
    wanted[key] = 1
    assert np.array_equal(back(Slice(key), x, np.ones_like(y)), wanted)


ends = st.none() | st.integers(-7, 7)
slices = st.builds(slice, ends, ends, st.none() | st.integers(-3, 3).filter(bool))


@given(slices, st.integers(1, 8))
def test_what_is_left_of_a_symbol_is_what_is_left_of_its_size(part, size):
    try:
        (left,) = Slice(part).dataShapeFrom((Dim("N"),))
        (left,) = bind((left,), {"N": size})
    except ShapeError:
        return  # it depends on how large the size is
    assert left == len(range(size)[part])


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (np.s_[:], "N"),
        (np.s_[::-1], "N"),
        (np.s_[1:], "N - 1"),
        (np.s_[:-2], "N - 2"),
        (np.s_[1:-1], "N - 2"),
        (np.s_[::2], "(N + 1)//2"),
        (np.s_[:1], 1),
        (np.s_[-1:], 1),
        (np.s_[3:3], 0),
        (np.s_[:4], "min(N, 4)"),
        (np.s_[-3:], "min(N, 3)"),
        (np.s_[2:5], "min(N, 5) - min(N, 2)"),
        (np.s_[:6:2], "(min(N, 6) + 1)//2"),
        (np.s_[4::-1], "min(N, 5)"),
        (np.s_[-5:-2], "min(N, 5) - min(N, 2)"),
    ],
    ids=str,
)
def test_slices_of_a_symbol(key, wanted):
    (left,) = Slice(key).dataShapeFrom((Dim("N"),))
    assert left == wanted or left == Dim(wanted)


def test_a_slice_of_a_symbol_goes_on_through_a_graph():
    x = Input(name="x").node()
    net = Graph(x, Linear(3, 2, name="fc")(Slice(np.s_[:4], name="first")(x)))
    assert net.dataShapeFrom(("N", 3)) == ("min(N, 4)", 2)
    for count in (2, 4, 7):
        assert net(np.ones((count, 3), np.float32)).shape == (min(count, 4), 2)
    assert Footprint(net, ("N", 3)).lines[1].nbytes == "8*min(N, 4)"


@pytest.mark.parametrize("key", [np.s_[-3:7], np.s_[-3:7:2], np.s_[6:-3:-1]], ids=str)
def test_a_slice_that_depends_on_the_size_of_a_symbol_is_refused(key):
    with pytest.raises(
        ShapeError, match=r"wanted a number in place of N for \[.*\], got \(N, 2\); the length of the slice depends"
    ):
        Slice(key).dataShapeFrom((Dim("N"), 2))


def test_an_index_into_a_symbol_counts_as_inside():
    assert Slice()[:, 3].dataShapeFrom(("N", Dim("T"), 4)) == ("N", 4)
    assert Slice()[:, -1].dataShapeFrom(("N", Dim("T"), 4)) == ("N", 4)


@pytest.mark.parametrize(
    ("key", "shape", "message"),
    [
        (np.s_[3], (3, 2), r"wanted an axis of at least 4 for the index 3, got \(3, 2\)"),
        (np.s_[-4], (3, 2), "wanted an axis of at least 4 for the index -4"),
        (np.s_[0, 0, 0], (3, 2), r"wanted at least 3 axes, got \(3, 2\)"),
    ],
)
def test_slice_refuses_what_is_out_of_range(key, shape, message):
    with pytest.raises(ShapeError, match=message):
        Slice(key).dataShapeFrom(shape)


@pytest.mark.parametrize("key", [[0, 1], np.array([0, 1]), "0", True, 1.0, slice(0.5, None)], ids=repr)
def test_what_is_no_basic_index_is_refused(key):
    with pytest.raises(ShapeError, match="wanted slc of slices, whole numbers, None and ..., got"):
        Slice(key)
    with pytest.raises(ShapeError, match="wanted at most one ..."):
        Slice((..., ...))
    with pytest.raises(ShapeError, match="wanted steps other than 0, got"):
        Slice(slice(None, None, 0))


# Pad ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize(
    ("pad", "shape", "widths"),
    [
        (1, (2, 3, 4), [(0, 0), (0, 0), (1, 1)]),
        (2, (1, 2, 4, 3), [(0, 0), (0, 0), (2, 2), (2, 2)]),
        ((1, 2), (2, 3), [(0, 0), (1, 2)]),
        ((0, 1, 2, 0), (2, 3, 4), [(0, 0), (0, 1), (2, 0)]),
        (((1, 0), (2, 1)), (3, 4), [(1, 0), (2, 1)]),
        (0, (1, 1, 2), [(0, 0)] * 3),
    ],
    ids=str,
)
def test_pad_is_that_of_numpy(pad, shape, widths, mode, rng):
    x = rng.standard_normal(shape)
    options = {"constant_values": 7.5} if mode == "constant" else {}
    module = Pad(pad, mode, fillValue=7.5)
    assert np.array_equal(module(x), np.pad(x, widths, mode, **options))
    assert isAdjoint(Pad(pad, mode), x, rng)


@pytest.mark.peers
@pytest.mark.parametrize(("mode", "name"), [("constant", "constant"), ("reflect", "reflect"), ("edge", "replicate")])
@pytest.mark.parametrize(("pad", "theirs"), [(2, (2, 2, 2, 2)), ((0, 1, 2, 1), (2, 1, 0, 1))], ids=str)
def test_pad_and_its_gradient_are_those_of_torch(pad, theirs, mode, name, rng):
    from torch.nn import functional

    compare(Pad(pad, mode), lambda x: functional.pad(x, theirs, name), rng, rng.standard_normal((2, 3, 4, 5)))


def test_pad_keeps_half_precision_and_sums_in_single():
    module, x = Pad((2000, 0), "edge"), np.ones((1, 2), np.float16)
    assert module(x).dtype == np.float16
    assert back(module, x, np.full((1, 2002), 1.25, np.float16)).tolist() == [[2502, 1.25]]  # 2001 * 1.25, rounded


@pytest.mark.parametrize(
    ("module", "shape", "message"),
    [
        (Pad(1), (2, 3), r"wanted at least 3 axes, got \(2, 3\); one number pads all axes after the second"),
        (Pad((1, 1, 1, 1)), (2,), "wanted at least 2 axes"),
        (
            Pad((0, 3), "reflect"),
            (2, 3),
            r"wanted at least 4 along axis 1, for reflect padding of \(0, 3\), got \(2, 3\)",
        ),
        (Pad((1, 0), "edge"), (2, 0), "wanted at least 1 along axis 1, for edge padding"),
    ],
    ids=str,
)
def test_pad_refuses_what_is_too_small(module, shape, message):
    with pytest.raises(ShapeError, match=message):
        module.dataShapeFrom(shape)


@pytest.mark.parametrize("pad", [(1, 2, 3), (), 1.5, ((1, 2), (3,))])
def test_pad_refuses_sides_that_are_none(pad):
    with pytest.raises(ShapeError, match=r"wanted pad as a number of elements, or \(before, after\)"):
        Pad(pad)


def test_pad_refuses_a_mode_it_has_not():
    with pytest.raises(ValueError, match="wanted mode as one of 'constant', 'reflect', 'edge', 'wrap', got 'mirror'"):
        Pad(1, mode="mirror")


def test_pad_carries_symbols():
    assert Pad(1).dataShapeFrom(asShape(("N", 3, "H", "W"))) == ("N", 3, "H + 2", "W + 2")
    assert Pad((2, 2), "reflect").dataShapeFrom(asShape(("N", "T"))) == ("N", "T + 4")


def test_a_slice_is_written_as_an_index():
    assert repr(Slice()[:, 0, ::2, None, ..., -3:]) == "Slice()[:, 0, ::2, None, ..., -3:]"
    assert repr(Slice((slice(1, None), 2), name="s")) == "Slice(name='s')[1:, 2]" and Slice(3).brief() == "Slice()[3]"
    assert repr(eval(repr(Slice((slice(1, 7, 2),), name="s")))) == "Slice(name='s')[1:7:2]"
    assert repr(Slice()) == "Slice()" and Slice(axes=(1,)).brief() == "Slice(axes=(1,))"
