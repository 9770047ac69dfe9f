"""UsageError: the error of the command line itself."""

from __future__ import annotations

from puregraph.core.errors import PuregraphError


class UsageError(PuregraphError):
    """A command that cannot be run as given."""
