"""Processes of their own that tests start."""

import os
import sys


def environment(**variables):
    """The environment for a process that finds what this one finds: the library, the tests and their helpers."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
