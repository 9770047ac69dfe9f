"""Programs that are made from a step with open sizes, though it is for their shapes alone."""

from collections import Counter
from contextlib import contextmanager

import pytest

from puregraph.compile.opensteps import OpenSteps
from puregraph.compile.program import Program


class ForcedSteps(OpenSteps):
    """Open steps for which the shapes of a program are never the first: first axes of two and more are open."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def schedule(self, program):
        steps, shapes = OpenSteps(), tuple(program.shapes)
        steps.first = tuple(tuple(n + (a == 0 and n >= 2) for a, n in enumerate(shape)) for shape in shapes)
        result = None if steps.first == shapes else steps.opened(program, shapes)
        self.counts["own" if result is None else "open"] += 1
        return result


@contextmanager
def openPrograms():
    """Within, programs are made from open steps where these can be; yields how many were and were not."""
    counts, original = Counter(), Program.__init__

    def make(self, *arguments, **options):
        original(self, *arguments, **{**options, "openSteps": ForcedSteps(counts)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "__init__", make)
        yield counts
