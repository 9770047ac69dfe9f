"""Data: small real sets, the files that data comes in, and batches of arrays."""

from puregraph.data.augmented import Augmented
from puregraph.data.batches import Arrays, Batch, Names, Stream
from puregraph.data.csvfile import readCsv
from puregraph.data.digits import digits
from puregraph.data.fashion import fashion
from puregraph.data.idx import readIdx
from puregraph.data.imagefolder import ImageFolder
from puregraph.data.padsequences import padded
from puregraph.data.prefetch import Prefetch
from puregraph.data.split import split
from puregraph.data.tablecolumn import TableColumn
from puregraph.data.tablereader import TableReader

__all__ = [
    "Arrays",
    "Augmented",
    "Batch",
    "TableReader",
    "ImageFolder",
    "Names",
    "Prefetch",
    "Stream",
    "TableColumn",
    "digits",
    "fashion",
    "padded",
    "readCsv",
    "readIdx",
    "split",
]
