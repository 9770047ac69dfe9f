"""Symbolic sizes: exact readings, and agreement with plain integers for random expressions."""

import copy
import json
import operator
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from puregraph.core.dim import minimum
from puregraph.core.errors import ShapeError
from puregraph.core.shape import (
    Dim,
    asShape,
    asSize,
    bind,
    broadcast,
    isShape,
    normalAxis,
    product,
    showShape,
    symbols,
    transposed,
    window,
)

N, H, W = Dim("N"), Dim("H"), Dim("W")
SIZES = st.fixed_dictionaries({name: st.integers(1, 40) for name in "NHW"})
OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def texts(symbol):
    """Expressions in plain Python, fully in parentheses, which eval and Dim both understand."""
    leaves = st.one_of(st.sampled_from(symbol), st.integers(0, 6).map(str))

    def grown(inner):
        binary = st.tuples(inner, st.sampled_from("+ - *".split()), inner)
        divided = st.tuples(inner, st.sampled_from("// %".split()), st.one_of(st.integers(1, 6).map(str), inner))
        smaller = st.tuples(inner, inner).map(", ".join).map("min({})".format)
        return (
            st.one_of(binary, divided).map(lambda parts: f"({' '.join(parts)})") | inner.map("(-{})".format) | smaller
        )

    return st.recursive(leaves, grown, max_leaves=7)


EXPRESSIONS = texts(["N", "H", "W"])


def symbolic(text):
    """The expression calculated with Dims by Python itself; divisions by zero are left out."""
    try:
        return eval(text, {"N": N, "H": H, "W": W, "min": minimum})
    except ZeroDivisionError:
        assume(False)


def number(text, sizes):
    try:
        return eval(str(text), dict(sizes))
    except ZeroDivisionError:
        assume(False)


@pytest.mark.parametrize(
    "size, reading",
    [
        (product((16, H, W)), "16*H*W"),
        (N * 256, "256*N"),
        (2 * N + 1, "2*N + 1"),
        (1 + N, "N + 1"),
        (5 - N, "5 - N"),
        (-N, "-N"),
        (N * H - 3 * N, "H*N - 3*N"),
        ((2 * H) // 2, "H"),
        ((4 * H + 2) // 2, "2*H + 1"),
        ((H + 4) // 2, "H//2 + 2"),
        ((H - 1) // 2, "(H - 1)//2"),
        ((2 * H) // 3, "(2*H)//3"),
        (H // 2 * W, "W*(H//2)"),
        (-(H // 2), "-(H//2)"),
        (3 * H // 2, "H + H//2"),
        (H // 2 // 2, "H//4"),
        (5 // N, "5//N"),
        (H // W, "H//W"),
        (H // (W + 1), "H//(W + 1)"),
        ((2 * H) // (2 * W), "H//W"),
        (H % 2, "H - 2*(H//2)"),
        (window(H, 3, 2, 2), "(H - 1)//2 + 1"),
        (window(window(H, 3, 2, 2), 3, 2, 2), "(H - 1)//4 + 1"),
        (window(H, 3, 1, 2), "H"),
        (window(H, 2, 2), "H//2"),
        (transposed(H, 4, 2, 2), "2*H"),
        (minimum(4, N), "min(N, 4)"),
        (minimum(H, N + 1), "min(H, N + 1)"),
        (3 * minimum(N, 4) * H - 1, "3*H*min(N, 4) - 1"),
        (minimum(N, 8) // 2, "(min(N, 8))//2"),
    ],
)
def test_a_size_reads_as_people_write_it(size, reading):
    assert type(size) is Dim
    assert str(size) == f"{size}" == reading
    assert size == reading and hash(size) == hash(reading)
    assert Dim(reading) == reading


@pytest.mark.parametrize(
    "size, value",
    [
        (N - N, 0),
        (N * 0, 0),
        (0 // N, 0),
        ((2 * N) % 2, 0),
        ((2 * N) // N, 2),
        ((2 * N + 2) // (N + 1), 2),
        ((N * 16 * (H + 1) * W) // (N * W * (H + 1)), 16),
        ((6 * N + 5) % 3, 2),
        (minimum(N + 3, 4), 4),
        (minimum(0, H), 0),
    ],
)
def test_a_size_without_symbols_is_an_int(size, value):
    assert type(size) is int and size == value


@pytest.mark.parametrize(
    "one, other",
    [
        ("(H + 1)//2", "(H - 1)//2 + 1"),
        ("-(-H//3)", "(H + 2)//3"),
        ("(H + W)*(H - W)", "H*H - W*W"),
        ("(4*H + 6)//4", "H + 1"),
        ("(2*H + 5)//6", "(H + 2)//3"),
        ("((H + 1)//2 + 3)//2", "(H + 7)//4"),
        ("H//-2", "-H//2"),
        (" N *2 ", "N + N"),
    ],
)
def test_equal_expressions_are_made_equal(one, other):
    assert Dim(one) == Dim(other)


def test_shapes_with_symbols_are_plain_tuples():
    assert ("N", 256) == (N, 256)
    assert {("N", 256): 1}[N, 256] == 1
    assert repr((N, 256)) == "('N', 256)"
    assert repr((2 * N,)) == "('2*N',)"
    assert N != 5 and N != "M" and N != H and N != (N,)
    assert json.dumps([N, 2]) == '["N", 2]'


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda size: pickle.loads(pickle.dumps(size))])
def test_copies_stay_dims(copied):
    size = copied(window(H, 3, 2, 2) * W)
    assert type(size) is Dim and size == "W*((H - 1)//2) + W"
    assert size - W == "W*((H - 1)//2)"


def test_numpy_integers_calculate_with_dims():
    three = np.int64(3)
    for size, reading in [(three * N, "3*N"), (N * three, "3*N"), (three - N, "3 - N"), (N // three, "N//3")]:
        assert type(size) is Dim and size == reading
    assert three < N and not N < three
    assert (three != N) is True


def test_text_stays_text():
    assert "%s rows" % N == "N rows"  # noqa: UP031 - it is the operator that is tested
    assert "rows: " + N == "rows: N"
    with pytest.raises(TypeError, match=r"write Dim\('M'\)"):
        N + "M"
    with pytest.raises(TypeError):
        N / 2
    with pytest.raises(ZeroDivisionError, match="N // 0"):
        N // 0


def test_an_inequality_holds_unless_it_is_refuted():
    assert H >= 3 and H > 3 and 3 <= H and 3 < H
    assert not H < 3 and not H <= 3 and not 3 > H and not 3 >= H
    assert N >= H and not N < H
    assert 5 - N >= 0


def test_an_inequality_is_decided_where_it_can_be():
    assert N > 0 and not N <= 0 and N >= 1
    assert N < N + 1 and not N > N + 1 and not N >= N + 1
    assert N <= N and N >= N and not N < N
    assert 4 - N < 4 and not 4 - N >= 4
    assert -(H // 2) <= 0 and not -(H // 2) > 0
    assert -(H // W) <= 0
    assert -N * H < 0
    assert minimum(N, 4) <= 4 and minimum(N, 4) < 5 and not minimum(N, 4) <= 3


@given(EXPRESSIONS, SIZES)
def test_an_expression_equals_its_numbers(text, sizes):
    size, expected = symbolic(text), number(text, sizes)
    assert type(size) in (int, Dim)
    assert number(size, sizes) == expected
    if expected >= 0:
        assert bind((size,), sizes, complete=True) == (expected,)
    else:
        with pytest.raises(ShapeError, match="sizes of at least 0"):
            bind((size,), sizes)


@given(EXPRESSIONS)
def test_reading_what_is_printed_changes_nothing(text):
    size = symbolic(text)
    assume(type(size) is Dim)
    again = Dim(str(size))
    assert again == size and again.terms == size.terms
    assert size - again == 0
    assert Dim(text) == size


@given(EXPRESSIONS, EXPRESSIONS)
def test_sums_and_products_have_one_form(one, other):
    a, b = symbolic(one), symbolic(other)
    assert a + b == b + a and a * b == b * a
    assert a + b - b == a
    assert a * (b + 1) == a * b + a
    assert (a + b) * (a - b) == a * a - b * b
    if b != 0:
        assert (a * b) // b == a
        assert a // b * b + a % b == a


@given(EXPRESSIONS, st.integers(-12, 12), st.integers(1, 12))
def test_a_constant_multiple_leaves_a_division(text, times, size):
    a = symbolic(text)
    assert (a + size * times) // size == a // size + times


@given(st.integers(-20, 20), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_divisions_in_a_row_are_one_division(constant, sizes):
    inner = H + constant
    for size in sizes:
        inner = inner // size
    assert inner == (H + constant) // product(sizes)


@given(EXPRESSIONS, EXPRESSIONS, SIZES)
def test_what_is_proven_holds_for_numbers(one, other, sizes):
    a, b = symbolic(one), symbolic(other)
    x, y = number(one, sizes), number(other, sizes)
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return
    if isinstance(a, Dim):
        assert (a < b) is not (a >= b) and (a <= b) is not (a > b)
        assert not a < b or x < y
        assert not a <= b or x <= y
        assert a >= b or x < y
        assert a > b or x <= y


@pytest.mark.parametrize(
    "written, shape",
    [
        ((), ()),
        ([], ()),
        ([2, 3], (2, 3)),
        ((np.int64(2), np.uint8(0)), (2, 0)),
        (("N", "2 * N+1", 4), ("N", "2*N + 1", 4)),
        (("4//2", "N - N"), (2, 0)),
        (("größe", "batch_2"), ("größe", "batch_2")),
    ],
)
def test_a_shape_is_read(written, shape):
    result = asShape(written)
    assert result == shape and type(result) is tuple
    assert all(type(size) in (int, Dim) for size in result)


@pytest.mark.parametrize(
    "written, message",
    [
        (5, r"wanted a shape.*got 5; write \(5,\)"),
        ("N", r"got 'N'; write \('N',\)"),
        (None, "wanted a shape.*got None"),
        ({3, 4}, r"got \{3, 4\}"),
        (np.ones(2), "wanted a shape"),
        ((2, -1), "wanted a size of at least 0.*got -1"),
        ((2, "-N"), "at least 0.*got -N"),
        ((2, 3.0), "wanted a size.*got 3.0"),
        ((True, 3), "wanted a size.*got True"),
        ((2, None), "wanted a size.*got None"),
        ([(2, 3)], r"wanted a size.*got \(2, 3\)"),
        (("",), "got ''; sizes are written with names"),
        (("2N",), "got '2N'"),
        (("N/2",), "got 'N/2'"),
        (("N**2",), "sizes are written with names"),
        (("~N",), "got '~N'"),
        (("N//0",), "got 'N//0'"),
        (("1.5*N",), "sizes are written"),
        (("True",), "sizes are written"),
        (("None",), "sizes are written"),
        (("f(N)",), "sizes are written"),
        (("N.real",), "sizes are written"),
        (("N\0",), "sizes are written"),
        (("N" + "+1" * 100_000,), "sizes are written"),
        (("__import__('os').getcwd()",), "sizes are written"),
    ],
)
def test_what_is_no_shape_is_refused(written, message):
    with pytest.raises(ShapeError, match=message):
        asShape(written)


@pytest.mark.parametrize("text", ["3", "N - N", "", "N N"])
def test_a_dim_needs_a_symbol(text):
    with pytest.raises(ShapeError, match="wanted .*symbol.*got"):
        Dim(text)


def test_one_size_is_read():
    assert asSize("N + 1") == "N + 1" and asSize(np.int32(3)) == 3 and asSize(N) is N
    assert type(asSize(np.int32(3))) is int


def test_a_shape_is_told_from_a_list_of_shapes():
    for shape in [(), [], (3,), [3, "N"], (N, np.int64(2))]:
        assert isShape(shape)
    for other in [[()], [(3,), (4,)], ((3, 4),), 3, "N", None, (3, None), (True,), (2.0,)]:
        assert not isShape(other)


def test_products_count_elements():
    assert product(()) == 1 and product((2, 3, 4)) == 24 and product((0, N)) == 0
    assert product(("N", 4)[1:]) == 4
    assert product((N, 16, H, W)) // product((N, H)) == "16*W"


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4).map(tuple), max_size=4))
def test_numbers_broadcast_as_in_numpy(shapes):
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ShapeError, match="wanted shapes that broadcast"):
            broadcast(*shapes)
    else:
        assert broadcast(*shapes) == expected


def test_symbols_broadcast_with_one_and_with_themselves():
    assert broadcast((N, 1, H), (1, 3, 1)) == ("N", 3, "H")
    assert broadcast((N, H + 1), (H + 1,), ()) == ("N", "H + 1")
    assert broadcast((1, 1), [N, 1]) == ("N", 1)


@pytest.mark.parametrize("shapes", [[(N, 3), (H, 3)], [(N,), (5,)], [(N,), (N + 1,)]])
def test_symbols_that_differ_do_not_broadcast(shapes):
    with pytest.raises(ShapeError, match="differ, and neither is 1"):
        broadcast(*shapes)


def test_a_refused_broadcast_names_all_shapes():
    with pytest.raises(ShapeError) as caught:
        broadcast((N, 3, 1), (4, 1), (5, 1))
    assert str(caught.value) == (
        "wanted shapes that broadcast, got [(N, 3, 1), (4, 1), (5, 1)]; 3 and 5 differ, and neither is 1"
    )


def test_symbols_are_listed_in_order():
    assert symbols((W, 3, "H//2 + N", H)) == ("W", "H", "N")
    assert symbols((1, 2)) == symbols(()) == ()
    assert symbols(("batch_2", "größe*2")) == ("batch_2", "größe")
    assert symbols((minimum(N, 4), "min(H, W)")) == ("N", "H", "W") and symbols(("min",)) == ("min",)


def test_sizes_take_the_place_of_symbols():
    shape = asShape(("N", 16, "(H - 1)//2 + 1"))
    assert bind(shape, {"N": 32}) == (32, 16, "(H - 1)//2 + 1")
    assert bind(shape, {"N": np.int64(32), "H": 9, "unused": 1}, complete=True) == (32, 16, 5)
    assert bind(shape, {"H": "2*N"}) == ("N", 16, N)
    assert bind((), {}) == ()
    assert all(type(size) is int for size in bind(shape, {"N": np.int64(32), "H": 9}))


def test_symbols_without_sizes_are_named():
    with pytest.raises(ShapeError, match=r"sizes for all symbols \(H, W missing\), got \(N, H, H\*W\)"):
        bind((N, H, H * W), {"N": 3}, complete=True)


def test_a_negative_size_says_where_it_comes_from():
    with pytest.raises(ShapeError, match=r"at least 0, got \(-2,\); from \(H - 5,\) with H = 3"):
        bind((H - 5,), {"H": 3})
    with pytest.raises(ShapeError, match="wanted a size of at least 0.*got -3"):
        bind((N,), {"N": -3})


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 4), st.integers(0, 4), st.integers(1, 3))
def test_windows_are_counted(size, kernel, stride, pad, dilation):
    starts = range(0, size + pad - dilation * (kernel - 1), stride)
    if len(starts):
        assert window(size, kernel, stride, pad, dilation) == len(starts)
        assert bind((window(H, kernel, stride, pad, dilation),), {"H": size}) == (len(starts),)
    else:
        with pytest.raises(ShapeError, match=f"wanted at least {dilation * (kernel - 1) + 1 - pad}, got {size}"):
            window(size, kernel, stride, pad, dilation)


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 4), st.integers(0, 4), st.integers(1, 3))
def test_a_transposed_window_undoes_a_window(size, kernel, stride, pad, dilation):
    assume(size + pad > dilation * (kernel - 1))
    length = window(size, kernel, stride, pad, dilation)
    outpad = (size + pad - dilation * (kernel - 1) - 1) % stride
    assert transposed(length, kernel, stride, pad, dilation, outpad) == size


def test_a_transposed_window_leaves_something():
    with pytest.raises(ShapeError, match="wanted a length of at least 1, got -1; 1 is small for pad 4"):
        transposed(1, 3, pad=4)


def test_axes_count_from_both_ends():
    assert [normalAxis(axis, 3) for axis in range(-3, 3)] == [0, 1, 2, 0, 1, 2]
    assert type(normalAxis(np.int64(-1), 3)) is int


@pytest.mark.parametrize(
    "axis, rank, message",
    [
        (3, 3, "wanted axis from -3 to 2, got 3"),
        (-4, 3, "wanted axis from -3 to 2, got -4"),
        (0, 0, "wanted a shape with dimensions for axis, got 0"),
        (1.0, 3, "wanted axis from -3 to 2, got 1.0"),
        (True, 3, "got True"),
        (None, 3, "got None"),
    ],
)
def test_an_axis_out_of_range_is_refused(axis, rank, message):
    with pytest.raises(ShapeError, match=message):
        normalAxis(axis, rank)
    with pytest.raises(ShapeError, match="start"):
        normalAxis(5, 2, "start")


def test_shapes_are_shown_without_quotes():
    assert showShape((N, 16, H // 2)) == "(N, 16, H//2)"
    assert showShape([N]) == "(N,)"
    assert showShape(()) == "()"
    assert showShape([(N, 2), (3,)]) == "[(N, 2), (3,)]"
