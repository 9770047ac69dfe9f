"""A test of every example of every module: one test of pytest for each class, which says which example failed."""

import functools
import inspect
from itertools import product

import pytest


def everyExample(examples, **variants):
    """Call a test with each (found, index) of `examples` and each choice of the variants (mode=MODES, ...). pytest takes
    as long to set a test up as most examples take: those of one class are one test."""
    classes = list(dict.fromkeys(found for found, _ in examples))

    def decorate(test):
        @functools.wraps(test)
        def ofClass(found, **fixtures):
            for (_, index), *chosen in product([e for e in examples if e[0] is found], *variants.values()):
                given = {"index": index, **dict(zip(variants, chosen))}
                try:
                    test(found=found, **given, **fixtures)
                except Exception as error:
                    said = ", ".join(f"{name} {getattr(value, '__name__', value)}" for name, value in given.items())
                    raise AssertionError(f"{found.__name__}, {said}: {error}") from error

        signature = inspect.signature(test)
        left = [p for name, p in signature.parameters.items() if name not in {"index", *variants}]
        ofClass.__signature__ = signature.replace(parameters=left)
        return pytest.mark.parametrize("found", classes, ids=lambda found: found.__name__)(ofClass)

    return decorate
