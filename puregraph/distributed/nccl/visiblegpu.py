"""Visible GPU: each of several processes on a machine sees one of its GPUs."""

from __future__ import annotations

import os
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"  # CUDA reads it only when it is initialised


def takeOwnGpu(local: int, locals: int, devices: Path = Path("/dev")) -> None:
    """Make only the n-th visible GPU visible to the n-th process of a machine.

    A process that already sees a single GPU keeps it.
    """
    inherited = os.environ.get(VISIBLE)
    present = (str(n) for n in range(len(list(devices.glob("nvidia[0-9]*")))))
    visible = list(present if inherited is None else filter(None, inherited.split(",")))
    if locals > 1 and len(visible) > 1:
        os.environ[VISIBLE] = visible[local % len(visible)]
