"""Networks that NNSmith draws: exported by PyTorch, read from ONNX, and compared with PyTorch, eager and compiled.

What PyTorch gives in float32 and in float64 stands beside the compiled step; both may be off by what `graphcompare`
measures on the graph.
"""

import copy
import io
import itertools
import pathlib
import random
import re
import warnings
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np
import onnx
import torch
import z3
from graphcompare import Comparison, Failure, listed, moved, optimizerOf, shake
from graphshrink import shrunk
from graphspec import UnfitError
from nnsmith.abstract.dtype import DType
from nnsmith.abstract.op import Cast, Constant, Input, InterpBase
from nnsmith.gir import GraphIR, InstExpr
from nnsmith.graph_gen import model_gen
from nnsmith.materialize.torch import TorchModelCPU
from nnsmith.materialize.torch.symbolnet import SymbolNet

from puregraph.core.errors import PuregraphError
from puregraph.onnx import fromOnnx

DTYPES = [DType.float32, DType.float64, DType.int64, DType.int32, DType.bool]
OFTEN = ("NCHWConv2d", "Conv1d", "Linear", "MatMul", "PTMatMul", "BatchNorm2d", "PReLU", "Softmax")
ELEMENTS = 2048  # of one value
WEIGHTS = 1_000_000  # elements of all parameters
SECONDS = 100  # for one network, which takes a few hundredths
RATE = 0.05
RANGES = ((-1.5, 2.5), (-0.95, 0.95), (0.05, 0.95), (1, 4))  # of data: some functions have no value for all numbers


class Instruction(NamedTuple):
    """One operation of NNSmith, and the names that it reads and gives."""

    op: object
    args: tuple
    names: tuple


class NetSpec(NamedTuple):
    """A network and what is done with it; `outputs` are those that are compared."""

    lines: tuple
    outputs: tuple
    seed: int
    optimizer: str = ""
    train: bool = True

    @property
    def types(self):
        return {name: t for line in self.lines for name, t in zip(line.names, line.op.output_like)}

    @property
    def dtype(self):
        """The coarsest of its floats."""
        isFine = all(t.dtype != DType.float32 for t in self.types.values())
        return "float64" if isFine else "float32"

    @property
    def given(self):
        """For each output whether its gradient is given; empty where none is of floats."""
        isFloat = tuple(self.types[name].dtype in (DType.float32, DType.float64) for name in self.outputs)
        return isFloat if any(isFloat) else ()


@cache
def operators():
    """The operations of NNSmith for these dtypes; those with parameters several times."""
    TorchModelCPU.add_seed_setter()
    found = []
    for op in TorchModelCPU.operators():
        op.in_dtypes = [types for types in op.in_dtypes if all(t in DTYPES for t in types)]
        op.out_dtypes = [types for types in op.out_dtypes if all(t in DTYPES for t in types)]
        if op.in_dtypes and op.out_dtypes:
            found += [op] * (10 if op.__name__ in OFTEN else 1)
    return found


def randomNet(seed, most=6):
    """The network of a seed."""
    options = {"max_elem_per_tensor": ELEMENTS, "timeout_ms": SECONDS * 1000, "dtype_choices": DTYPES}
    count = random.Random(seed).randint(1, most)
    z3.z3._main_ctx = None  # the solver's choices follow from all that its context has seen
    drawn = model_gen(operators(), "symbolic-cinit", max_nodes=count, seed=seed, **options).make_concrete()
    lines = tuple(Instruction(i.iexpr.op, tuple(i.iexpr.args), tuple(i.retvals())) for i in drawn.insts)
    return NetSpec(lines, tuple(drawn.leaf_var()), seed, f"SGD({RATE})" if seed % 2 else "", seed % 4 > 0)


def pruned(spec):
    """Without what leads to no output."""
    needed, kept = set(spec.outputs), []
    for line in reversed(spec.lines):
        if needed & set(line.names):
            needed |= set(line.args)
            kept.append(line)
    return spec._replace(lines=tuple(reversed(kept)))


class ComparedNet(SymbolNet):
    """The module of PyTorch that NNSmith makes of instructions; gives some values, in their order."""

    def __init__(self, spec):
        self.spec = spec
        ir, names = GraphIR(), {}
        for line in spec.lines:
            inst = ir.add_inst(InstExpr(copy.deepcopy(line.op), [names[a] for a in line.args]))
            ir.insts.remove(inst)
            ir.insts.append(inst)
            names |= zip(line.names, inst.retvals())
        super().__init__(ir)
        self.output_map = {names[name]: ir.vars[names[name]] for name in spec.outputs}


class NetComparison(Comparison):
    """A network with its data."""

    steps = 2

    def __init__(self, spec, rules=None):
        self.spec, self.optimizer = spec, spec.optimizer
        rng = np.random.default_rng(spec.seed)
        with torch.device("meta"):  # which takes no memory
            size = sum(p.numel() for p in ComparedNet(spec).parameters())
        if size > WEIGHTS:
            raise UnfitError(f"{size:,} elements of weights")
        torch.manual_seed(spec.seed)
        self.net = ComparedNet(spec).eval()
        for p in self.net.parameters():
            if p.is_floating_point():  # so that no two are equal, which an exporter would merge
                p.data += torch.from_numpy(np.asarray(rng.standard_normal(p.shape) * 0.1))
        for name, buffer in self.net.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer += torch.from_numpy(np.asarray(rng.random(buffer.shape)))
        shapes = self.drawData(rng)
        self.seeds = [
            [np.asarray(rng.standard_normal(s)) if given else None for s, given in zip(shapes, spec.given)]
            for _ in range(self.steps)
        ]
        self.model = exported(self.net, self.data[0])

    def drawData(self, rng):
        """Set the data of all steps, of a range in which the outputs are finite if there is one; gives their shapes."""
        for low, high in RANGES:
            sources = self.net.input_map.values()
            self.data = [[drawn(rng, t, low, high) for t in sources] for _ in range(self.steps)]
            try:
                with torch.no_grad():
                    ys = [y for data in self.data for y in self.module()(*map(torch.from_numpy, data))]
            except (RuntimeError, ValueError, IndexError) as error:
                raise UnfitError(f"PyTorch does not run it: {error}") from error
            if all(y.isfinite().all() for y in ys):
                break
        return [tuple(y.shape) for y in ys[: len(self.spec.outputs)]]

    def module(self, isExact=False):
        """A copy of the module in its mode; with `isExact` in float64."""
        return (exact(self.spec, self.net) if isExact else copy.deepcopy(self.net)).train(self.spec.train)

    @cached_property
    def read(self):
        """The graph that is read of the model."""
        graph = fromOnnx(self.model)
        return graph.trainMode() if self.spec.train else graph.evalMode()

    @cached_property
    def ran(self):
        """A copy of the graph that has computed the outputs of the first step."""
        graph = copy.deepcopy(self.read)
        graph(self.data[0])
        return graph

    @cached_property
    def outputTypes(self):
        """The dtypes that the model gives; an exporter narrows some."""
        return [y.dtype for y in listed(self.ran.data)]

    @cached_property
    def coarsest(self):
        """The coarsest floats that the graph computes in: an exporter narrows values inside as well."""
        values = [x for node in self.ran.nodes for x in listed(node.data) if x is not None]
        return min(
            (x.dtype for x in values if x.dtype.kind == "f"), key=lambda t: t.itemsize, default=np.dtype("float64")
        )

    def graph(self, dtype, noise=None, isInside=False):
        """The graph with its parameters, and an optimizer or None."""
        graph = copy.deepcopy(self.read)
        for p in graph.params.values():
            p.data = moved(p.data, noise).astype(p.dtype)
        name, _, rest = self.optimizer.partition("(")
        isKnown = len(paired(graph.params, self.net.parameters())) == len(graph.params)
        if not graph.params or not self.spec.given or noise is None and not isKnown:
            self.optimizer = name = ""
        optimizer = optimizerOf(name, rest).setupOn(graph) if name else None
        if noise is not None:
            for module in {step.module for step in graph.steps().items}:
                shake(module, noise, isInside)
        return graph, optimizer

    def given(self, step, dtype, noise=None):
        """The data and the gradients of the outputs of a step, each in its own dtype."""
        types = self.outputTypes
        data = [moved(x, noise).astype(x.dtype) if x.dtype.kind == "f" else x for x in self.data[step]]
        return [data, [g if g is None else moved(g, noise).astype(t) for g, t in zip(self.seeds[step], types)]]

    def precision(self, kind):
        """PyTorch is compared in float32: attributes are written in it, whatever a network computes in."""
        return self.coarsest if kind == "difference" else np.dtype("float32")

    def wide(self):
        """The results in float64."""
        return self.byTorch(True)

    def references(self, eager, dtype):
        """By PyTorch; parameters that follow from several of its own are not compared, nor are gradients that were not
        finite, or are of weights that are folded into one, nor what is behind such an update. In float32 PyTorch computes
        the places between which it interpolates in float32 too: of 1,000 elements they are off by 1e-4 of an element."""
        isFinite = all(np.isfinite(x).all() for x in eager.values() if x is not None and x.dtype.kind == "f")
        found = {"torch": self.byTorch(False), "float64": self.wide()}
        if isResized(self.spec):
            del found["torch"]
        if not isFinite or isFolded(self.spec):
            found = {
                kind: {k: x for k, x in each.items() if re.match(r"output \d+ of step 0", k)}
                for kind, each in found.items()
            }
        return {kind: eager | each for kind, each in found.items()}

    def byTorch(self, isExact):
        """The same by PyTorch; with `isExact` all that is of floats in float64."""
        net, found = self.module(isExact), {}
        params, states = paired(self.read.params, net.parameters()), paired(self.read.states, net.buffers())
        for step in range(self.steps):
            data, seeds = self.given(step, None)
            xs = [leaf(x, isExact) for x in data]
            ys = net(*xs)
            grads = gradients(ys, seeds, [*xs, *(p for p, _ in params.values())])
            found |= {f"output {i} of step {step}": y.detach().numpy().copy() for i, y in enumerate(ys)}
            if seeds:
                found |= {f"gradient of input {i} in step {step}": g for i, g in enumerate(grads[: len(xs)])}
            for (path, (p, bring)), grad in zip(params.items(), grads[len(xs) :]):
                if self.optimizer:  # a program with one keeps no gradients
                    p.data -= RATE * torch.from_numpy(grad)
                elif self.spec.train:
                    found[f"gradient of {path} in step {step}"] = bring(grad)
        both = (params | states).items()
        return found | {f"{path} afterwards": bring(p.detach().numpy()) for path, (p, bring) in both}


def isFolded(spec):
    """Whether an operator of weights alone is computed while reading: its result is what trains then, not the weights."""
    fixed = set()
    for line in spec.lines:
        if type(line.op) is Constant or line.args and fixed.issuperset(line.args):
            fixed.update(line.names)
    return any(line.args and fixed.issuperset(line.args) for line in spec.lines)


def isResized(spec):
    """Whether something is interpolated."""
    return any(isinstance(line.op, InterpBase) for line in spec.lines)


def drawn(rng, like, low, high):
    """Data of an input."""
    if like.dtype == DType.bool:
        return np.asarray(rng.random(like.shape) < 0.5)
    if like.dtype in (DType.int64, DType.int32):
        return np.asarray(rng.integers(min(round(low), 0), 6, like.shape), like.dtype.numpy())
    return np.asarray(rng.uniform(low, high, like.shape), like.dtype.numpy())


def leaf(x, isExact):
    """A tensor of which the gradient is asked, if it is of floats."""
    x = torch.from_numpy(x.copy())
    if x.is_floating_point():
        x = (x.double() if isExact else x).requires_grad_()
    return x


def exact(spec, net):
    """The module in float64, in which nothing is cast to float32."""
    lines = copy.deepcopy(spec.lines)
    for line in lines:
        if isinstance(line.op, Cast) and line.op.extra_attrs["to"] == DType.float32:
            line.op.extra_attrs["to"] = DType.float64
    found = ComparedNet(spec._replace(lines=lines))
    found.load_state_dict(net.state_dict())
    return found.double().eval()


def gradients(ys, seeds, wanted):
    """The gradients of tensors; 0 where there is none."""
    pairs = [(y, torch.from_numpy(g).to(y.dtype)) for y, g in zip(ys, seeds) if g is not None and y.requires_grad]
    asked = [x for x in wanted if x.requires_grad]
    given = [None] * len(asked)
    if pairs and asked:
        outputs, grads = zip(*pairs)
        given = torch.autograd.grad(outputs, asked, grads, allow_unused=True)
    found = iter(given)
    return [filled(x, next(found)) if x.requires_grad else None for x in wanted]


def filled(x, grad):
    return np.zeros(x.shape, x.detach().numpy().dtype) if grad is None else grad.numpy()


def paired(ours, theirs):
    """For each array of the graph the one of the module that has its values, and how an array of that is brought to
    the shape of this."""
    found, theirs = {}, [p for p in theirs if p.is_floating_point()]
    for path, p in ((path, p) for path, p in ours.items() if p.dtype.kind == "f"):
        for q, bring in itertools.product(theirs, (np.asarray, np.transpose)):
            values = bring(q.detach().numpy())
            if values.size == p.data.size and np.array_equal(values.astype(p.dtype).ravel(), p.data.ravel()):
                found[path] = q, partial(brought, bring, p.shape)
                break
    return found


def brought(bring, shape, x):
    return bring(x).reshape(shape)


def exported(net, data):
    """The model that PyTorch writes."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net,
            tuple(map(torch.from_numpy, data)),
            file,
            opset_version=17,
            dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            input_names=list(net.input_map),
        )
    return onnx.load_from_string(file.getvalue())


# Smaller ones ---------------------------------------------------------------------------------------------------------


def netFailure(spec, rules=None):
    """What is wrong with a network; None if nothing is, or PyTorch itself cannot run it."""
    try:
        comparison = NetComparison(spec)
    except UnfitError:
        return None
    try:
        _ = comparison.read
        return comparison.failure()
    except PuregraphError as error:
        return Failure(f"read {type(error).__name__}", f"fromOnnx: {error}")
    except UnfitError as error:
        return Failure("refused", f"the graph does not run: {error}")


def smallerNets(spec, rules=None):
    """Networks that are a little smaller."""
    for name in spec.outputs if len(spec.outputs) > 1 else ():
        yield pruned(spec._replace(outputs=tuple(n for n in spec.outputs if n != name)))
    if spec.optimizer:
        yield spec._replace(optimizer="")
    types = spec.types
    computed = {name for line in spec.lines if line.args for name in line.names}
    for i, line in reversed(list(enumerate(spec.lines))):
        if isinstance(line.op, Input):
            continue
        before, after = spec.lines[:i], spec.lines[i + 1 :]
        if len(line.names) == 1 and types[line.names[0]].dtype != DType.bool:
            source = Input(dim=types[line.names[0]].ndims)
            source.bind_output_like([types[line.names[0]]])
            source.abs_tensor = types[line.names[0]]
            yield pruned(spec._replace(lines=(*before, Instruction(source, (), line.names), *after)))
        for arg in line.args if len(line.names) == 1 and line.names[0] not in spec.outputs else ():
            if types[arg] == types[line.names[0]]:
                swapped = {line.names[0]: arg}
                lines = [x._replace(args=tuple(swapped.get(a, a) for a in x.args)) for x in after]
                yield pruned(spec._replace(lines=(*before, line, *lines)))
        if line.names[0] in spec.outputs:
            for arg in (a for a in line.args if a in computed):
                outputs = (*(n for n in spec.outputs if n not in (*line.names, arg)), arg)
                yield pruned(spec._replace(outputs=outputs))


def written(spec, failure, folder):
    """Write the smallest network that still fails like this one to a folder, with its data; gives what is wrong with it."""
    small, failure = shrunk(spec, None, failure, smaller=smallerNets, check=netFailure)
    comparison = NetComparison(small)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(comparison.model, str(folder / "model.onnx"))
    arrays = {
        f"{name}_{i}": x for name, xs in zip(("input", "gradient"), comparison.given(0, None)) for i, x in enumerate(xs)
    }
    np.savez(folder / "data.npz", **{name: x for name, x in arrays.items() if x is not None})
    text = "\n".join(f"{', '.join(line.names)} = {line.op}({', '.join(line.args)})" for line in small.lines)
    (folder / "failure.txt").write_text(f"seed {spec.seed}: {failure.kind}: {failure.text}\n\n{text}\n")
    return failure
