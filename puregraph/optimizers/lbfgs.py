"""LBFGS: steps of a quasi-Newton method, for costs without noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.arguments import Count, NotNegative, choice, takes
from puregraph.optimizers.optimizer import Optimizer
from puregraph.optimizers.sam import readyFor

if TYPE_CHECKING:
    from puregraph.core.device import Array

SUFFICIENT, FLAT = 1e-4, 0.9  # c1 and c2 of the strong Wolfe conditions
CURVED = 1e-10  # a pair is kept if move @ turn is above this
MAX_EVALUATIONS = 25  # the most evaluations of one line search


class LBFGS(Optimizer):
    """d = -H g,   w = w + t d,   H from the last `history` changes of w and g

    An update makes up to `iterations` such steps; each takes a cost and gradient of all data, from `closure`. t is
    the learning rate (in the first step at most rate / ||g||_1), or found by a line search for the strong Wolfe
    conditions with `lineSearch="wolfe"`. An update ends early where no gradient is above `gradTolerance`, or no step or
    change of the cost above `changeTolerance`. As PyTorch's LBFGS without a line search.

        optimizer.update(closure)            # closure() runs forward and backward, and returns the cost

    Source    Liu, Nocedal 1989, Mathematical Programming 45; Nocedal, Wright 2006, algorithms 7.4, 7.5, 3.5, 3.6
    Raises    ArgumentError for a setting out of range; PuregraphError for an update without a closure

    >>> net = Sequential(Linear(3, 1))
    >>> trainer = Trainer(net, MSE(), LBFGS(lineSearch="wolfe"), batchsize=8, progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    asksAgain = True
    rule = {name: name for name in ("direction", "lastGrad", "moves", "turns", "memory", "param")}

    @takes(
        iterations=Count,
        history=Count,
        gradTolerance=NotNegative,
        changeTolerance=NotNegative,
        lineSearch=choice("wolfe") | None,
    )
    def __init__(
        self,
        learnRate: float = 1.0,
        iterations: int = 20,
        history: int = 10,
        gradTolerance: float = 1e-7,
        changeTolerance: float = 1e-9,
        lineSearch: str | None = None,
        schedule: Callable[[int], float] | None = None,
    ):
        super().__init__(learnRate, schedule)
        self.iterations, self.history = iterations, history
        self.gradTolerance, self.changeTolerance, self.lineSearch = gradTolerance, changeTolerance, lineSearch

    def start(self, param: Array) -> dict[str, Array]:
        past = np.zeros((self.history, *param.shape), param.dtype)
        zeros = np.zeros_like(param)
        memory = np.zeros((3,), param.dtype)  # number of iterations, of pairs kept, the last t
        return {"direction": zeros, "lastGrad": zeros.copy(), "moves": past, "turns": past.copy(), "memory": memory}

    def update(self, closure: Callable[[], Any] | None = None) -> bool:
        """Make up to `iterations` steps. `closure` runs forward and backward for all data and returns the cost.

        Raises    PuregraphError without a closure
        """
        readyFor(self, closure)
        search = QuasiNewton(self, closure, self.rateAt(self.step))  # type: ignore[arg-type]
        search.run()
        for slot in search.slots:
            slot.noteApplied(slot.param.gradVersion)
            slot.step += 1
        self.step += 1
        return True


class LinePoint(NamedTuple):
    """A point t along a direction: the cost there, its gradient, and the slope along the direction."""

    t: float
    cost: float
    grad: Array
    slope: float


class QuasiNewton:
    """The iterations of one update, on vectors of all parameters together."""

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any], rate: float):
        self.optimizer, self.closure, self.rate = optimizer, closure, rate
        self.slots = optimizer.ready()
        for slot in self.slots:
            optimizer.prepare(slot)
        self.params = [slot.param.materialize() for slot in self.slots]
        self.evaluations = 0
        self.direction, self.lastGrad = (self.joined(name) for name in ("direction", "lastGrad"))
        self.moves, self.turns = (self.rows(name) for name in ("moves", "turns"))
        count, kept, self.t = map(float, self.slots[0].arrays["memory"])
        self.count, self.kept = int(count), int(kept)

    def joined(self, name: str) -> Array:
        """Return a state of all parameters as one vector."""
        return np.concatenate([slot.arrays[name].reshape(-1) for slot in self.slots])

    def rows(self, name: str) -> Array:
        """Return a state of all parameters as one matrix, with a row for each step of the history."""
        return np.concatenate([slot.arrays[name].reshape(self.optimizer.history, -1) for slot in self.slots], axis=1)

    def gradient(self) -> Array:
        """Return the gradient of all parameters as one vector."""
        return np.concatenate([slot.param.grad.reshape(-1) for slot in self.slots])

    def write(self, vector: Array) -> None:
        """Write a vector to all parameters."""
        begin = 0
        for slot, param in zip(self.slots, self.params):
            param[...] = vector[begin : begin + param.size].reshape(param.shape)
            slot.param.bumpVersion()
            begin += param.size

    def evaluate(self) -> tuple[float, Array]:
        """Return the cost and gradient at the parameters' present values."""
        self.evaluations += 1
        self.optimizer.zeroGradParams()
        cost = float(np.asarray(self.closure()).reshape(-1)[0])
        return cost, self.gradient()

    def run(self) -> None:
        """Iterate until the gradient, step or change of cost is small enough, then store the state."""
        optimizer, grad = self.optimizer, self.gradient()
        cost = np.inf
        if optimizer.lineSearch is not None:
            cost, grad = self.evaluate()
        for number in range(1, optimizer.iterations + 1):
            if np.abs(grad).max(initial=0.0) <= optimizer.gradTolerance:
                break
            self.turn(grad)
            self.t = min(1.0, 1.0 / np.abs(grad).sum()) * self.rate if self.count == 1 else self.rate
            slope = float(grad @ self.direction)
            if slope > -optimizer.changeTolerance:
                break
            before = cost
            start = np.concatenate([param.reshape(-1) for param in self.params])
            if optimizer.lineSearch is not None:
                try:
                    self.t, cost, grad = self.searched(start, LinePoint(0.0, cost, grad, slope))
                except BaseException:
                    self.write(start)  # not left at a trial point
                    raise
            self.write(start + self.t * self.direction)
            if optimizer.lineSearch is None:
                if number == optimizer.iterations:
                    break  # the next update evaluates here
                cost, grad = self.evaluate()
                if self.evaluations + 1 >= optimizer.iterations * 5 // 4:
                    break
            if np.abs(self.t * self.direction).max() <= optimizer.changeTolerance:
                break
            if abs(cost - before) < optimizer.changeTolerance:
                break
        self.keep()

    def turn(self, grad: Array) -> None:
        """Set the direction from the gradient, and add its change since the last step to the history."""
        self.count += 1
        if self.count > 1:
            move, turn = self.t * self.direction, grad - self.lastGrad
            if float(move @ turn) > CURVED:
                self.moves, self.turns = np.roll(self.moves, -1, axis=0), np.roll(self.turns, -1, axis=0)
                self.moves[-1], self.turns[-1] = move, turn
                self.kept = min(self.kept + 1, len(self.moves))
        self.direction, self.lastGrad = -self.hessianTimes(grad), grad

    def hessianTimes(self, grad: Array) -> Array:
        """Return H g by the two-loop recursion: over the pairs kept from last to first, then from first to last."""
        pairs = list(zip(self.moves, self.turns))[len(self.moves) - self.kept :]
        shares = []
        q = grad.copy()
        for move, turn in reversed(pairs):
            shares.append(float(move @ q) / float(turn @ move))
            q -= shares[-1] * turn
        if pairs:
            move, turn = pairs[-1]
            q *= float(turn @ move) / float(turn @ turn)
        for (move, turn), share in zip(pairs, reversed(shares)):
            q += (share - float(turn @ q) / float(turn @ move)) * move
        return q

    def keep(self) -> None:
        """Write the state to the slots."""
        begin = 0
        for slot, param in zip(self.slots, self.params):
            part = slice(begin, begin + param.size)
            slot.arrays["direction"][...] = self.direction[part].reshape(param.shape)
            slot.arrays["lastGrad"][...] = self.lastGrad[part].reshape(param.shape)
            slot.arrays["moves"][...] = self.moves[:, part].reshape(-1, *param.shape)
            slot.arrays["turns"][...] = self.turns[:, part].reshape(-1, *param.shape)
            slot.arrays["memory"][...] = self.count, self.kept, self.t
            begin += param.size

    # Line search ----------------------------------------------------------------------------------------------

    def at(self, start: Array, t: float) -> LinePoint:
        """Evaluate the point t along the direction."""
        self.write(start + t * self.direction)
        cost, grad = self.evaluate()
        return LinePoint(t, cost, grad, float(grad @ self.direction))

    def searched(self, start: Array, first: LinePoint) -> tuple[float, float, Array]:
        """Return t, cost, gradient at a point that meets the strong Wolfe conditions, or at the best of all evaluated.

        cost(t) <= cost(0) + c1 t slope(0),   |slope(t)| <= c2 |slope(0)|
        """
        low, t = first, self.t
        for trial in range(MAX_EVALUATIONS):
            now = self.at(start, t)
            isHigh = not now.cost <= first.cost + SUFFICIENT * t * first.slope
            if isHigh or (trial and now.cost >= low.cost):
                return self.zoomed(start, first, low, now, trial)
            if abs(now.slope) <= -FLAT * first.slope:
                return now.t, now.cost, now.grad
            if now.slope >= 0:
                return self.zoomed(start, first, now, low, trial)
            low, t = now, 2.0 * t
        return low.t, low.cost, low.grad

    def zoomed(
        self, start: Array, first: LinePoint, low: LinePoint, high: LinePoint, trial: int
    ) -> tuple[float, float, Array]:
        """Return t, cost and gradient at such a point between two, of which `low` has the smaller cost."""
        for _ in range(trial, MAX_EVALUATIONS):
            t = cubicMinimum(low, high)
            if abs(high.t - low.t) * np.abs(self.direction).max() <= self.optimizer.changeTolerance:
                break
            now = self.at(start, t)
            if not now.cost <= first.cost + SUFFICIENT * t * first.slope or now.cost >= low.cost:
                high = now
                continue
            if abs(now.slope) <= -FLAT * first.slope:
                return now.t, now.cost, now.grad
            if now.slope * (high.t - low.t) >= 0:
                high = low
            low = now
        return low.t, low.cost, low.grad


def cubicMinimum(one: LinePoint, other: LinePoint) -> float:
    """The minimum of the cubic with the costs and slopes of two points, kept a tenth of their distance from both.

    Source    Nocedal, Wright 2006, eq. 3.59
    """
    middle, distance = (one.t + other.t) / 2, other.t - one.t
    t = middle
    if np.isfinite(other.cost) and distance:
        d1 = one.slope + other.slope - 3 * (one.cost - other.cost) / (one.t - other.t)
        square = d1 * d1 - one.slope * other.slope
        if square >= 0:
            d2 = np.sign(distance) * np.sqrt(square)
            under = other.slope - one.slope + 2 * d2
            t = other.t - distance * (other.slope + d2 - d1) / under if under else middle
    least, most = sorted((one.t + 0.1 * distance, other.t - 0.1 * distance))
    return float(min(max(t, least), most))
