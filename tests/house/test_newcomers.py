"""What people write who come from elsewhere, or on their first day, is answered with what to write instead."""

import re
import warnings

import numpy as np
import pytest

import puregraph
from puregraph import (
    BCE,
    LSTM,
    MAE,
    MSE,
    SGD,
    Accuracy,
    ArgumentError,
    BatchNorm,
    Calculator,
    Checkpoint,
    CheckpointError,
    Concat,
    Confusion,
    Conv2D,
    CostSum,
    CrossEntropy,
    DataError,
    EarlyStop,
    Embedder,
    FormulaError,
    Graph,
    GraphError,
    GraphWarning,
    Input,
    LayerNorm,
    Linear,
    Module,
    Param,
    PointwiseCost,
    Relu,
    Reshape,
    Sequential,
    ShapeError,
    Sigmoid,
    TopK,
    Trainer,
    plotImages,
)
from puregraph.core.errors import UnknownAttributeError
from puregraph.core.errors.userwarning import warnUser
from puregraph.data import TableReader, readCsv
from puregraph.train import History

X, LABELS = np.ones((12, 4), "f4"), np.arange(12) % 3
IDS, SCORES = np.zeros((6, 7), int), np.zeros((6, 7, 5), "f4")


def node():
    return Input(name="x").node()


def trained(net=None, cost=None, data=X, target=LABELS, **options):
    """A run of one epoch."""
    net = Sequential(Linear(4, 3)) if net is None else net
    return Trainer(net, cost or CrossEntropy(), SGD(0.1), batchsize=4, progress="none", **options).train(data, target)


def fitted(**options):
    """A run with options of `train`."""
    Trainer(Sequential(Linear(4, 3)), CrossEntropy(), SGD(0.1), progress="none").train(X, LABELS, **options)


def two():
    """A network of two outputs."""
    x = node()
    return Graph(x, [Linear(4, 3, name="kind")(x), Linear(4, 1, name="area")(x)])


def table(text):
    """A CSV file of this content."""
    with open("table.csv", "w", encoding="utf-8") as file:
        file.write(text)
    return "table.csv"


class Torch(Module):
    def __init__(self):
        super().__init__()
        self.scale = Param((4,))

    def forward(self, x):
        return x


READER = TableReader(numbers=["age"], classes="city")
COSTS = {"kind": CrossEntropy(), "area": MSE()}
MISTAKES = [
    (lambda: Linear(3, 2)(Input(name="x")), GraphError, "got the module Input(name='x'); write Input(name='x').node()"),
    (lambda: Linear(3, 2)(Linear(2, 3)), GraphError, "call it on a node: Linear(...)(x), where x may be Input("),
    (lambda: Sequential(Linear(3, 2))(Input()), GraphError, "write Input().node()"),
    (lambda: Concat(axis=1)([Relu(), Relu()]), GraphError, "call it on a node: Relu(...)(x)"),
    (lambda: Concat(axis=1)(node(), Relu()), GraphError, "call it on a node: Relu(...)(x)"),
    (lambda: Graph(Input(), Linear(3, 2)), GraphError, "call it on a node: Linear(...)(x)"),
    (lambda: Graph(Input(), Linear(3, 2)(node())), GraphError, "make one with Input().node()"),
    (lambda: Linear(3, 2).node(Input()), GraphError, "write Input().node()"),
    (lambda: setattr(Sequential(Linear(4, 3, name="fc")), "fc", Linear(4, 2)), UnknownAttributeError,
     "setting fc has no effect; net['fc'] = module puts another module there"),
    (lambda: setattr(two(), "kind", Linear(4, 2)), UnknownAttributeError, "Graph(net.inputs, module(net.getNodeByName("),
    (lambda: Relu(node()), GraphError, "make the module, then call it: Relu()(x)"),
    (lambda: Linear(node(), 3, 2), GraphError, "then call it: Linear(3, 2)(x)"),
    (lambda: Conv2D(node(), 1, 8, 3), GraphError, "then call it: Conv2D(1, 8, 3)(x)"),
    (lambda: Concat([node(), node()]), GraphError, "Concat: a node is no argument to make a module with"),
    (lambda: LayerNorm(node()), GraphError, "then call it: LayerNorm()(x)"),
    (lambda: MSE(node(), node()), GraphError, "then call it: MSE()(x, x)"),
    (lambda: Sequential(node()), GraphError, "make the list, then call it: Sequential(...)(x)"),
    (lambda: Sequential(Relu), GraphError, "make one: Relu(...)"),
    (lambda: Sequential(Linear(4, 3), "relu"), GraphError, "it is called Relu: from puregraph import Relu"),
    (lambda: Sequential(lambda x: x), GraphError, "a formula is Pointwise(formula="),
    (lambda: trained(cost=lambda x, t: x - t), DataError, "a formula is PointwiseCost(formula="),
    (lambda: np.exp(node()), ArgumentError, 'np.exp takes arrays, got a node, which has none before a pass; Pointwise('),
    (lambda: np.sum(node()), ArgumentError, "Sum(1)(node) sums over axis 1"),
    (lambda: np.concatenate([node(), node()]), ArgumentError, "Concat(axis=1)(node, other)"),
    (lambda: np.add.reduce(node()), ArgumentError, "np.add takes arrays"),
    (lambda: Reshape(-1, 1, 2, 2), ArgumentError, "several sizes or axes are one tuple: Reshape((-1, 1, 2, 2))"),
    (lambda: Reshape(-1, 4), ArgumentError, "Reshape((-1, 4))"),
    (lambda: Linear(3, 2, True, None, 1.0, False, "fc", 8), ArgumentError, "wanted insize, outsize, useBias, "),
    (lambda: Reshape((1, 2, 2))(X), ShapeError, "(0, 1, 2, 2) keeps the first axis, that of the samples"),
    (lambda: Torch()(X), NotImplementedError, "its forward is updateData here, which gets arrays, inputs first: "
                                              "updateData(self, x, scale)"),
    (lambda: LSTM(4, 8, batch_first=True), ArgumentError, "samples always come first"),
    (lambda: LSTM(4, 8, num_layers=2), ArgumentError, 'several layers are a block: RecurrentLayers("LSTM", 8, 16'),
    (lambda: LSTM(4, 8, return_sequences=True), ArgumentError, "did you mean outputs?"),
    (lambda: Embedder(4, 8, padding_idx=0), ArgumentError, "LSTM(8, 16)(x, lengths=n)"),
    (lambda: Linear(4, 3, activation="relu"), ArgumentError, "Sequential(Linear(3, 4), Relu())"),
    (lambda: CrossEntropy(weights={0: 1, 2: 3}), ArgumentError, "got the keys 0, 2; give 1 a weight too"),
    (lambda: Accuracy().update(SCORES, IDS), DataError, "Accuracy(axis=-1) ta"),
    (lambda: TopK(2).update(SCORES, IDS), DataError, "TopK(axis=-1) takes"),
    (lambda: Confusion(5).update(SCORES, IDS), DataError, "Confusion(axis=-1)"),
    (lambda: trained(two(), {**COSTS, "areas": MSE()}, metrics={"area": MAE()}), GraphError,
     "wanted costs for outputs of Graph, which are kind, area; got one for 'areas'"),
    (lambda: trained(data=[[1, 2], [1]], target=LABELS[:2]), DataError, "one array and their lengths by padded(sequences)"),
    (lambda: trained(two(), COSTS, target=[LABELS, None]), DataError, "target[1] is None; an output without a target"),
    (lambda: TableReader.load(__file__), DataError, "wanted a file of TableReader.save, got one that cannot be read: JSON"),
    (lambda: READER.fit(table("age,city\n1,a\nNA,b\n")), DataError, "got 'NA'; readCsv(path, gaps=('', 'NA')) takes that"),
    (lambda: READER.fit(table('age,city\n"1,5",a\n')), DataError, "pandas.read_csv(path, decimal=',') reads numbers with a"),
    (lambda: READER.fit(table("age;city\n1;a\n")), DataError, "the table has age;city; readCsv(path, delimiter=';') div"),
    (lambda: readCsv(table("age;city\n1,5;a\n")), DataError, "wanted 1 field, got 2; readCsv(path, delimiter=';')"),
    (lambda: Confusion(3).plot(labels="abc"), ArgumentError, "did you mean names?"),
    (lambda: plotImages(np.ones((4, 8, 8, 3))), DataError, "images.transpose(0, 3, 1, 2) puts channels first"),
    (lambda: trained(cost=PointwiseCost(formula="abs(x - t)"), target=X), FormulaError, "a formula of x, target, got one of t"),
    (lambda: plotImages(X), DataError, "image[None] makes one image a grid of one"),
    (lambda: plotImages(np.ones((4, 2, 2)), "c.png"), ArgumentError, "a file is given as path='c.png'"),
    (lambda: Checkpoint("run-{epoch:02d}.h5"), DataError, "{epoch:02d} is not filled in; keep=3 keeps the last three"),
    (lambda: trained(target=np.array(["a", "b", "c"])[LABELS]), DataError, "names, target = np.unique(target, return_inv"),
    (lambda: trained(data=X.astype(object)), DataError, "array.astype('float32') makes numbers of objects"),
    (lambda: trained(target=np.eye(3)[LABELS]), ShapeError, "not one-hot: give target.argmax(axis=1)"),
    (lambda: trained(target=LABELS[:, None]), ShapeError, "give target[..., 0]"),
    (lambda: fitted(sampleWeight={0: 1, 1: 5}), DataError, "CrossEntropy(weights={0: 1, 1: 5}) weighs classes"),
    (lambda: fitted(class_weight={0: 1}), ArgumentError, "CrossEntropy(weights={0: 1, 1: 5}) weighs classes"),
    (lambda: fitted(validation=20), DataError, "a fraction such as 0.2, got 20"),
    (lambda: trained(callbacks=[EarlyStop("val loss")]), DataError, "train(..., validation=0.2)"),
    (lambda: Calculator(Sequential(Linear(4, 3))).calculate(X[0]), DataError, "give one sample as data[None]"),
    (lambda: puregraph.save, AttributeError, "net.save(path) writes a network, trainer.save(path) all of a training"),
    (lambda: SGD(0.1).setupOn(Linear(3, 2)).update(), puregraph.PuregraphError, "backward in trainMode before each"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "error", "answer"), MISTAKES, ids=[answer[:40] for _, _, answer in MISTAKES])
def test_a_mistake_is_answered_with_what_to_write(mistake, error, answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=re.escape(answer)) as found:
        mistake()
    assert len(str(found.value)) < 700


@pytest.mark.parametrize(
    "plot",
    [
        lambda path: Confusion(3).plot(path),
        lambda path: History([{"epoch": 1, "loss": 1.0}]).plot(path),
        lambda path: plotImages(np.ones((4, 2, 2)), path=path),
    ],
)
def test_a_chart_says_as_other_files_do_that_there_is_no_folder(plot, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "nowhere" / "chart.png"
    with pytest.raises(CheckpointError, match=re.escape(f"cannot save '{path}': there is no folder '{path.parent}'")):
        plot(path)


def test_numbers_of_numpy_and_nodes_are_calculated_with():
    x = node()
    graph = Graph(x, [np.float32(2) * x, x - np.float64(1), np.float32(1) < x, abs(x), np.add(x, x), np.power(x, 2)])
    given = np.array([-1.0, 3.0])
    wanted = [2 * given, given - 1, given > 1, abs(given), 2 * given, given**2]
    assert all(map(np.array_equal, graph(given), wanted))
    assert (np.float32(2) == x) is False and np.float32(2) != x


def test_a_class_that_forgets_the_constructor_of_modules_works():
    class Scaled(Module):
        def __init__(self):
            self.scale = Param((4,))

        def dataShapeFrom(self, x):
            return x

        def updateData(self, x, scale):
            return x * scale

        def updateGrad(self, grad, x, scale, y, needs):
            return grad * scale, (grad * x).sum(0)

    assert Scaled().name is None
    assert trained(Sequential(Scaled(), Linear(4, 3)))[-1]["loss"] > 0


def test_costs_may_have_another_order_than_outputs():
    target = {"area": X[:, :1], "kind": LABELS}
    given = CostSum(dict(reversed(COSTS.items())), {"area": 0.5})
    for costs, labels in ((given, target), (given, [LABELS, X[:, :1]])):  # a list has the order of the outputs
        puregraph.seed(0)
        row = trained(two(), costs, target=labels)[-1]
        puregraph.seed(0)
        wanted = trained(two(), CostSum(COSTS, {"area": 0.5}), target=target)[-1]
        assert {**row, "seconds": 0} == {**wanted, "seconds": 0}


WARNINGS = {
    "a branch that is left out": lambda: Graph((x := node()), [Relu()(x)]) and Graph(y := node(), (Relu()(y), Relu()(y))[0]),
    "probabilities where scores are wanted": lambda: trained(Sequential(Linear(4, 1), Sigmoid()), BCE(), target=X[:, :1]),
    "statistics of each batch": lambda: trained(Sequential(Linear(4, 3), BatchNorm(3)), accumulate=2),
}  # fmt: skip


@pytest.mark.parametrize("name", WARNINGS)
def test_a_warning_names_a_line_of_the_user(name):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", GraphWarning)
        WARNINGS[name]()
    assert found and {each.filename for each in found} == {__file__}


def test_code_that_is_run_without_a_module_is_warned_too():
    with pytest.warns(GraphWarning, match="so"):
        exec("warnUser('so', GraphWarning)", {"warnUser": warnUser, "GraphWarning": GraphWarning})
