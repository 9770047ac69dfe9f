"""WeightAverage: the callback that validates and saves a moving average of the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import Probability, takes
from puregraph.core.errors import CheckpointError
from puregraph.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from puregraph.graph.graph import Graph
    from puregraph.train.trainer import Trainer


class WeightAverage(Callback):
    """average = d average + (1 - d) param after each step,   d = min(decay, (1 + steps) / (10 + steps))

    The network has the averages during validation, at the end of an epoch (so that Checkpoint and EarlyStop store
    them), and after the run. Training continues with the parameters themselves, also after a resume.

    Source    Polyak, Juditsky 1992; TensorFlow's ExponentialMovingAverage, with its num_updates
    Raises    ArgumentError for a decay that is not from 0 to below 1

    >>> net = Sequential(Linear(3, 1))
    >>> trainer = Trainer(net, MSE(), SGD(0.1), callbacks=[WeightAverage(0.99)], progress="none")
    >>> history = trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2)      # net has the averages now
    """

    order = -1

    @takes(decay=Probability)
    def __init__(self, decay: float = 0.999):
        self.decay, self.steps = decay, 0
        self.isShown = False  # True while the network has the averages, and `arrays` the parameters
        self.arrays: dict[str, Any] = {}

    def onEpochBegin(self, trainer: Trainer) -> None:
        if self.isShown:
            self.exchange(trainer.net)

    def onBatchEnd(self, trainer: Trainer) -> None:
        share = 1 - min(self.decay, (1 + self.steps) / (10 + self.steps))
        self.steps += 1
        for path, param in trainer.net.params.items():
            if param.dtype.kind not in "iub":
                now = param.materialize()
                if path not in self.arrays:
                    self.arrays[path] = now.astype(np.promote_types(now.dtype, np.float32), copy=True)
                else:
                    average = (
                        self.arrays[path] if isAlike(self.arrays[path], now) else device.toDevice(self.arrays[path])
                    )
                    average += share * (now - average)
                    self.arrays[path] = average

    def onValidationBegin(self, trainer: Trainer) -> None:
        if not self.isShown:
            self.exchange(trainer.net)

    def onEpochEnd(self, trainer: Trainer) -> None:
        self.onValidationBegin(trainer)

    def exchange(self, net: Graph) -> None:
        """Exchange the parameters of the network and `arrays`."""
        params = net.params
        for path, array in self.arrays.items():
            kept = params[path].materialize().copy()
            params[path].data = array
            self.arrays[path] = kept
        self.isShown = not self.isShown

    def state(self) -> dict[str, object]:
        return {"steps": self.steps, "isShown": self.isShown, "arrays": dict(self.arrays)}

    def restore(self, state: dict[str, Any]) -> None:
        steps, isShown, arrays = (state.get(name) for name in ("steps", "isShown", "arrays"))
        isNamed = type(arrays) is dict and all(hasattr(array, "dtype") for array in arrays.values())
        if type(steps) is not int or type(isShown) is not bool or not isNamed:
            raise CheckpointError(f"WeightAverage: wanted steps, isShown and arrays by name, got {state!r:.80}")
        self.steps, self.isShown = steps, isShown
        self.arrays = {path: array.copy() for path, array in dict(arrays or {}).items()}


def isAlike(one: Any, other: object) -> bool:
    """True if two arrays are on the same device."""
    return device.isDeviceArray(one) == device.isDeviceArray(other)
