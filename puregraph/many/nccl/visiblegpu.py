"""Visible GPU: each of several processes on a machine sees one of its GPUs."""

from __future__ import annotations

import os
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"  # which CUDA reads when it begins


def takeOwnGpu(local: int, locals: int, devices: Path = Path("/dev")) -> None:
    """Have this process, the n-th on its machine, see the n-th of the GPUs that there are, or that were given to all.

    A process that sees one alone already keeps it.
    """
    given = os.environ.get(VISIBLE)
    found = (str(n) for n in range(len(list(devices.glob("nvidia[0-9]*"))))) if given is None else given.split(",")
    visible = [each for each in found if each]
    if locals > 1 and len(visible) > 1:
        os.environ[VISIBLE] = visible[local % len(visible)]
