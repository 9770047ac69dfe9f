"""Launches of tests on a GPU, where there is one: what the emulator would run runs there, on the same memory."""

import os
import sys

import numpy as np

from puregraph.compile.gpu.runtime.devicearena import block
from puregraph.ops.cuda.libraries.librarycall import LibraryCall
from puregraph.ops.cuda.runtime import runner
from puregraph.ops.cuda.runtime.launch import Scratch, tables
from puregraph.testing.emulator import emulator
from puregraph.testing.emulator.emulator import ALIGNMENT_BYTES, GuardedMemory

EMULATED = emulator.run
# files whose kernels do what no GPU should be asked to do
BROKEN = ("test_cuda_emulator", "test_cuda_broken", "test_cuda_dependent")
EXACT = (
    "PUREGRAPH_EXACT"  # in the environment: memory ends where arrays do, for compute-sanitizer to see what is beyond
)


def run(launches, arrayOf=None):
    """As `emulator.run` does, on a GPU; nothing may be written but arrays. Libraries are emulated: other tests call them.

    Raises    KernelError if something beside the arrays was written
    """
    launches = list(launches)
    if any(isinstance(each, LibraryCall) for each in launches):
        EMULATED(launches, arrayOf)
        return
    memory = GuardedMemory(launches, arrayOf or (lambda what: what))
    rooms = {id(region.memory): Room(region) for region in memory.regions.values()}

    def place(what):
        region = memory.regions[id(what)]
        return rooms[id(region.memory)].address + memory.at(what).ctypes.data - region.memory.ctypes.data

    for table in tables(launches):
        memory.at(table)[...] = table.filled(place)
    for room in rooms.values():
        room.upload()
    runner.start(launches, place)
    sys.modules["cupy"].cuda.Device().synchronize()
    for room in rooms.values():
        room.download(launches[0].name)
    memory.written = {key for key, what in memory.whats.items() if not isinstance(what, Scratch)}
    memory.giveBack()


class Room:
    """Memory of the GPU for one region of arrays, at an address as even as theirs, with more behind it that stays."""

    def __init__(self, region):
        self.region, self.head = region, region.memory.ctypes.data % ALIGNMENT_BYTES
        self.tail = 0 if os.environ.get(EXACT) else ALIGNMENT_BYTES
        self.whole = block(self.head + region.memory.size + self.tail)
        self.address = self.whole.data.ptr + self.head

    def upload(self):
        """Copy the region there, bytes of 0xFF around it."""
        size = self.region.memory.size
        content = np.full(self.head + size + self.tail, 0xFF, np.uint8)
        content[self.head : self.head + size] = self.region.memory
        self.before = content
        self.whole.set(content)

    def download(self, name):
        """Copy the region back, and look at what is around it and between its arrays."""
        found, size = self.whole.get(), self.region.memory.size
        ours = np.zeros(found.size, bool)
        mask = self.region.isOurs
        ours[self.head : self.head + size] = True if mask is None else np.repeat(mask, self.region.unit)
        if not np.array_equal(found[~ours], self.before[~ours]):
            raise emulator.KernelError(f"{name}: bytes outside the arrays were written on the GPU")
        self.region.memory[...] = found[self.head : self.head + size]
