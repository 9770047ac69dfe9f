"""Window options of modules, given once or for each axis, and the shape that windows produce."""

from puregraph.core.arguments import WINDOW_SIZE_LIMIT, areWhole, isWhole
from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.shape import window

COLORS = 4  # channels of a picture at most: red, green, blue, alpha
AXES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}


def axesNames(rank):
    """The names of the spatial axes of this rank."""
    return AXES.get(rank) or tuple(f"size{i + 1}" for i in range(rank))


def windowSize(size, rank, label):
    """Return the size for each axis. If the rank is None, it is the number of sizes."""
    several = isinstance(size, (tuple, list))
    need(rank or several, f"the size of {label} for each axis, such as (3, 3)", size)
    return perAxis(size, rank or len(size), "size")


def perAxis(value, rank, what, least=1):
    """An integer for each axis: 3 is (3, 3).

    Raises    ShapeError if there is another number of them, or one is below `least`
    """
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    need(
        len(values) == rank > 0 and all(isWhole(v, least) for v in values),
        f"{what} as a whole number of at least {least}, or a tuple of {rank} of them",
        value,
    )
    need(all(v < WINDOW_SIZE_LIMIT for v in values), f"{what} of at most {WINDOW_SIZE_LIMIT - 1:,}", value)
    return tuple(map(int, values))


def sides(pad, size, stride, dilation):
    """(before, after) for each axis: 1 is ((1, 1), (1, 1)), and (1, 2) is ((1, 1), (2, 2)); a negative side cuts off.

    "same" with stride 1 leaves every length as it is: dilation (size - 1) zeros in all, an odd one more after than
    before. With a stride it stays "same", as the zeros then depend on the length of the input.

    Raises    ShapeError for any other form
    """
    if isinstance(pad, str) and pad == "same":
        totals = [d * (k - 1) for k, d in zip(size, dilation)]
        return tuple(map(halves, totals)) if all(s == 1 for s in stride) else pad
    perAxis = tuple(pad) if isinstance(pad, (tuple, list)) else (pad,) * len(size)
    pairs = tuple(tuple(p) if isinstance(p, (tuple, list)) else (p, p) for p in perAxis)
    need(
        len(pairs) == len(size) and all(len(p) == 2 and areWhole(p) for p in pairs),
        f'pad as a whole number, a tuple of {len(size)} of them or of pairs (before, after), or "same"',
        repr(pad),
        "for one axis with two sides write ((before, after),)" if len(size) == 1 else "",
    )
    return tuple((int(before), int(after)) for before, after in pairs)


def halves(total):
    """(before, after) of a padding, the larger half after; a negative total is cut off after."""
    before = max(total, 0) // 2
    return before, total - before


def poolSides(pad, size, stride, dilation):
    """(before, after) for each axis of a pooling window, which always overlaps the input.

    Raises    ShapeError where a window could be inside the padding
    """
    pairs = sides(pad, size, stride, dilation)
    reach = tuple([d * (k - 1) + 1 for k, d in zip(size, dilation)])
    inside = pairs == "same" or all(max(pair) < n for pair, n in zip(pairs, reach))
    need(inside, f"every side of pad below the size {reach}", pad, "a window of nothing but padding has no value")
    return pairs


def padding(lengths, size, stride, pad, dilation, ceil=False):
    """(before, after) for each axis of an input of these lengths; with `ceil`, as much after as all windows take."""
    if pad == "same":
        totals = [(-(-n // s) - 1) * s + d * (k - 1) + 1 - n for n, k, s, d in zip(lengths, size, stride, dilation)]
        pad = tuple(halves(max(0, total)) for total in totals)
    if not ceil:
        return pad
    counts = windowShape((1, 1, *lengths), size, stride, pad, dilation, ceil)
    reach = [(count - 1) * s + d * (k - 1) + 1 for count, k, s, d in zip(counts, size, stride, dilation)]
    return tuple((before, max(after, far - n - before)) for n, (before, after), far in zip(lengths, pad, reach))


def channelHint(x, maps):
    """A hint for an axis 1 whose length is not `maps`; it suggests a transposition only if x surely has channels
    last."""
    if len(x) < 2:
        return ""
    if len(x) > 2 and x[-1] == maps and (isinstance(x[1], Dim) or isPicture(x)):
        return "channels are the second axis here: transpose the data from channels-last"
    return f"expected {maps} channels (axis 1), got {x[1]}"


def isPicture(x):
    """Return True for the shape of pictures with channels last: square, or few channels, but no square last axes."""
    return len(x) > 3 and x[-2] != x[-1] and (x[1] == x[2] or x[-1] <= COLORS)


def needRank(x, rank, maps="c"):
    """Return the spatial sizes of a batch of shape (n, maps, *spatial).

    Raises    ShapeError if there are not `rank` spatial axes, or the second axis is not maps long
    """
    fits = len(x) == rank + 2 and (maps == "c" or x[1] == maps)
    hint = ""
    if len(x) == rank + 1:
        hint = "the first axis counts samples: give a batch, if only of one"
    elif len(x) == rank + 2 and not fits:
        hint = channelHint(x, maps)
    need(fits, ("n", maps, *axesNames(rank)), x, hint)
    return x[2:]


def windowShape(x, size, stride, pad, dilation, ceil=False):
    """The number of windows along each spatial axis of x (n, c, *spatial).

    With `ceil` the last one may go beyond the padding, but begins before the padding at the end.

    Raises    ShapeError naming the axis along which not even one window fits
    """
    names = axesNames(len(size))
    count = []
    for i, (name, length, k, s, d) in enumerate(zip(names, x[2:], size, stride, dilation)):
        if pad == "same":
            need(length >= 1, f"a {name} of at least 1", x)
            count.append(-(-length // s))
            continue
        extent, both = d * (k - 1) + 1, sum(pad[i])
        least = max(1, 1 - pad[i][0], extent - both - (s - 1) * ceil)
        hint = f"the window covers {extent}, the padding {both}: use a smaller window or more pad"
        need(length >= least, f"a {name} of at least {least} in (n, c, {', '.join(names)})", x, hint)
        if ceil:
            count.append(-((max(extent - pad[i][1], s) - s - length - pad[i][0]) // s))
        else:
            count.append(window(length, k, s, both, d))
    return tuple(count)


def perMap(values, like):
    """Per-channel values, in the shape that broadcasts with x (n, c, *spatial)."""
    return values.reshape(-1, *(1,) * (like.ndim - 2))


def overMaps(x):
    """The axes to sum over for one value per channel: all but the second."""
    return (0, *range(2, x.ndim))
