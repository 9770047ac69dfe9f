"""StepRequest: what a compiled step of a graph has to compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puregraph.compile.gradientbuckets import GradientBuckets
    from puregraph.compile.trace.opaque import RuleProfile
    from puregraph.optimizers.optimizer import Optimizer


@dataclass(frozen=True)
class StepRequest:
    """The request of one step; the defaults are those of a forward pass.

    `grads`      None: forward only; "one": backward from the first output, a scalar; or for each output whether the
                 caller passes its gradient as an extra input
    `updGrad`    whether inputs get gradients; `keepGrads`: whether parameter gradients are left in `Param.grad`
    `optimizer`  updates the parameters at the end; `weights`: the sharded ones, see `WeightGather`
    `scaled`     whether parameter gradients are multiplied by the scalar "scale"; `added`: whether the existing
                 `Param.grad` is added
    `guarded`    whether the step ends if the first output, a cost, is not finite; `owner`: the optimizer that then
                 skips its update, which runs as a separate step
    `wanted`     for each output whether it is read after the step (default: all); `buckets`: see Schedule
    `orders`     for each input its axes from slowest to fastest in memory; None: row-major
    `layout`     chooses the layout of kernel results, see `channelslast.layoutFor`; None: numpy's
    `keepsComposite`  whether a kernel composed of numpy functions stays one call (default: all do)
    `scales`     whether the gradient of the first output is the loss scale, see `Schedule.seed`
    `converts`   whether byte inputs are converted to floats
    `trial`      the results of opaque rules, from a run of the graph itself
    """

    grads: Sequence[bool] | str | None = None
    updGrad: bool = True
    optimizer: Optimizer | None = None
    keepGrads: bool = True
    scaled: bool = False
    added: bool = False
    guarded: bool = False
    owner: Optimizer | None = None
    wanted: Sequence[bool] | None = None
    buckets: GradientBuckets | None = None
    weights: Any = None
    trial: RuleProfile | None = None
    orders: Sequence[Sequence[int] | None] | None = None
    layout: Callable[..., tuple[int, ...] | None] | None = None
    keepsComposite: Callable[[Any], bool] | None = None
    scales: bool = False
    converts: bool = False


FORWARD = StepRequest()
