"""Running an example as a user does."""

import os
import subprocess
import sys

from source import ROOT


def runExample(folder, name, *arguments, **environment):
    """Run an example in a folder: its exit code and what it printed, a warning being an error."""
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *arguments]
    settings = {"COLUMNS": "120", "OPENBLAS_NUM_THREADS": "1"} | {key: str(value) for key, value in environment.items()}
    done = subprocess.run(command, cwd=folder, env=os.environ | settings, capture_output=True, text=True, timeout=240)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout
