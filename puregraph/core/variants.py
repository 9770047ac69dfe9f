"""Variants: the results of a rule for open sizes, traced once for each set of answers to what it asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from puregraph.core.opensize import OpenSize, SizeTape, numbered, sizesIn

MAX_VARIANTS = 16  # most variants that a rule keeps; the one that was unused for longest makes room


class Variant(NamedTuple):
    """The result of a rule, and the tape with the expressions in it."""

    tape: SizeTape
    result: Any


class Variants:
    """A rule with open sizes among its arguments, traced with symbols of its own instead.

    What the rule asks of its sizes is answered by a variant of its own, so that no other part of a step depends on the
    answers: a step in which ten rules have two variants each is one step, not one of 1,024.

    The rule must not use open sizes besides its arguments except in its results; a tape that is closed refuses them.
    """

    def __init__(self, rule: Callable[..., Any], arguments: tuple):
        self.rule, self.arguments = rule, arguments
        self.sizes = list({size.index: size for size in sizesIn(arguments)}.values())
        self.kept: list[Variant] = []
        self.last: tuple[list[Any], Variant, list[Any]] | None = None

    def __call__(self, numbers: Sequence[Any]) -> tuple[Variant, list[Any]]:
        """The variant for some numbers of the sizes, and the numbers of its tape."""
        numbers = list(numbers)
        if self.last is None or self.last[0] != numbers:
            self.last = numbers, *self.variantFor(numbers)
        return self.last[1:]

    def variantFor(self, numbers: list[Any]) -> tuple[Variant, list[Any]]:
        """The variant that holds for some numbers, which is traced if there is none."""
        for i, variant in enumerate(self.kept):
            values = variant.tape(numbers)
            if values is not None:
                self.kept.insert(0, self.kept.pop(i))
                return variant, values
        tape = SizeTape(numbers)
        symbols = {size.index: symbol for size, symbol in zip(self.sizes, tape.symbols)}
        variant = Variant(tape, self.rule(*numbered(self.arguments, lambda size: symbols[size.index])))
        tape.close()
        self.kept = [variant, *self.kept[: MAX_VARIANTS - 1]]
        return variant, tape.numbers

    def resolved(self, number: Callable[[Any], Any]) -> tuple[Any, Callable[[Any], Any]]:
        """The result for the numbers that a function gives for the sizes, and such a function for sizes in it."""
        variant, values = self([number(size) for size in self.sizes])

        def numberIn(what: Any) -> Any:
            isInner = type(what) is OpenSize and what.tape is variant.tape
            return values[what.index] if isInner else number(what)

        return variant.result, numberIn
