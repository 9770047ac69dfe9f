"""Shrinking: the smallest spec that still fails, and the script that shows it."""

import time
from contextlib import suppress
from itertools import combinations

import numpy as np
from graphcompare import Comparison
from graphspec import SOURCES, NodeSpec, UnfitError, pruned, rebuilt, textOf

SECONDS = 60.0


def failureOf(spec, rules):
    """What is wrong with a spec; None if nothing is, or it cannot run at all."""
    try:
        return Comparison(spec, rules).failure()
    except UnfitError:
        return None


def smaller(spec, rules):
    """Specs that are a little smaller, those first by which most is gained."""
    shapes = rebuilt(spec, rules).shapes
    if spec.optimizer:
        yield spec._replace(optimizer="")
    if len(spec.outputs) > 1:
        for i in range(len(spec.outputs)):
            yield without(spec, i)
    if not spec.optimizer:
        for i in range(len(spec.given)):
            if spec.given[i] and sum(spec.given) > 1:
                yield spec._replace(given=tuple(g and j != i for j, g in enumerate(spec.given)))
    if any(spec.given):
        yield spec._replace(given=(), optimizer="")
    for i, line in reversed(list(enumerate(spec.lines))):
        if line.rule in SOURCES:
            continue
        if len(shapes[i]) == 1:
            yield replacedBy(spec, i, NodeSpec("input", shape=shapes[i][0]))
        for parent in line.parents:
            if len(shapes[i]) == 1 and shapes[i][0] == shapes[parent[0]][parent[1]]:
                yield rerouted(spec, i, parent)
        if line.again >= 0:
            yield replacedBy(spec, i, line._replace(again=-1))
    yield from merged(spec)
    yield from lower(spec)
    if spec.train:
        yield spec._replace(train=False)


def shrunk(spec, rules, failure, seconds=SECONDS, smaller=smaller, check=failureOf):
    """The smallest spec that is found to fail in the same way, and how it does."""
    end, isSmaller = time.monotonic() + seconds, True
    while isSmaller:
        isSmaller = False
        for other in smaller(spec, rules):
            if time.monotonic() > end:
                return spec, failure
            found = check(other, rules)
            if found is not None and found.kind == failure.kind:
                spec, failure, isSmaller = other, found, True
                break
    return spec, failure


def without(spec, i):
    """Without one of the outputs."""
    given = tuple(g for j, g in enumerate(spec.given) if j != i)
    if spec.given and not any(given):
        given = (True,) * len(given)
    return pruned(spec._replace(outputs=spec.outputs[:i] + spec.outputs[i + 1 :], given=given))


def replacedBy(spec, i, line):
    """With another line in the place of one."""
    return pruned(spec._replace(lines=(*spec.lines[:i], line, *spec.lines[i + 1 :])))


def rerouted(spec, i, parent):
    """With all that reads a line reading its parent."""

    def other(edge):
        return parent if edge[0] == i else edge

    lines = tuple(line._replace(parents=tuple(map(other, line.parents))) for line in spec.lines)
    return pruned(spec._replace(lines=lines, outputs=tuple(map(other, spec.outputs))))


def merged(spec):
    """With one input in the place of two."""
    for i, j in combinations(spec.sources, 2):
        if spec.lines[i] == spec.lines[j]:
            yield rerouted(spec, j, (i, 0))


def lower(spec):
    """With a size of the inputs made smaller, wherever inputs have it, or in one input alone."""
    sizes = sorted({d for i in spec.sources for d in spec.lines[i].shape}, reverse=True)
    for old in sizes:
        for new in sorted({n for n in (1, 2, 3, old // 2, old - 1) if 0 <= n < old}):
            yield resized(spec, lambda shape, old=old, new=new: tuple(new if d == old else d for d in shape))
    for i in spec.sources:
        shape = spec.lines[i].shape
        for axis, old in enumerate(shape):
            for new in sorted({n for n in (1, 2, old - 1) if 0 <= n < old}):
                line = spec.lines[i]._replace(shape=(*shape[:axis], new, *shape[axis + 1 :]))
                yield replacedBy(spec, i, line)


def resized(spec, change):
    """With other shapes of the inputs."""
    lines = [
        line._replace(shape=change(line.shape)) if line.shape is not None and line.rule in SOURCES else line
        for line in spec.lines
    ]
    return spec._replace(lines=tuple(lines))


def script(spec, rules):
    """A program of a few lines that shows what a spec gives, by the graph itself and compiled."""
    comparison = Comparison(spec, rules)
    with np.errstate(all="ignore"), suppress(Exception):
        comparison.eagerly(np.dtype(spec.dtype))  # which finds out whether there is anything to update
    made = f".calcMode({spec.dtype!r}){'.trainMode()' if spec.train else '.evalMode()'}"
    sources = [(spec.lines[i], rebuilt(spec, rules).limits.get(i)) for i in spec.sources]
    data = ", ".join(
        f"r.standard_normal({line.shape}).astype({spec.dtype!r})"
        if limit is None
        else f"r.integers(0, {limit}, {line.shape})"
        for line, limit in sources
    )
    text = ["import numpy as np", "import puregraph", *textOf(spec, rules)]
    text += [f"net{made}", f"r = np.random.default_rng({spec.seed})", "for p in net.params.values():"]
    text += ["    p.data = r.normal(size=p.shape).astype(p.dtype)", f"data = [{data}]"]
    if spec.given:
        text += ["ys = net(data)", "ys = ys if isinstance(ys, list) else [ys]"]
        text += [f"given = {list(spec.given)}"]
        text += ["grads = [r.standard_normal(y.shape).astype(y.dtype) if g else None for y, g in zip(ys, given)]"]
        if comparison.optimizer:
            text += [f"optimizer = puregraph.{comparison.optimizer}.setupOn(net)"]
        options = f", grads={spec.given}" + (", optimizer=optimizer" if comparison.optimizer else "")
        text += ["net.backward(grads if len(grads) > 1 else grads[0])"]
        text += ["print('eager', ys, net.grad, [p.grad for p in net.params.values()])"]
    else:
        options = ""
        text += ["print('eager', net(data))"]
    text += [
        "from puregraph.compile import Program",
        f"program = Program(net, [x.shape for x in data], [x.dtype for x in data]{options})",
    ]
    given = ", *[g for g in grads if g is not None]" if spec.given else ""
    text += [f"y = program.run(*data{given})"]
    text += [f"print('compiled', y{', program.grad, [p.grad for p in net.params.values()]' if spec.given else ''})"]
    return "\n".join(text)


def report(spec, rules, failure, seed):
    """What a test says of a failure: how the seed's graph was cut down, and a script."""
    small, failure = shrunk(spec, rules, failure)
    with np.printoptions(threshold=50):
        return f"seed {seed}: {failure.text}\n\n{script(small, rules)}\n\n{small}"
