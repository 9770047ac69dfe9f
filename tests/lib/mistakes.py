"""Mistakes: what people may give to every public callable in place of what it takes, and what they are told.

Each argument of each callable is given, one after the other, values of another type, out of range, or of another shape.
"""

import contextlib
import copy
import inspect
import io
import os
import re
import tempfile
import warnings
from typing import NamedTuple

import numpy as np

import puregraph
from puregraph import (
    BCE,
    MAE,
    MSE,
    SGD,
    Accuracy,
    Adam,
    AdamW,
    Calculator,
    Checkpoint,
    Confusion,
    Conv2D,
    Cosine,
    CrossEntropy,
    CsvLog,
    Dim,
    EarlyStop,
    Embedder,
    Epochs,
    Footprint,
    Formula,
    Graph,
    Input,
    Linear,
    Module,
    MomentumSGD,
    NesterovSGD,
    Node,
    OneCycle,
    Parallel,
    Param,
    ReduceOnPlateau,
    Relu,
    RMSProp,
    Sequential,
    State,
    Step,
    TensorBoard,
    TopK,
    Trainer,
    Validator,
    WarmUp,
    WeightAverage,
    checkGraph,
    checkModule,
    findRate,
    load,
    plotImages,
    plotParams,
    registerRule,
    seed,
    useDevice,
)
from puregraph.core.errors import PuregraphError
from puregraph.data import Augmented, TableReader, padded, readCsv, split
from puregraph.graph.analysis.summary import summary


def function(*arguments):
    """A function in the place of a value."""
    return arguments


WRONG = {
    "a text": "3",
    "a fraction": 2.5,
    "below 0": -1,
    "0": 0,
    "nan": float("nan"),
    "None": None,
    "a list": [1, 2, 3],
    "True": True,
    "an array": np.ones(2),
    "100000": 100_000,
    "a dict": {},
    "a class": dict,
    "a function": function,
}
LARGE = ("100000",)
COSTLY = {  # arguments that a large number would make slow, not wrong
    "count", "dilation", "embsize", "epochs", "length", "maps", "outmaps", "outsize", "pad", "scale", "shape", "size",
    "steps", "stride", "vocabulary", "classes", "hsize", "insize", "inmaps", "sections",
}  # fmt: skip
NUMBERS = np.random.default_rng(0)
TABLE = {"age": [20, 30], "city": ["Oslo", "Rome"], "bought": ["no", "yes"]}
DATA, LABELS = NUMBERS.normal(size=(12, 4)).astype("f4"), NUMBERS.integers(0, 3, 12)


class Outcome(NamedTuple):
    """What became of one mistake: the error with its message, or None where it was taken."""

    owner: str
    argument: str
    given: str
    error: type | None
    message: str


def net():
    return Sequential(Linear(4, 3, name="fc"), name="net")


def trainer(**options):
    return Trainer(net(), CrossEntropy(), SGD(0.1), batchsize=4, progress=False, **options)


def after(module, x):
    """A module after a pass."""
    module(x)
    return module


def saved():
    net().save("right.h5")
    return "right.h5"


def table():
    with open("right.csv", "w", encoding="utf-8") as file:
        file.write("a,b\n1,2\n")
    return "right.csv"


def linked():
    """The inputs and outputs of a graph."""
    x = Input(name="x").node()
    return {"inputs": x, "outputs": Relu(name="r")(x), "name": "g"}


def callables():
    """{name: (a callable, arguments by name that it takes)}, modules aside."""
    options = {
        "learnRate": 0.1,
        "decay": 0.0,
        "clipNorm": None,
        "clipValue": None,
        "onNonFinite": None,
        "schedule": None,
    }
    labels = {"axis": 1, "ignore": None, "which": 0, "name": None}
    training = {
        "net": net(), "cost": CrossEntropy(), "optimizer": SGD(0.1), "batchsize": 4, "metrics": [], "callbacks": [],
        "seed": 0, "accumulate": 1, "shuffle": True, "prefetch": 2, "progress": False, "compile": True, "readEvery": 16,
        "fastRun": False,
    }  # fmt: skip
    image = np.ones((1, 1, 5, 5), "f4")
    gradient = np.ones((12, 3), "f4")
    passes = {"grad": gradient, "updParamGrads": True, "updGrad": True, "scale": 1.0, "momentum": 0.0}
    compiling = {"cost": None, "optimizer": None, "train": None, "dtypes": None}
    return {
        "Accuracy": (Accuracy, {**labels, "threshold": 0.0}),
        "TopK": (TopK, {**labels, "k": 2}),
        "Confusion": (Confusion, {**labels, "classes": 3}),
        "MAE": (MAE, {"which": 0, "name": None}),
        "RocAuc": (
            puregraph.RocAuc,
            {**labels, "classes": 3, "average": "macro", "thresholds": 5, "probabilities": False},
        ),
        "LogLoss": (puregraph.LogLoss, {**labels, "probabilities": False}),
        "CalibrationError": (puregraph.CalibrationError, {**labels, "intervals": 15, "norm": "l1"}),
        "WER": (puregraph.WER, {"blank": 0, "space": 1, "ignore": -1, "axis": -1}),
        "BLEU": (puregraph.BLEU, {"order": 4, "ignore": -1, "axis": -1}),
        "MeanAveragePrecision": (
            puregraph.MeanAveragePrecision,
            {"thresholds": 0.5, "points": 101, "most": 100, "which": 0, "name": None},
        ),
        "SGD": (SGD, options),
        "MomentumSGD": (MomentumSGD, {"learnRate": 0.1, "momRate": 0.9}),
        "NesterovSGD": (NesterovSGD, {"learnRate": 0.1, "momRate": 0.9}),
        "RMSProp": (RMSProp, {"learnRate": 0.1, "factor": 0.9, "epsilon": 1e-5}),
        "Adam": (Adam, {"learnRate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}),
        "AdamW": (AdamW, {"learnRate": 1e-3, "decay": 0.01}),
        "Optimizer.setupOn": (lambda net: SGD(0.1).setupOn(net), {"net": net()}),
        "Cosine": (Cosine, {"total": 10, "final": 0.0}),
        "OneCycle": (OneCycle, {"total": 10, "rise": 0.3, "start": 0.04, "final": 4e-6}),
        "Step": (Step, {"size": 3, "factor": 0.1}),
        "Epochs": (Epochs, {"schedule": Step(3)}),
        "WarmUp": (WarmUp, {"steps": 3, "then": None, "start": None}),
        "Checkpoint": (Checkpoint, {"path": "c.h5", "every": "epoch", "best": None, "keep": 1, "mode": "auto"}),
        "CsvLog": (CsvLog, {"path": "c.csv"}),
        "EarlyStop": (EarlyStop, {"monitor": "val loss", "patience": 5, "mode": "auto", "least": 0.0, "restore": False}),
        "ReduceOnPlateau": (
            ReduceOnPlateau,
            {"monitor": "val loss", "factor": 0.1, "patience": 3, "mode": "auto", "least": 0.0, "lowest": 0.0},
        ),
        "TensorBoard": (TensorBoard, {"folder": "runs", "histograms": True}),
        "WeightAverage": (WeightAverage, {"decay": 0.999}),
        "Calculator": (
            lambda **given: Calculator(**given).calculate(DATA), {"net": net(), "batchsize": 4, "compile": True}
        ),
        "Calculator.calculate": (lambda data: Calculator(net(), 4).calculate(data), {"data": DATA}),
        "Validator": (
            lambda **given: Validator(**given).validate(DATA, LABELS),
            {"net": net(), "cost": CrossEntropy(), "metrics": [], "batchsize": 4, "compile": True},
        ),
        "Validator.validate": (
            lambda **given: Validator(net(), CrossEntropy(), batchsize=4).validate(**given),
            {"data": DATA, "target": LABELS},
        ),
        "Trainer": (lambda **given: Trainer(**given).train(DATA, LABELS), training),
        "Trainer.train": (
            lambda **given: trainer().train(**given),
            {"data": DATA, "target": LABELS, "epochs": 1, "validation": (DATA, LABELS)},
        ),
        "Trainer.save": (lambda path: trainer().save(path), {"path": "t.h5"}),
        "Trainer.resume": (lambda path: trainer().resume(path), {"path": "none.h5"}),
        "Graph": (Graph, linked()),
        "Sequential": (lambda module, **given: Sequential(module, **given), {"module": Relu(), "name": "s"}),
        "Parallel": (lambda module, **given: Parallel(module, **given), {"module": Relu(), "name": "p"}),
        "Sequential.append": (lambda module: net().append(module), {"module": Relu()}),
        "Sequential.insert": (lambda **given: net().insert(**given), {"index": 0, "module": Relu()}),
        "Sequential.pop": (lambda index: net().pop(index), {"index": 0}),
        "Sequential[...]": (lambda index: net()[index], {"index": "fc"}),
        "Node": (Node, {"mod": Relu(), "parents": None, "name": "n"}),
        "Param": (lambda **given: Param(**given).data, {"shape": (2, 3), "initial": "zeros", "dtype": "float32"}),
        "State": (lambda **given: State(**given).data, {"shape": (2, 3), "initial": "zeros", "dtype": "float32"}),
        "Param.data": (lambda data: setattr(Param((3,)), "data", data), {"data": np.ones(3, "f4")}),
        "Graph.dataShapeFrom": (lambda shape: net().dataShapeFrom(shape), {"shape": (2, 4)}),
        "Graph.gradShapeFrom": (
            lambda gradShape, shape: net().gradShapeFrom(gradShape, shape), {"gradShape": (2, 3), "shape": (2, 4)}
        ),
        "Graph.__call__": (lambda x: net()(x), {"x": DATA}),
        "Graph.backward": (lambda **given: after(net(), DATA).backward(**given), passes),
        "Linear.backward": (lambda **given: after(Linear(4, 3), DATA).backward(**given), passes),
        "Graph.calcMode": (lambda mode: net().calcMode(mode), {"mode": "float32"}),
        "Graph.compile": (
            lambda shape, **given: net().compile(shape, **given).run(DATA), {"shape": (12, 4), **compiling, "train": False}
        ),
        "Graph.compile with a cost": (
            lambda shapes, **given: net().compile(shapes, **given).run(DATA, LABELS),
            {"shapes": [(12, 4), (12,)], **compiling, "cost": CrossEntropy(), "optimizer": SGD(0.1), "sampleWeight": None},
        ),
        "Program.run": (lambda x: net().compile((12, 4), train=False).run(x), {"x": DATA}),
        "Graph.save": (lambda **given: net().save(**given), {"path": "s.h5", "optimizer": None}),
        "Graph.load": (
            lambda **given: net().load(**given),
            {"path": saved(), "strict": True, "optimizer": None, "root": None, "format": "puregraph"},
        ),
        "load": (load, {"path": saved(), "format": "puregraph"}),
        "Linear()": (lambda x: Linear(4, 3)(x), {"x": DATA}),
        "Conv2D()": (lambda x: Conv2D(1, 2, 3)(x), {"x": image}),
        "Embedder()": (lambda x: Embedder(5, 3)(x), {"x": LABELS}),
        "CrossEntropy()": (lambda x, labels: CrossEntropy()(x, labels), {"x": DATA[:, :3], "labels": LABELS}),
        "MSE()": (lambda x, target: MSE()(x, target), {"x": DATA, "target": DATA}),
        "BCE()": (lambda x, target: BCE()(x, target), {"x": DATA, "target": (DATA > 0).astype("f4")}),
        "Footprint": (lambda graph, shape: Footprint(graph, shape), {"graph": net(), "shape": (2, 4)}),
        "summary": (
            lambda graph, shape, width: summary(graph, shape, width=width), {"graph": net(), "shape": (2, 4), "width": 80}
        ),
        "checkModule": (checkModule, {"module": Relu(), "shapes": [(2, 3)], "seed": 0}),
        "checkGraph": (checkGraph, {"graph": net(), "shapes": [(2, 4)], "seed": 0}),
        "registerRule": (registerRule, {"moduleType": Relu, "name": "tried"}),
        "seed": (seed, {"number": 1}),
        "useDevice": (lambda wanted: useDevice(wanted).close(), {"wanted": "cpu"}),
        "Formula": (Formula, {"text": "x"}),
        "Dim": (Dim, {"text": "N"}),
        "findRate": (
            lambda **given: findRate(**given),
            {"trainer": trainer(), "data": DATA, "target": LABELS, "lowest": 1e-6, "highest": 1.0, "steps": 5},
        ),
        "Augmented": (
            lambda **given: next(Augmented(**given)(0)),
            {"images": np.ones((12, 1, 3, 3), "f4"), "target": LABELS, "batchsize": 4, "flip": True, "crop": 1, "seed": 0},
        ),
        "TableReader": (
            lambda **given: TableReader(**given).fit(TABLE).data(TABLE),
            {"numbers": "age", "categories": "city", "classes": "bought", "fill": None, "scale": False},
        ),
        "TableReader.fit": (lambda table: TableReader(numbers="age").fit(table), {"table": TABLE}),
        "readCsv": (readCsv, {"path": table(), "delimiter": ",", "gaps": "", "encoding": "utf-8"}),
        "padded": (padded, {"sequences": [[1, 2], [3]], "length": None, "value": 0}),
        "plotImages": (plotImages, {"images": image, "titles": None, "columns": 1, "span": None}),
        "plotParams": (plotParams, {"net": net(), "pattern": "*"}),
        "split": (split, {"data": DATA, "target": LABELS, "part": 0.25, "seed": 0, "stratify": True}),
    }  # fmt: skip


def modules():
    """{name: (its class, arguments by name, input shapes)} for every public module, from its examples."""
    found = {}
    for name in puregraph.__all__:
        cls = getattr(puregraph, name)
        if not (isinstance(cls, type) and issubclass(cls, Module)) or cls.examples.__func__ is Module.examples.__func__:
            continue
        parameters = inspect.signature(cls.__init__)
        arguments, shapes = {}, []
        for module, example in cls.examples():
            if type(module) is cls:
                args, kwargs = module.initArgs
                bound = parameters.bind(None, *args, **kwargs).arguments
                if not any(parameters.parameters[n].kind in (2, 4) for n in list(bound)[1:]):
                    arguments = {**dict(list(bound.items())[1:])} if not arguments else arguments
                    shapes = shapes or example
        plain = [p for p in list(parameters.parameters.values())[1:] if p.kind not in (2, 4) and p.name != "name"]
        if plain:
            found[name] = cls, {p.name: arguments.get(p.name, p.default) for p in plain}, shapes
    return found


def outcomes(name, call, arguments):
    """What becomes of each wrong value in the place of each argument."""
    for argument in arguments:
        for given, wrong in WRONG.items():
            if given in LARGE and argument in COSTLY:
                continue
            yield tried(name, argument, given, call, {**arguments, argument: wrong})


def tried(name, argument, given, call, arguments):
    """The outcome of one call."""
    try:
        arguments = copy.deepcopy(arguments)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(**arguments)
        return Outcome(name, argument, given, None, "")
    except Exception as error:
        return Outcome(name, argument, given, type(error), plain(str(error)))


def plain(message):
    """The first line of a message, or of several faults all, without what differs from run to run."""
    first = message.split("\n")[0]
    return re.sub(r" at 0x[0-9a-f]+", "", " ".join(message.split()) if first.endswith("their inputs") else first)


def made(cls, arguments, shapes):
    """A module of these arguments, run once."""
    module = cls(**arguments)
    if shapes:
        module.dataShapeFrom(*shapes)
        module(*module.sample(np.random.default_rng(0), *shapes))
    return module


def ofModule(name):
    """The outcomes of the arguments of one module."""
    cls, arguments, shapes = modules()[name]
    return list(outcomes(name, lambda **given: made(cls, given, shapes), arguments))


def ofCallable(name):
    """The outcomes of the arguments of any other callable."""
    return list(outcomes(name, *callables()[name]))


def isOurs(error):
    """Whether an error is one that puregraph raises itself; an index out of range is one of Python's."""
    return issubclass(error, (PuregraphError, IndexError))


def owners():
    """The names of all callables that are tried."""
    with folderOfItsOwn():
        return [*modules(), *callables()]


def of(owner):
    """The outcomes of all arguments of one callable."""
    with folderOfItsOwn():
        return ofModule(owner) if owner in modules() else ofCallable(owner)


@contextlib.contextmanager
def folderOfItsOwn():
    """What is written inside is gone afterwards."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def rows(found):
    """A line for each argument of a table: what was taken of what was tried, and one message for the rest."""
    for argument in dict.fromkeys(outcome.argument for outcome in found):
        own = [outcome for outcome in found if outcome.argument == argument]
        taken = ", ".join(outcome.given for outcome in own if outcome.error is None)
        refused = [outcome for outcome in own if outcome.error is not None]
        message = f"{refused[0].given}: {refused[0].error.__name__}: {cell(refused[0].message)}" if refused else ""
        yield f"| `{argument}` | {taken or 'none'} | {message} |"


def cell(message):
    """A message as a cell of a table."""
    short = message if len(message) <= 200 else message[:200] + " ..."
    return "`" + short.replace("|", "\\|").replace("`", "'") + "`"


def page():
    """The page of docs: every callable, every argument."""
    lines = [HEAD]
    for owner in owners():
        lines += [
            "",
            f"## {owner}",
            "",
            "| argument | taken | refused, for example |",
            "|---|---|---|",
            *rows(of(owner)),
        ]
    return "\n".join(lines) + "\n"


HEAD = """# What is refused

Every argument of every public callable was given, one after the other, {values}. This page says which of
them were taken, and the message for the first one that was not. `python scripts/refusals.py` writes it, and a test compares it.
""".format(values=", ".join(WRONG))
