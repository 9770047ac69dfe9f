"""Restrict: checks a kernel's `__restrict__` parameters against the memory that it gets.

A kernel may access memory that it writes only through such a pointer: the compiler may read it early, by loads that do
not see writes through others. So an operand that is overwritten by a result must not be `__restrict__`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from puregraph.testing.emulator.ptx import closing, split


def restricted(expanded: str, entry: str) -> list[bool]:
    """True for each parameter of a kernel that is `__restrict__`, from its preprocessed text."""
    match = re.search(rf"\bvoid\s+{entry}\s*(?=\()", expanded)
    if match is None:
        return []
    parameters = expanded[match.end() + 1 : closing(expanded, match.end())]
    return ["__restrict" in parameter for parameter in split(parameters, ",")]


def broken(
    roles: Sequence[str], promises: Iterable[bool], share: Callable[[int, int], bool]
) -> tuple[int, int, int] | None:
    """The two parameters that share memory and break a promise, restricted one first, and the written one of them; None
    if there are none.

    `roles`  "w" for a pointer that is written through, "r" for one that is only read, else "n"
    """
    for i, isRestricted in enumerate(promises):
        for j in range(len(roles)) if isRestricted else ():
            if i != j and roles[i] != "n" != roles[j] and "w" in (roles[i], roles[j]) and share(i, j):
                return i, j, i if roles[i] == "w" else j
    return None
