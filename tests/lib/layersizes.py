"""Sizes of layers as published networks have them: channels that are no power of two, small maps, odd batches."""

CHANNELS = range(1, 131)
LARGECHANNELS = (184, 200, 240, 360, 480, 672, 960)  # multiples of 8, most of them not of 16
MAPS = (*((h, w) for h in range(1, 10) for w in range(1, 10)), (14, 14))
BATCHES = (1, 2, 3, 7, 33)
UNEVEN = tuple(c for c in (*CHANNELS, *LARGECHANNELS) if c % 16 == 8)  # half a tile of 16 is left over


def channelOf(rng):
    """A number of channels: a small one, a multiple of 8 that is not one of 16, or a large one."""
    return rng.choice((rng.choice(CHANNELS), rng.choice(UNEVEN), rng.choice(LARGECHANNELS)))
