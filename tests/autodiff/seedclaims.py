"""The claims of the pages that puregraph follows, each with the check that runs it and the verdict."""

from collections.abc import Callable
from typing import NamedTuple


class Claim(NamedTuple):
    """One sentence of a page in words of ours: it holds, or differs for a reason."""

    subject: str
    text: str
    check: Callable[[], None]
    reason: str = ""


class SeedPage:
    """A page of an original: its title, where it is from, and its claims in order."""

    def __init__(self, title: str, source: str):
        self.title, self.source = title, source
        self.claims: list[Claim] = []

    def holds(self, subject: str, text: str) -> Callable:
        """Register the function below as the check of a claim that holds."""
        return self.differs(subject, text, "")

    def differs(self, subject: str, text: str, reason: str) -> Callable:
        """Register the function below as the check of what is done instead, on purpose."""

        def register(check: Callable[[], None]) -> Callable[[], None]:
            self.claims.append(Claim(subject, text, check, reason))
            return check

        return register
