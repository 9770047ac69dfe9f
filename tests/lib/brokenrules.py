"""BrokenRules: modules whose rules contradict each other."""

from puregraph import Module


class TwoCounts(Module):
    """One count in two outputs, of which a broken rule gives two."""

    outputNames = ("a", "b")
    sharesSize = True

    def dataShapeFrom(self, x):
        return [(None,), (None,)]

    def updateData(self, x):
        return x[:2], x[:1]
