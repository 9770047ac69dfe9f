"""Names of PyTorch, Keras and PuzzleLib are answered with what is written here in their place: one table, all of it."""

import inspect
import re

import numpy as np
import pytest

import puregraph
from puregraph import (
    LSTM,
    MSE,
    SGD,
    Adam,
    AdamW,
    ArgumentError,
    BatchNorm,
    Calculator,
    Confusion,
    DataError,
    EarlyStop,
    Embedder,
    GraphError,
    Input,
    Linear,
    MomentumSGD,
    ReduceOnPlateau,
    Sequential,
    Slot,
    Trainer,
    Validator,
    generate,
    plotImages,
)
from puregraph.core.base.keywords import keywords, similar
from puregraph.core.counterparts import counterparts
from puregraph.core.errors import UnknownAttributeError
from puregraph.core.foreign import ATTRIBUTES, INSTEAD, KEYWORDS, ForeignAttributes
from puregraph.data import TableReader
from puregraph.models import gpt, lstm, mlp, resnet18, unet, vgg16, vit
from puregraph.train import Checkpoint, History


def net():
    return Sequential(Linear(4, 3, name="fc"))


OWNERS = {
    "Module": net,
    "Trainer": lambda: Trainer(net(), MSE(), SGD(0.1), progress=False),
    "Calculator": lambda: Calculator(net()),
    "Validator": lambda: Validator(net(), MSE()),
    "Optimizer": lambda: SGD(0.1),
    "History": lambda: History([{"loss": 1.0}, {"loss": 0.5, "accuracy": 0.25}]),
    "LinkedNode": lambda: Input(name="x").node(),
    "TableReader": lambda: TableReader(numbers="age"),
    "Chart": lambda: plotImages(np.zeros((1, 2, 2))),
    "Stored": lambda: Linear(4, 3).W,
}
PAIRS = [(owner, name) for owner, table in ATTRIBUTES.items() for name in table]
MAKERS = [getattr(puregraph, name) for name in puregraph.__all__ if isinstance(getattr(puregraph, name), type)]


FOREIGN = [name for name in counterparts() if not hasattr(puregraph, name)]


@pytest.mark.parametrize("start", range(8))
def test_an_import_of_a_foreign_name_says_what_it_is_called_here(start):
    for name in FOREIGN[start::8]:
        one = counterparts()[name]
        wanted = re.escape(f"from puregraph import {one.here}" if one.here.isidentifier() else one.here or one.note)
        with pytest.raises(ImportError, match=wanted):
            __import__("puregraph", fromlist=[name])
        with pytest.raises(ImportError, match=wanted):
            __import__(f"puregraph.{name}")
        with pytest.raises(AttributeError, match=wanted):
            getattr(puregraph, name)
        assert not hasattr(puregraph, name)


def test_what_a_note_names_is_there():
    for one in counterparts().values():
        named = re.findall(r"\b[A-Z]\w+(?=\()|(?<=import )\w+", one.note)
        assert set(named) <= set(puregraph.__all__), one


@pytest.mark.parametrize(("owner", "name"), PAIRS)
def test_a_foreign_attribute_is_answered_with_what_to_write(owner, name):
    thing = OWNERS[owner]()
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; {re.escape(ATTRIBUTES[owner][name])}"):
        getattr(thing, name)
    assert not hasattr(thing, name)


@pytest.mark.parametrize("word", KEYWORDS)
def test_each_foreign_argument_is_one_of_some_class_or_function_here(word):
    takers = [keywords(cls) or () for cls in MAKERS] + [("data", "target", "epochs", "validation", "sampleWeight")]
    takers += [tuple(inspect.signature(model).parameters) for model in (gpt, lstm, mlp, resnet18, unet, vit, generate)]
    assert any(set(KEYWORDS[word]) & set(names) for names in takers)


MADE = [cls for cls in MAKERS if cls is not Slot and keywords(cls)]  # an optimizer makes Slots; nobody else does


@pytest.mark.parametrize("cls", MADE, ids=lambda cls: cls.__name__)
def test_a_foreign_argument_is_refused_with_the_one_that_the_class_has(cls):
    own = keywords(cls)
    for word in KEYWORDS.keys() - set(own):
        for here in [each for each in KEYWORDS[word] if each in own][:1]:
            with pytest.raises(ArgumentError, match=f"there is no argument {word}; did you mean {here}\\?"):
                cls(**{word: 1})


def test_most_classes_take_what_others_call_otherwise():
    assert sum(any(here in keywords(cls) for each in KEYWORDS.values() for here in each) for cls in MADE) > 60


@pytest.mark.parametrize("word", INSTEAD)
def test_a_foreign_argument_that_nothing_has_is_answered_with_a_sentence(word):
    with pytest.raises(
        ArgumentError, match=f"there is no argument {word}; {re.escape(INSTEAD[word])}. Valid arguments: "
    ):
        Linear(4, 3, **{word: 1})


@pytest.mark.parametrize("cls", [SGD, MomentumSGD, Adam, AdamW])
@pytest.mark.parametrize("word", ["lr", "learning_rate"])
def test_every_optimizer_has_one_name_for_the_learning_rate(cls, word):
    assert cls(learnRate=0.25).learnRate == 0.25
    with pytest.raises(ArgumentError, match=f"there is no argument {word}; did you mean learnRate"):
        cls(**{word: 0.25})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: Linear(3),
            "Linear: wanted insize, outsize, got insize=3: write Linear(insize, outsize); sizes are never",
        ),
        (
            lambda: LSTM(16, direction="bi"),
            "LSTM: wanted insize, hsize, got insize=16, direction='bi': write LSTM(",
        ),
        (lambda: BatchNorm(), "BatchNorm: wanted maps, got nothing: write BatchNorm(maps); sizes are never taken"),
        (
            lambda: Embedder(3),
            "Embedder: wanted vocabulary, embsize, got vocabulary=3: write Embedder(vocabulary, embsize)",
        ),
        (lambda: Confusion(), "Confusion: wanted classes, got nothing: write Confusion(classes)"),
        (lambda: OWNERS["Trainer"]().train(epochs=3), "train: wanted data, got epochs=3: write train(data)"),
    ],
)
def test_what_is_left_out_of_a_call_is_named_with_how_it_is_written(call, words):
    with pytest.raises(ArgumentError, match=re.escape(words)):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: Adam(net(), 1e-3),
        lambda: Adam(net().params.values(), 1e-3),
        lambda: SGD(net().params, 1e-2),
        lambda: SGD(net(), 1e-2),
        lambda: SGD(list(net().params.values())),
    ],
)
def test_an_optimizer_that_is_given_parameters_says_who_gives_them(call):
    with pytest.raises(ArgumentError, match=r"a Trainer gives an optimizer its parameters, as setupOn\(net\) does"):
        call()


def test_a_module_is_found_by_its_name_not_as_an_attribute():
    inner = Sequential(Linear(4, 3, name="fc"), name="body")
    whole = Sequential(inner, Linear(3, 2, name="out"))
    with pytest.raises(AttributeError, match=r"no attribute 'out'; net\['out'\] is that module"):
        _ = whole.out
    with pytest.raises(AttributeError, match="no attribute 'eval'; call evalMode"):
        _ = whole.eval
    with pytest.raises(AttributeError, match="has no attribute 'fc'$"):
        _ = whole.fc
    assert not hasattr(whole, "out") and not hasattr(Sequential.__new__(Sequential), "out")


@pytest.mark.parametrize("thing", [net, lambda: Linear(4, 3)])
def test_the_mode_is_called_and_the_habit_of_setting_it_answered(thing):
    with pytest.raises(AttributeError, match=r"has no attribute 'train'; call trainMode\(\), isTraining is the mode"):
        thing().train()
    with pytest.raises(UnknownAttributeError, match="setting train has no effect; call trainMode"):
        thing().train = False
    assert thing().isTraining and not thing().evalMode().isTraining


@pytest.mark.parametrize("cls", [Adam, AdamW])
def test_the_learning_rate_of_adam_may_have_the_name_of_the_paper(cls):
    assert cls(alpha=0.25).learnRate == 0.25
    with pytest.raises(ArgumentError, match="wanted alpha as a finite number"):
        cls(alpha=-1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: OWNERS["Trainer"]().train(DATA, DATA, validation_data=1), "train: there is no argument .*validation?"),
        (lambda: OWNERS["Trainer"]().train(DATA, DATA, n_epochs=1), "did you mean epochs?"),
        (lambda: OWNERS["Trainer"]().train(DATA, DATA, batch_size=1), r"batchsize is an argument of Trainer\(...\)"),
        (lambda: OWNERS["Trainer"]().train(DATA, DATA, callbacks=[]), r"callbacks is an argument of Trainer\(...\)"),
        (lambda: OWNERS["Trainer"]().train(x=DATA, y=DATA), "did you mean data?"),
        (lambda: OWNERS["Trainer"]().stop(why="x"), "stop: there is no argument why; valid arguments: reason, now"),
        (lambda: Calculator(net()).calculate(DATA, batch_size=3), r"batchsize is an argument of Calculator\(...\)"),
        (lambda: Validator(net(), MSE()).validate(DATA, DATA, metrics=[]), "metrics is an argument of Validator"),
        (lambda: EarlyStop(restore_best_weights=True), "did you mean restore?"),
        (lambda: ReduceOnPlateau(gamma=0.5), "did you mean factor?"),
        (lambda: Checkpoint(filepath="x.h5"), "did you mean path?"),
        (lambda: Trainer(model=net(), loss=MSE(), optimizer=SGD(0.1)), "did you mean net?"),
    ],
)
def test_an_argument_of_another_framework_is_answered_with_the_one_here(call, words):
    with pytest.raises(ArgumentError, match=words):
        call()


DATA = np.ones((4, 4), "f4")


def test_a_name_that_is_in_no_table_has_no_hint():
    with pytest.raises(AttributeError, match="'Sequential' object has no attribute 'nonsense'$"):
        _ = net().nonsense
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'$"):
        _ = puregraph.Nonsense
    assert similar("nonsense", ["data"]) == ""


def test_an_attribute_error_of_a_property_is_not_hidden():
    class Own(Linear):
        @property
        def deep(self):
            return self.missing.value

    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = Own(3, 4).deep


def test_the_classes_of_the_table_are_there():
    assert issubclass(puregraph.Module, ForeignAttributes)
    names = {cls.__name__ for owner in OWNERS.values() for cls in type(owner()).__mro__}
    assert set(ATTRIBUTES) <= names


def test_a_method_of_a_class_that_is_extended_beside_ours_is_found():
    class Fits:
        def fit(self):
            return "fits"

    class Both(Linear, Fits):
        pass

    assert Both(3, 4).fit() == "fits"


def test_names_of_others_are_no_attributes():
    for owner in (Linear(3, 4), Linear(3, 4).W, Adam()):
        hinted = {name for cls in type(owner).__mro__ for name in ATTRIBUTES.get(cls.__name__, ())}
        assert hinted and not hinted & {*dir(owner)} - {*vars(owner)}
        assert not any(hasattr(owner, name) for name in hinted - {*vars(owner)})


def test_attributes_cost_what_they_cost_in_any_class_of_python():
    for cls in (puregraph.Module, puregraph.Param, puregraph.Trainer, puregraph.Adam):
        assert not hasattr(cls, "__getattr__") and cls.__getattribute__ is object.__getattribute__


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gpt(65, block_size=32), "gpt: there is no argument block_size; did you mean length?"),
        (lambda: gpt(65, d_model=32, n_head=2), "did you mean size?"),
        (lambda: resnet18(num_classes=10), "resnet: there is no argument num_classes; did you mean classes?"),
        (lambda: vit(img_size=32), "did you mean image?"),
        (lambda: lstm(hidden_size=8), "did you mean hsize?"),
        (lambda: mlp(4, hidden_sizes=(3,)), "did you mean hidden?"),
        (lambda: unet(in_channels=3), "did you mean inmaps?"),
        (
            lambda: generate(net(), [1], max_new_tokens=5),
            "generate: there is no argument max_new_tokens; did you mean tokens?",
        ),
        (lambda: generate(net(), [1], max_length=5), "did you mean tokens?"),
        (lambda: generate(net(), [1], top_k=5), "did you mean topK?"),
        (lambda: generate(net(), [1], do_sample=False), "temperature=0 always takes the likeliest token"),
        (lambda: generate(net(), input_ids=[1]), "did you mean prompt?"),
        (lambda: generate(net(), [1], eos_token_id=1), "did you mean stop?"),
        (lambda: vgg16(whatever=3), "vgg: there is no argument whatever; valid arguments: depth, norm"),
    ],
)
def test_a_foreign_argument_of_a_model_is_answered_too(make, words):
    with pytest.raises(ArgumentError, match=re.escape(words)):
        make()


def test_a_history_gives_a_column_by_its_name_and_a_row_by_its_number():
    history = OWNERS["History"]()
    assert history["loss"] == [1.0, 0.5] and history["accuracy"] == [None, 0.25]
    assert history[-1]["loss"] == 0.5 and len(history[:1]) == 1
    with pytest.raises(DataError, match="history: wanted one of loss, accuracy, got 'val loss'"):
        history["val loss"]


@pytest.mark.parametrize("given", [(), ([None, None],)])
def test_a_backward_pass_without_the_gradient_of_a_cost_says_where_that_is(given):
    with pytest.raises(GraphError, match=r"backward wanted a gradient, got .*: give cost.grad\[0\]"):
        linear = net()
        linear(np.zeros((2, 4), np.float32))
        linear.backward(*given)


HABITS = {
    "clip_grad_norm_": "clipNorm=1.0",
    "set_global_policy": 'calcMode("bfloat16")',
    "seed_everything": "it is called seed",
    "GradientTape": "puregraph.autodiff: grad, jvp",
    "vmap": "per_sample_gradients",
    "kaiming_normal_": 'initscheme="he"',
    "zeros": "np.zeros(3)",
    "train_test_split": "data[:800]",
    "TerminateOnNaN": 'onNonFinite="raise"',
    "LambdaCallback": "from puregraph import Callback",
    "LightningModule": "from puregraph import Trainer",
    "plot_model": 'net.draw("net.svg")',
    "jit": "net.compile(shape)",
    "metrics": "from puregraph import Accuracy",
}


@pytest.mark.parametrize("name", HABITS)
def test_a_habit_of_training_scripts_is_answered(name):
    with pytest.raises(AttributeError, match=re.escape(HABITS[name])):
        getattr(puregraph, name)


def test_what_the_answers_to_habits_say_works(tmp_path):
    from puregraph.autodiff import grad, hessian, jacobian, jvp, per_sample_gradients, vjp

    assert all(map(callable, (grad, jvp, vjp, jacobian, hessian, per_sample_gradients)))
    net = Sequential(Linear(3, 4, initscheme="he"))
    Adam(1e-3, clipNorm=1.0), Adam(1e-3, clipValue=0.5), Adam(1e-3, onNonFinite="raise")
    assert inspect.isclass(puregraph.Callback) and inspect.isclass(puregraph.Accuracy)
    net.draw(str(tmp_path / "net.svg"))
    assert (tmp_path / "net.svg").exists()


def test_a_parameter_of_an_array_is_refused_with_what_to_do():
    message = r"got an array of shape \(3, 2\); make it of the shape, and assign the array to its data"
    with pytest.raises(puregraph.ShapeError, match=message):
        puregraph.Param(np.ones((3, 2)))
    parameter = puregraph.Param((3, 2))
    parameter.data = np.ones((3, 2))
    assert parameter.data.sum() == 6
