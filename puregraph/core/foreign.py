"""Foreign: names of PyTorch, Keras and PuzzleLib, with their equivalents here.

KEYWORDS     arguments of constructors and functions: possible names here, the first existing one is suggested
INSTEAD      arguments without an equivalent here: a sentence
ATTRIBUTES   attributes of instances: a sentence

Imported names stand in counterparts.py.
"""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

from puregraph.core.counterparts import counterparts
from puregraph.core.errors import UnknownAttributeError


def same(names: str, meaning: Any) -> dict[str, Any]:
    """Return a table that gives several names the same meaning."""
    return dict.fromkeys(names.split(), meaning)


KEYWORDS: dict[str, tuple[str, ...]] = {
    **same("lr learning_rate learningRate alpha", ("learnRate",)),
    **same("bias use_bias", ("useBias",)),
    **same("kernel_size ksize pool_size", ("size",)),
    **same("in_features in_channels input_size", ("insize", "inmaps")),
    **same("out_features out_channels units filters", ("outsize", "outmaps", "hsize")),
    **same("hidden_size hidden_dim hidden_features hidden_sizes", ("hsize", "hidden", "inner", "size")),
    **same("embed_dim d_model n_embd", ("embsize", "size")),
    **same("num_heads nhead n_head n_heads", ("heads",)),
    **same("num_layers n_layer n_layers depth", ("layers",)),
    **same("num_classes n_classes nb_classes", ("classes", "outsize")),
    **same("pos_label class_id class_index", ("of",)),
    **same("context block_size context_length seq_len maxlen n_positions", ("length",)),
    **same("max_length", ("tokens", "length")),
    **same("max_new_tokens max_tokens num_tokens n_tokens", ("tokens",)),
    **same("input_ids prompts", ("prompt",)),
    "top_k": ("topK", "k"),
    "top_p": ("topP",),
    "min_p": ("minP",),
    "num_beams": ("beams",),
    "length_penalty": ("lengthPenalty",),
    "repetition_penalty": ("repetition",),
    **same("eos_token_id eos_token stop_token stop_strings", ("stop",)),
    **same("random_state generator", ("seed",)),
    **same("vocab_size n_vocab", ("vocabulary",)),
    **same("img_size image_size", ("image", "size")),
    "patch_size": ("patch",),
    **same("drop_rate dropout_rate dropout_p", ("dropout", "p")),
    "nodes_to_exclude": ("keep",),
    **same("calibrate_method calibration_method", ("calibration",)),
    "per_channel": ("perChannel",),
    "group_size": ("group",),
    **same("num_features num_channels", ("maps",)),
    **same("num_embeddings input_dim", ("vocabulary",)),
    **same("embedding_dim output_dim", ("embsize",)),
    "weight_decay": ("decay",),
    "momentum": ("momRate",),
    **same("eps", ("epsilon",)),
    **same("max_norm clipnorm grad_clip", ("clipNorm",)),
    **same("dim dims", ("axis", "axes")),
    "keepdim": ("keepdims",),
    "padding": ("pad",),
    "strides": ("stride",),
    **same("weight class_weight", ("weights",)),
    **same("sample_weight sample_weights", ("sampleWeight",)),
    "ignore_index": ("ignoreIndex", "ignore"),
    "label_smoothing": ("smoothing",),
    "negative_slope": ("slope",),
    **same("rate prob", ("p",)),
    "bidirectional": ("direction",),
    "batch_size": ("batchsize",),
    **same("drop_last drop_remainder", ("dropLast",)),
    **same("model network module", ("net",)),
    **same("loss criterion loss_fn", ("cost",)),
    **same("gradient_accumulation_steps accumulation_steps accumulate_grad_batches", ("accumulate",)),
    **same("validation_data validation_split valid_data val_data", ("validation",)),
    **same("num_epochs n_epochs max_epochs nb_epoch", ("epochs",)),
    **same("x X inputs train_data", ("data",)),
    **same("y Y targets", ("target",)),
    **same("labels class_names target_names", ("target", "names")),
    **same("return_sequences return_state", ("outputs",)),
    **same("fast_dev_run limit_train_batches", ("fastRun",)),
    **same("restore_best_weights", ("restore",)),
    **same("min_delta threshold", ("least",)),
    **same("filepath filename dirpath", ("path",)),
    **same("save_best_only save_top_k", ("best", "keep")),
    **same("T_max total_steps", ("total",)),
    **same("step_size", ("size",)),
    "gamma": ("factor",),
}

LENGTHS = "what reads the sequences takes their lengths: LSTM(8, 16)(x, lengths=n)"
INSTEAD: dict[str, str] = {
    "batch_first": "samples always come first, Transpose((1, 0, 2)) transposes data with time steps first",
    **same("num_layers", 'several layers are a block: RecurrentLayers("LSTM", 8, 16, layers=2)'),
    **same("padding_idx mask_zero", LENGTHS),
    **same("activation", "an activation is a module of its own: Sequential(Linear(3, 4), Relu())"),
    **same("dropout recurrent_dropout", "a module of its own follows: Sequential(LSTM(8, 16), Dropout(0.1))"),
    **same("device", "useDevice, or PUREGRAPH_DEVICE=cuda, chooses the device of all"),
    **same("inplace", "memory is planned when a graph is compiled"),
    "do_sample": "temperature=0 always takes the likeliest token, any other temperature draws one",
    "num_return_sequences": "give the prompt as often: generate(net, [prompt] * 3)",
    **same("pad_token_id attention_mask", "prompts may have any lengths, nothing is padded"),
    **same("verbose", 'Trainer(..., progress="none") is silent, "lines" and "bar" are not'),
    **same("class_weight", "CrossEntropy(weights={0: 1, 1: 5}) weighs classes"),
    **same("weights", "CrossEntropy(weights=[1, 5]) weighs classes, BCE(posWeight=5) the yes, sampleWeight samples"),
    **same("precision amp mixed_precision", 'net.calcMode("bfloat16") chooses how a network calculates'),
    **same("size_average reduce", 'reduction="mean", "sum" or "none" is an argument of a cost'),
    **same("input_shape", "sizes are arguments of each module; net.dataShapeFrom(shape) checks them"),
}

TRAINS = "Trainer(net, cost, optimizer).train(data, target) trains"
PREDICTS = "Calculator(net).calculate(data) gives the outputs of all samples"
VALIDATES = "Validator(net, cost, metrics).validate(data, target) does it"
MOVES = 'useDevice("cuda"), or PUREGRAPH_DEVICE=cuda, chooses the device of all'
OFNODES = "data is the array of the last pass, dataShapeFrom of the graph gives shapes ahead of it"
ATTRIBUTES: dict[str, dict[str, str]] = {
    "LinkedNode": {
        **{name: f'Pointwise(formula="{name}(x)")(node)' for name in "exp log sqrt sin cos".split()},
        **same("abs absolute", 'Pointwise(formula="abs(x)")(node)'),
        "square": "write node * node, or node ** 2",
        **same("power", "write node ** 2"),
        **same("clip clamp", "Clip(0, 1)(node)"),
        "maximum": 'Pointwise(formula="maximum(a, b)")(node, other)',
        "minimum": 'Pointwise(formula="minimum(a, b)")(node, other)',
        "sum": "Sum(1)(node) sums over axis 1",
        "mean": "Mean(1)(node) takes the mean over axis 1",
        **same("max amax", "Max(1)(node) takes the largest along axis 1"),
        **same("min amin", "Min(1)(node) takes the smallest along axis 1"),
        "argmax": "ArgMax(1)(node)",
        "argmin": "ArgMin(1)(node)",
        **same("reshape view resize ravel", "Reshape((0, -1))(node), where 0 copies an axis and -1 is what is left"),
        **same("flatten", "Flatten()(node)"),
        **same("squeeze unsqueeze expand_dims", "Reshape((0, 1, -1))(node), where 0 copies an axis"),
        **same("transpose permute T swapaxes moveaxis", "Transpose((0, 2, 1))(node)"),
        **same("concatenate concat cat stack append", "Concat(axis=1)(node, other)"),
        "split": "Split(1, (2, 2))(node)",
        "where": "Where()(condition, node, other)",
        **same("matmul dot", "write node @ other"),
        "einsum": 'Einsum("ij,jk->ik")(node, other)',
        **same("relu sigmoid tanh softmax", "Relu(), Sigmoid(), Tanh() and SoftMax() are called on a node"),
        **same("add", "write node + other"),
        **same("multiply mul", "write node * other"),
        **same("divide div", "write node / other"),
        **same("subtract sub", "write node - other"),
        **same("astype to float", "Cast(np.float32)(node)"),
        "detach": "StopGradient()(node)",
        **same("numpy item size ndim dtype", OFNODES),
    },
    "Module": {
        **same("fit train_on_batch trainFromHost", TRAINS),
        **same("predict predict_on_batch calcFromHost", PREDICTS),
        **same("evaluate test_on_batch validateFromHost", VALIDATES),
        **same("forward call", "call it: net(x)"),
        "generate": "from puregraph import generate: generate(net, prompt) writes tokens behind a prompt",
        **same("parameters named_parameters trainable_variables trainable_weights vars", "params is a dict by path"),
        **same("getVar setVar", 'params is a dict by path: net.params["fc.W"]'),
        **same("buffers named_buffers getAttr setAttr", "states is a dict of them by path"),
        **same("named_modules named_children children layers", "modules() of a Graph is a dict of them by path"),
        **same("getByName get_submodule get_layer", 'net["name"] is the module of a path'),
        **same("state_dict save_weights get_weights", "net.save(path) writes them, net.params is a dict of them"),
        **same("load_state_dict load_weights set_weights", "net.load(path) reads them"),
        **same("eval", "call evalMode()"),
        "train": "call trainMode(), isTraining is the mode; Trainer(net, cost, optimizer).train(data, target) trains",
        "training": "it is called isTraining: trainMode() and evalMode() set it",
        **same("zero_grad zeroGradParams", "not needed: backward overwrites gradients"),
        **same("requires_grad_ requires_grad", "set trainable; freeze() and unfreeze() go for statistics too"),
        **same("to cuda cpu", MOVES),
        **same("half float double", 'calcMode("float16"), calcMode(np.float64) choose how to calculate'),
        **same("summary", "print(summary(net, shape)), with summary from puregraph"),
        **same("add add_module", "append of a Sequential adds a module"),
        **same("register_buffer", "in a constructor: self.mean = State(shape)"),
        **same("register_parameter add_weight", "in a constructor: self.W = Param(shape)"),
        **same("weight weights kernel", "W is the Param of weights, W.data its array"),
        **same("bias biases", "b is the Param of biases, b.data its array"),
        **same("plot plot_model render", 'net.draw("net.html") draws it, or .svg, .png, .dot'),
        **same("count_params num_parameters", "sum(p.size for p in net.params.values()); summary(net, shape) shows it"),
        **same("num_params nparams", "sum(p.size for p in net.params.values()); summary(net, shape) shows it"),
        **same("input_shape output_shape", "net.dataShapeFrom(shape) gives the shape of the output"),
        **same("predict_proba", "SoftMax()(scores), of what Calculator(net).calculate(data) gives"),
        **same("register_forward_hook", "after a pass every node holds its values: net.getNodeByName(name).data"),
        **same("apply", "modules() of a Graph is a dict of them by path; initscheme is an argument of each"),
        "export": "from puregraph.onnx import toOnnx: toOnnx(net, path, shapes)",
    },
    "Trainer": {
        **same("fit trainFromHost trainFromGpu run", "call train(data, target, epochs)"),
        **same("predict", PREDICTS),
        **same("evaluate validate test", VALIDATES),
        **same("model network module", "it is called net"),
        **same("criterion", "it is called cost"),
        **same("lr learning_rate learnRate", "rate is the learning rate now, optimizer.learnRate is set"),
        **same("save_checkpoint", "call save(path)"),
        **same("load_checkpoint restore_checkpoint load", "call resume(path)"),
        **same("current_epoch", "it is called epoch"),
        **same("global_step", "it is called step"),
        **same("findRate find_lr lr_find tuner", "findRate(trainer, data, target), from puregraph"),
        **same("plot losses", 'history.plot() shows the figures, history["loss"] is one of them'),
        **same("best best_model_path", 'Checkpoint(path, best="val loss") writes it, EarlyStop(restore=True) keeps it'),
    },
    "Calculator": same("calcFromHost predict run", "call calculate(data)"),
    "Validator": same("validateFromHost evaluate", "call validate(data, target)"),
    "Optimizer": {
        **same("zero_grad", "not needed: backward overwrites gradients"),
        **same("lr learning_rate", "it is called learnRate"),
        **same("weight_decay", "it is called decay"),
        **same("param_groups", "parameters have a rate and decay of their own: net['fc'].W.rate"),
        **same("apply_gradients minimize", "call update() after backward"),
        **same("state_dict load_state_dict", "net.save(path, optimizer=optimizer), and load, have it with them"),
        **same("addHook", "weight decay is the option decay"),
    },
    "History": {
        **same("history epoch columns", 'history["loss"] is a column, history[-1] the last row, names() what there is'),
        **same("losses loss", 'history["loss"] has it'),
        **same("to_csv save", "pandas.DataFrame(history).to_csv(path), or the callback CsvLog(path)"),
        **same("to_dataframe dataframe df", "pandas.DataFrame(history)"),
    },
    "TableReader": {
        **same("transform predict", "data(table) gives the inputs, target(table) the classes"),
        **same("fit_transform fit_predict", "fit(table).data(table)"),
        **same("classes_ categories_", "names are the classes, sizes says how many codes a category has"),
    },
    "Chart": same("savefig", "call save(path)"),
    "Stored": {
        **same("numpy detach get cpu item", "data is its array"),
        **same("requires_grad requires_grad_", "it is called trainable"),
        **same("value", "it is called data"),
        **same("set copy_ fill_ set_value", "assign to data"),
    },
}


def hintFor(name: str) -> str:
    """A hint for an imported name; empty if the name is not in the table."""
    return counterparts()[name].hint if name in counterparts() else ""


class ForeignAttribute:
    """An attribute of another framework: reading it raises an error with the name that it has here.

    A `__getattr__` would do the same, but would slow down every existing attribute.
    """

    def __init__(self, name: str, hint: str):
        self.name, self.hint = name, hint

    def __get__(self, thing: object, owner: type) -> Any:
        for cls in owner.__mro__:
            attribute = vars(cls).get(self.name, self)
            if not isinstance(attribute, ForeignAttribute):  # a real attribute of another base class
                return attribute.__get__(thing, owner) if hasattr(attribute, "__get__") else attribute
        kind = f"{owner.__name__!r} object" if thing is not None else f"type object {owner.__name__!r}"
        raise UnknownAttributeError(f"{kind} has no attribute {self.name!r}; {self.hint}")


class ForeignAttributes:
    """A class that explains missing attributes by their names in other frameworks."""

    __slots__ = ()

    def __init_subclass__(cls, **named: object) -> None:
        super().__init_subclass__(**named)
        for name, hint in ATTRIBUTES.get(cls.__name__, {}).items() if cls.__module__.startswith("puregraph.") else ():
            if not hasattr(cls, name):
                setattr(cls, name, ForeignAttribute(name, hint))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not isinstance(getattr_static(self, name), ForeignAttribute)]


class ForeignFinder:
    """Refuses to import another framework's name from the package, and suggests the name here."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        package, _, name = fullname.rpartition(".")
        hint = hintFor(name) if package.partition(".")[0] == "puregraph" else ""
        if hint:
            raise ImportError(f"cannot import {name!r} from {package!r}; {hint}", name=fullname)
