"""cuDNN's plans for the known models, made today and compared with those that are on record."""

import os
import shutil
import subprocess
import sys

import pytest
from source import ROOT

from puregraph.ops.cuda.libraries import cudnn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(cudnn.missing() is not None, reason="cuDNN and its frontend are not installed"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]


def test_workspaces_are_those_on_record():
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "scripts/plans.py")]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tasks, " in done.stdout
