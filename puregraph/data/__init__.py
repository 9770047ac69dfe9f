"""Data: small real sets, the files they come in, and batches of arrays."""

from puregraph.data.batches import Arrays, Batch, Names, Stream
from puregraph.data.digits import digits
from puregraph.data.fashion import fashion
from puregraph.data.idx import readIdx
from puregraph.data.prefetch import Prefetch
from puregraph.data.split import split

__all__ = ["Arrays", "Batch", "Names", "Prefetch", "Stream", "digits", "fashion", "readIdx", "split"]
