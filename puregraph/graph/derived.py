"""Derived: a parameter that a module computes from other parameters, once in every pass."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from puregraph.core.applied import asGrads
from puregraph.core.base.widen import forwardRule
from puregraph.core.errors import ArgumentError, UnknownAttributeError
from puregraph.core.param import DerivedKind, Param
from puregraph.core.rules import gradientRule
from puregraph.graph.module import Module


class Derived(DerivedKind, Module):
    """W = rule(parameters), in place of the parameter W of another module: `linear.W = WeightNorm(linear.W)`

    It is a Module without inputs whose rule gives the parameter; its own Params and States are those that are trained,
    stored and loaded (`fc.W.v`, `fc.W.g`). In a graph it is computed once in a pass, however many nodes read it, and
    compiled with the step. If a module is called outside a graph, it is computed in each call. `bake()` of the module,
    or of the graph, replaces it by an array.

    A subclass is made from the Param that it replaces and from settings, which `super().__init__(**settings)` notes;
    `declare` makes its arrays from that Param.

    Shapes    -> the shape of the parameter
    Raises    ArgumentError for anything but a Param
    """

    kind = "derived parameter"
    made = True
    passesStraight = False  # True if the gradient treats a non-constant value as constant
    gives = ""

    def __init__(self, of: Any, **settings: Any):
        super().__init__()
        self.settings = settings
        if not isinstance(of, Param):
            raise ArgumentError(
                f"{type(self).__name__}: wanted the parameter that it replaces, as in "
                f"fc.W = {type(self).__name__}(fc.W), got {type(of).__name__}"
            )
        self.shape = of.shape
        self.declare(of)

    def declare(self, of: Param) -> None:
        """Make the parameters and states, so that the rule gives what `of` holds."""
        raise NotImplementedError(f"{type(self).__name__} makes no parameters: write declare(self, of)")

    @classmethod
    def described(cls, shape: tuple[int, ...], settings: dict[str, Any]) -> Any:
        """Make one with these settings and without arrays, to be loaded from a file."""
        derived = cls.__new__(cls)
        Module.__init__(derived)
        vars(derived).update(settings=settings, shape=shape, initArgs=((), {}))
        derived.begin()
        return derived

    def begin(self) -> None:
        """Set further attributes besides settings and arrays; none by default."""

    @classmethod
    def on(cls, net: Any, pattern: str = "*.W", **settings: Any) -> int:
        """Replace all parameters of a network whose path matches a pattern by this, each array once.

        Returns the number of replaced parameters.

        Raises    ArgumentError if none matches
        """
        made: dict[int, Derived] = {}
        replaced = 0
        for path, module in net.modules().items():
            for name in module.ruleNames:
                param = vars(module).get(name)
                if isinstance(param, Param) and fnmatchcase(f"{path}.{name}", pattern):
                    if id(param) not in made:
                        made[id(param)] = cls(param, **settings)
                    setattr(module, name, made[id(param)])
                    replaced += 1
        if not replaced:
            raise ArgumentError(
                f"{cls.__name__}: no parameter matches {pattern!r}; there are {', '.join(net.params):.300}"
            )
        return replaced

    def dataShapeFrom(self) -> Any:
        return self.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the parameters that it is computed from."""
        return next(param.dtype for param in self.params.values())

    def dataTypeFrom(self, *dtypes: Any) -> Any:
        return self.dtype

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def materialize(self) -> Any:
        """Compute the array."""
        result = forwardRule(self, self.ruleValues(), 0)
        return result[0] if type(result) is tuple else result

    @property
    def array(self) -> Any:
        """The current array; computing it changes no state."""
        return self.outputs()[0]

    def refuseData(self, value: Any) -> None:
        """Raise    UnknownAttributeError, for an array that is computed"""
        raise UnknownAttributeError(
            f"{type(self).__name__}: it is computed from {', '.join(self.params)}: set .data of those, "
            "or call bake() first"
        )

    data: Any = property(lambda self: self.array, refuseData, doc="The array as it is now.")

    def outputs(self) -> tuple[Any, ...]:
        """Compute the outputs of the rule in evalMode, in which it changes no state."""
        attributes = vars(self)  # bypasses __setattr__, which would set a new version
        before = self.isTraining
        attributes["isTraining"] = False
        try:
            result = forwardRule(self, self.ruleValues(), 0)
        finally:
            attributes["isTraining"] = before
        return result if type(result) is tuple else (result,)

    def isWanted(self) -> bool:
        """True if a parameter that it is computed from is trained."""
        return any(param.trainable for param in self.params.values())

    def store(self, new: Any, scale: float = 1.0, momentum: float = 0.0, alias: bool = False) -> None:
        """Pass a gradient on to the parameters that it is computed from, for a module that was called by itself."""
        params = self.ruleParams()
        needs = tuple([isinstance(p, Param) and p.trainable for p in params])
        grads: tuple[Any, ...] = (None,) * len(params)
        if new is not None and any(needs):
            rule = gradientRule(self, needs)
            grads = asGrads(rule(new, *self.ruleValues(), *self.outputs()), len(params), self.label)
        for param, grad, isNeeded in zip(params, grads, needs):
            if isNeeded and isinstance(param, Param):
                param.store(grad, scale, momentum)

    @classmethod
    def examples(cls) -> Iterator[tuple[Module, list[Any]]]:
        for shape in ((3, 4), (4, 2, 3)) if cls is not Derived else ():
            yield cls(Param(shape, lambda rng, shape: rng.standard_normal(shape))), []

    def brief(self) -> str:
        settings = [f"{name}={value!r}" for name, value in self.settings.items() if value is not None]
        return f"{type(self).__name__}({', '.join(settings)})"

    def baked(self) -> Param:
        """Return a Param with the current array."""
        param = Param(self.shape, dtype=self.dtype)
        param.adopt(self.array.copy())
        return param
