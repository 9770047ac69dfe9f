"""SAM: the gradient at the worst point nearby, so that training ends in flat minima."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puregraph.core.arguments import Flag, takes
from puregraph.core.errors import PuregraphError
from puregraph.optimizers.multioptimizer import MultiOptimizer
from puregraph.optimizers.slot import Slot, normOf


class SAM(MultiOptimizer):
    """e = rho g / ||g||,   then the optimizer's step at w with the gradient of w + e

    ||g|| is the norm of all gradients. With `adaptive` e = rho w^2 g / ||w g||, which does not depend on the scale of
    the weights. Each update runs forward and backward twice: a Trainer and a compiled step do; in a loop of your own:

        optimizer.update(closure)            # closure() runs forward and backward, and returns the cost

    Source    Foret et al. 2021, arXiv:2010.01412, algorithm 1; Kwon et al. 2021, arXiv:2102.11600 (adaptive)
    Raises    ArgumentError for a setting out of range; PuregraphError for an update without a closure

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), SAM(SGD(0.1), rho=0.05), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    asksAgain = True

    @takes(adaptive=Flag)
    def __init__(self, optimizer: Any, rho: float = 0.05, adaptive: bool = False):
        super().__init__({"*": optimizer})
        self.rho, self.adaptive = self.option("rho", rho), adaptive

    def update(self, closure: Callable[[], Any] | None = None) -> bool:
        """Make one step. `closure` runs forward and backward for the batch; it is called at w + e, and at w before if
        there are no new gradients.

        Raises    PuregraphError without a closure
        """
        ready = readyFor(self, closure)
        sizes = [slot.param.materialize() for slot in ready]
        grads = [slot.param.grad * w if self.adaptive else slot.param.grad for slot, w in zip(ready, sizes)]
        length, rho = normOf(grads), self.optionAt("rho", self.rho, self.step)
        kept = [w.copy() for w in sizes]
        for slot, w, grad in zip(ready, sizes, grads):
            w += rho / (length + 1e-12) * (w * grad if self.adaptive else grad)
            slot.param.bumpVersion()
        self.zeroGradParams()
        try:
            closure()  # type: ignore[misc]
        finally:
            for slot, w, before in zip(ready, sizes, kept):
                w[...] = before
                slot.param.bumpVersion()
        return super().update()


def readyFor(optimizer: Any, closure: Callable[[], Any] | None) -> list[Slot]:
    """Return the slots with new gradients; if there are none, call the closure first.

    Raises    PuregraphError without a closure
    """
    if closure is None:
        raise PuregraphError(
            f"{type(optimizer).__name__}: wanted update(closure), where closure() runs forward and backward and "
            "returns the cost: it is asked for more than one gradient in an update"
        )
    isNew = any(s.param.grad is not None and s.param.gradVersion != s.applied for s in optimizer.slots)
    if not isNew:
        closure()
    return optimizer.ready()
