"""Training that is killed in the middle and goes on: the result is that of a run that nobody disturbed, to the bit.

    python examples/resume.py            a few seconds
    python examples/resume.py --small    fewer epochs

LeNet on scikit-learn's digits, with batch normalisation, dropout, a schedule and Adam: a network whose weights alone
are not enough to go on from. The run is saved to run.h5 in the current folder every ten steps. A process of its own
trains, and gets no chance to say goodbye: SIGKILL cannot be caught.
"""

import subprocess
import sys

import numpy as np

from puregraph import Accuracy, Adam, Checkpoint, Cosine, CrossEntropy, Trainer, seed
from puregraph.core import device
from puregraph.data import digits
from puregraph.models import lenet

SMALL = "--small" in sys.argv
EPOCHS, BATCH, KILL = (2, 32, 27) if SMALL else (6, 32, 97)
FILE = "run.h5"


def build(*callbacks):
    """A trainer as every part of this script makes it; where it stands is not in here, but in the file."""
    (data, target), _ = digits()
    seed(0)
    steps = EPOCHS * -(-len(data) // BATCH)
    net = lenet(size=8, norm=True, dropout=0.3)
    optimizer = Adam(4e-3, schedule=Cosine(steps))
    saving = Checkpoint(FILE, every=10)
    trainer = Trainer(net, CrossEntropy(), optimizer, BATCH, metrics=[Accuracy()], callbacks=[saving, *callbacks])
    return trainer, data, target


def child():
    """What runs in the process that is killed: it says after every step which one that was."""
    trainer, data, target = build(lambda trainer: print(trainer.step, flush=True))
    trainer.train(data, target, epochs=EPOCHS)


def killed():
    """Start the child, kill it after step KILL, and give its exit code: minus the number of the signal."""
    command = [sys.executable, __file__, "--child", *sys.argv[1:]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.strip() == str(KILL):
                process.kill()
    return process.returncode


def arrays(trainer):
    """Every number that the run has made: parameters, running statistics, the optimizer's state."""
    net = trainer.net
    stored = {path: device.toHost(each.data) for path, each in {**net.params, **net.states}.items()}
    return stored | {path: device.toHost(value) for path, value in trainer.optimizer.state.items()}


def main():
    print("Undisturbed:")
    whole, data, target = build()
    whole.train(data, target, epochs=EPOCHS)

    print(f"\nThe same in a process of its own, killed after step {KILL}:")
    print(f"exit code {killed()}")

    print(f"\nAnd on from {FILE}:")
    trainer, data, target = build()
    trainer.resume(FILE)
    print(f"saved after step {trainer.step}, which was number {trainer.position} of epoch {trainer.epoch + 1}")
    trainer.train(data, target, epochs=EPOCHS)

    one, other = arrays(whole), arrays(trainer)
    differ = [path for path in one if one[path].tobytes() != other[path].tobytes()]
    losses = whole.history.column("loss") == trainer.history.column("loss")
    print(f"\n{len(one)} arrays, {sum(map(np.size, one.values())):,} numbers: ", end="")
    print(f"{len(differ)} arrays differ" if differ else "equal bit for bit", end="; ")
    print(f"the history of the loss is {'equal' if losses else 'different'}")
    return 1 if differ or not losses else 0


if __name__ == "__main__":
    sys.exit(child() if "--child" in sys.argv else main())
