"""Foreign: names of PyTorch, Keras and PuzzleLib, and what is written here instead.

KEYWORDS     arguments of constructors and functions: the names that they may have here, the first that there is
INSTEAD      those that none has here: a sentence
NAMES        classes, functions and packages that one imports: the class here, or a sentence
ATTRIBUTES   attributes of what a class makes: a sentence
"""

from __future__ import annotations

from importlib.abc import MetaPathFinder
from inspect import getattr_static
from typing import Any

from puregraph.errors import UnknownAttributeError


def each(names: str, meaning: Any) -> dict[str, Any]:
    """One meaning for several names."""
    return dict.fromkeys(names.split(), meaning)


KEYWORDS: dict[str, tuple[str, ...]] = {
    **each("lr learning_rate learningRate alpha", ("learnRate",)),
    **each("bias use_bias", ("useBias",)),
    **each("kernel_size ksize pool_size", ("size",)),
    **each("in_features in_channels input_size", ("insize", "inmaps")),
    **each("out_features out_channels units filters", ("outsize", "outmaps", "hsize")),
    **each("hidden_size hidden_dim hidden_features hidden_sizes", ("hsize", "hidden", "inner", "size")),
    **each("embed_dim d_model n_embd", ("embsize", "size")),
    **each("num_heads nhead n_head n_heads", ("heads",)),
    **each("num_layers n_layer n_layers depth", ("layers",)),
    **each("num_classes n_classes nb_classes", ("classes", "outsize")),
    **each("pos_label class_id class_index", ("of",)),
    **each("context block_size context_length seq_len maxlen n_positions", ("length",)),
    **each("max_length", ("tokens", "length")),
    **each("max_new_tokens max_tokens num_tokens n_tokens", ("tokens",)),
    **each("input_ids prompts", ("prompt",)),
    "top_k": ("topK", "k"),
    "top_p": ("topP",),
    **each("eos_token_id eos_token stop_token stop_strings", ("stop",)),
    **each("random_state generator", ("seed",)),
    **each("vocab_size n_vocab", ("vocabulary",)),
    **each("img_size image_size", ("image", "size")),
    "patch_size": ("patch",),
    **each("drop_rate dropout_rate", ("dropout", "p")),
    **each("num_features num_channels", ("maps",)),
    **each("num_embeddings input_dim", ("vocabulary",)),
    **each("embedding_dim output_dim", ("embsize",)),
    "weight_decay": ("decay",),
    "momentum": ("momRate",),
    **each("eps", ("epsilon",)),
    **each("max_norm clipnorm grad_clip", ("clipNorm",)),
    **each("dim dims", ("axis", "axes")),
    "keepdim": ("keepdims",),
    "padding": ("pad",),
    "strides": ("stride",),
    **each("weight class_weight", ("weights",)),
    **each("sample_weight sample_weights", ("sampleWeight",)),
    "ignore_index": ("ignoreIndex", "ignore"),
    "label_smoothing": ("smoothing",),
    "negative_slope": ("slope",),
    **each("rate prob", ("p",)),
    "bidirectional": ("direction",),
    "batch_size": ("batchsize",),
    **each("drop_last drop_remainder", ("dropLast",)),
    **each("model network module", ("net",)),
    **each("loss criterion loss_fn", ("cost",)),
    **each("gradient_accumulation_steps accumulation_steps accumulate_grad_batches", ("accumulate",)),
    **each("validation_data validation_split valid_data val_data", ("validation",)),
    **each("num_epochs n_epochs max_epochs nb_epoch", ("epochs",)),
    **each("x X inputs train_data", ("data",)),
    **each("y Y targets", ("target",)),
    **each("labels class_names target_names", ("target", "names")),
    **each("return_sequences return_state", ("outputs",)),
    **each("fast_dev_run limit_train_batches", ("fastRun",)),
    **each("restore_best_weights", ("restore",)),
    **each("min_delta threshold", ("least",)),
    **each("filepath filename dirpath", ("path",)),
    **each("save_best_only save_top_k", ("best", "keep")),
    **each("T_max total_steps", ("total",)),
    **each("step_size", ("size",)),
    "gamma": ("factor",),
}

LENGTHS = "what reads the sequences takes their lengths: LSTM(8, 16)(x, lengths=n)"
INSTEAD: dict[str, str] = {
    "batch_first": "samples always come first, Transpose((1, 0, 2)) transposes data with time steps first",
    **each("num_layers", "several layers are several modules: Sequential(LSTM(8, 16), LSTM(16, 16))"),
    **each("padding_idx mask_zero", LENGTHS),
    **each("activation", "an activation is a module of its own: Sequential(Linear(3, 4), Relu())"),
    **each("dropout recurrent_dropout", "a module of its own follows: Sequential(LSTM(8, 16), Dropout(0.1))"),
    **each("device", "useDevice, or PUREGRAPH_DEVICE=cuda, chooses the device of all"),
    **each("inplace", "memory is planned when a graph is compiled"),
    "do_sample": "temperature=0 always takes the likeliest token, any other temperature draws one",
    **each("num_beams early_stopping", "there is no beam search: temperature=0 always takes the likeliest token"),
    "num_return_sequences": "give the prompt as often: generate(net, [prompt] * 3)",
    **each("pad_token_id attention_mask", "prompts may have any lengths, nothing is padded"),
    **each("verbose", 'Trainer(..., progress="none") is silent, "lines" and "bar" are not'),
    **each("class_weight", "CrossEntropy(weights={0: 1, 1: 5}) weighs classes"),
    **each("weights", "CrossEntropy(weights=[1, 5]) weighs classes, BCE(posWeight=5) the yes, sampleWeight samples"),
    **each("precision amp mixed_precision", 'net.calcMode("bfloat16") chooses how a network calculates'),
    **each("reduction size_average", "costs are means over what is given, which sampleWeight weighs"),
    **each("input_shape", "sizes are arguments of each module; net.dataShapeFrom(shape) checks them"),
}

NAMES: dict[str, str] = {
    **each("ReLU relu", "Relu"),
    **each("GELU gelu", "Gelu"),
    **each("ELU", "Elu"),
    **each("LeakyReLU", "LeakyRelu"),
    **each("SiLU Silu silu", "Swish"),
    **each("Hardswish HardSiLU", "HardSwish"),
    **each("Softmax softmax Softmax2d", "SoftMax"),
    **each("Softplus softplus", "SoftPlus"),
    **each("sigmoid", "Sigmoid"),
    **each("tanh", "Tanh"),
    "Activation": "an activation is a module of its own: Relu(), Sigmoid(), Tanh(), Gelu(), SoftMax()",
    **each("Dense LazyLinear", "Linear"),
    **each("Conv1d LazyConv1d", "Conv1D"),
    **each("Conv2d LazyConv2d Convolution2D", "Conv2D"),
    "Conv3d": "Conv3D",
    **each("ConvTranspose2d Conv2DTranspose", "Deconv2D"),
    **each("ConvTranspose1d ConvTranspose3d Conv3DTranspose Deconv1D Deconv3D", "DeconvNd"),
    **each("BatchNorm1d BatchNorm2d BatchNorm3d BatchNorm1D BatchNorm2D BatchNorm3D BatchNormalization", "BatchNorm"),
    **each("LayerNormalization", "LayerNorm"),
    **each("GroupNormalization", "GroupNorm"),
    **each("MaxPool1d MaxPooling1D", "MaxPool1D"),
    **each("MaxPool2d MaxPooling2D", "MaxPool2D"),
    **each("AvgPool1d AveragePooling1D", "AvgPool1D"),
    **each("AvgPool2d AveragePooling2D", "AvgPool2D"),
    **each("GlobalAveragePooling1D GlobalAveragePooling2D", "GlobalAvgPool"),
    **each("AdaptiveAvgPool1d AdaptiveAvgPool2d", "GlobalAvgPool() is that of size 1; AvgPool2D(size) has one size"),
    **each("Embedding", "Embedder"),
    "EmbeddingBag": "Sum(axis=1) or Mean(axis=1) behind an Embedder makes one vector of a bag",
    **each(
        "MultiheadAttention MultiHeadAttention",
        "puregraph.models.multiHeadAttention(size, heads) has projections; Attention takes queries, keys and values",
    ),
    **each("scaled_dot_product_attention", "Attention"),
    **each("Dropout1d Dropout2d Dropout2D SpatialDropout2D", "Dropout drops elements; no module drops whole channels"),
    **each("Concatenate cat concatenate", "Concat"),
    **each("Permute SwapAxes MoveAxis", "Transpose"),
    **each("ZeroPadding2D ZeroPad2d ConstantPad2d Pad1D Pad2D", "Pad"),
    **each("Upsample UpSampling2D UpsamplingNearest2d", "Upsample2D"),
    **each("View Unflatten", "Reshape"),
    **each("SimpleRNN", "RNN"),
    "Lambda": "a formula is a Pointwise, any other operation of your own a Module or Function",
    **each("CrossEntropyLoss", "CrossEntropy"),
    **each(
        "CategoricalCrossentropy SparseCategoricalCrossentropy",
        "CrossEntropy takes scores before softmax, and labels: leave SoftMax out",
    ),
    **each("NLLLoss LogSoftmax log_softmax", "CrossEntropy takes scores before softmax: leave LogSoftmax out"),
    **each("MSELoss MeanSquaredError mse_loss", "MSE"),
    **each("BCEWithLogitsLoss", "BCE"),
    **each("BCELoss BinaryCrossentropy", "BCE takes the scores before sigmoid: leave Sigmoid out"),
    **each("L1Loss MeanAbsoluteError", "Abs"),
    **each("SmoothL1Loss", "SmoothL1"),
    **each("HuberLoss", "Huber"),
    **each("RMSprop", "RMSProp"),
    **each("StepLR", "Step"),
    **each(
        "ExponentialLR ExponentialDecay",
        "a schedule is any function of the number of the update: 0.96 ** (step / 1000)",
    ),
    **each("CosineAnnealingLR CosineDecay", "Cosine"),
    **each("OneCycleLR", "OneCycle"),
    **each("LinearLR", "WarmUp"),
    **each("ReduceLROnPlateau", "ReduceOnPlateau"),
    **each("EarlyStopping", "EarlyStop"),
    **each("ExponentialMovingAverage AveragedModel EMA", "WeightAverage"),
    **each("ModelCheckpoint", "Checkpoint"),
    **each("LRFinder lr_find LearningRateFinder", "findRate"),
    **each("CSVLogger", "CsvLog"),
    **each("TopKCategoricalAccuracy", "TopK"),
    **each("ConfusionMatrix confusion_matrix", "Confusion"),
    **each("F1Score BinaryF1Score MulticlassF1Score f1_score", "F1"),
    **each("FBetaScore fbeta_score", "F1 is that of beta 1; any other is computed from Precision and Recall"),
    **each("BinaryPrecision MulticlassPrecision precision_score", "Precision"),
    **each("BinaryRecall MulticlassRecall recall_score Sensitivity", "Recall"),
    **each(
        "AUC AUROC ROC ROCAUC BinaryAUROC roc_auc_score",
        "AUC cannot be accumulated batch by batch: use sklearn.metrics.roc_auc_score on the predictions",
    ),
    **each("RMSE R2 R2Score RootMeanSquaredError", "a Metric of your own gives two sums, and value() what they make"),
    **each("KLDivLoss", "a formula is a cost: PointwiseCost(formula='target * (log(target) - x)')"),
    **each("KLDivergence", "a formula is a cost: PointwiseCost(formula='target * log(target / x)')"),
    **each("Adagrad Adadelta Adamax Nadam LBFGS", "Adam, or an Optimizer of your own, which writes its formulas"),
    **each(
        "LRScheduler LambdaLR LearningRateScheduler",
        "a schedule is any function of the number of the update: Adam(1e-3, schedule=function)",
    ),
    **each("autocast GradScaler", 'net.calcMode("bfloat16") chooses how a network calculates'),
    **each("to_categorical one_hot", "CrossEntropy takes labels, not one-hot; OneHot makes them within a network"),
    "Residual": "a node may be read twice: x + module(x)",
    "load_model": "load",
    **each("Model GraphModule", "Graph"),
    **each("ModuleList", "a list of modules is a Sequential, or a plain list of which a Graph is made"),
    **each("Parameter", "Param"),
    **each("Tensor tensor Variable", "data are arrays of numpy, or cupy on a GPU: there is no class of tensors"),
    "save": "net.save(path) writes a network, trainer.save(path) all of a training",
    **each("no_grad inference_mode", "nothing is recorded until backward is called: net.evalMode() is enough"),
    **each("DataLoader Dataset TensorDataset", "a Trainer takes arrays, or batches (data, target) of any iterable"),
    **each("manual_seed set_seed set_random_seed", "seed"),
    **each("device_count is_available", "puregraph doctor, or device.name(), says which device is used"),
    **each("nn layers keras functional Modules Containers", "modules are there at once: from puregraph import Linear"),
    **each("optim Optimizers", "optimizers are there at once: from puregraph import Adam"),
    **each("losses Cost", "costs are there at once: from puregraph import CrossEntropy"),
    **each("Handlers callbacks", "from puregraph import Trainer, Validator, Calculator, Checkpoint"),
    **each("Backend Config gpuarray", "PUREGRAPH_DEVICE=cpu or cuda, or useDevice, chooses the device"),
    **each("Replicate ToList Glue", "not needed: a node of a Graph may have any number of readers"),
}

TRAINS = "Trainer(net, cost, optimizer).train(data, target) trains"
PREDICTS = "Calculator(net).calculate(data) gives the outputs of all samples"
VALIDATES = "Validator(net, cost, metrics).validate(data, target) does it"
MOVES = 'useDevice("cuda"), or PUREGRAPH_DEVICE=cuda, chooses the device of all'
OFNODES = "data is the array of the last pass, dataShapeFrom of the graph gives shapes ahead of it"
ATTRIBUTES: dict[str, dict[str, str]] = {
    "LinkedNode": {
        **{name: f'Pointwise(formula="{name}(x)")(node)' for name in "exp log sqrt sin cos".split()},
        **each("abs absolute", 'Pointwise(formula="abs(x)")(node)'),
        "square": "write node * node, or node ** 2",
        **each("power", "write node ** 2"),
        **each("clip clamp", "Clip(0, 1)(node)"),
        "maximum": 'Pointwise(formula="maximum(a, b)")(node, other)',
        "minimum": 'Pointwise(formula="minimum(a, b)")(node, other)',
        "sum": "Sum(1)(node) sums over axis 1",
        "mean": "Mean(1)(node) takes the mean over axis 1",
        **each("max amax", "Max(1)(node) takes the largest along axis 1"),
        **each("min amin", "Min(1)(node) takes the smallest along axis 1"),
        "argmax": "ArgMax(1)(node)",
        "argmin": "ArgMin(1)(node)",
        **each("reshape view resize ravel", "Reshape((0, -1))(node), where 0 copies an axis and -1 is what is left"),
        **each("flatten", "Flatten()(node)"),
        **each("squeeze unsqueeze expand_dims", "Reshape((0, 1, -1))(node), where 0 copies an axis"),
        **each("transpose permute T swapaxes moveaxis", "Transpose((0, 2, 1))(node)"),
        **each("concatenate concat cat stack append", "Concat(axis=1)(node, other)"),
        "split": "Split(1, (2, 2))(node)",
        "where": "Where()(condition, node, other)",
        **each("matmul dot", "write node @ other"),
        "einsum": 'Einsum("ij,jk->ik")(node, other)',
        **each("relu sigmoid tanh softmax", "Relu(), Sigmoid(), Tanh() and SoftMax() are called on a node"),
        **each("add", "write node + other"),
        **each("multiply mul", "write node * other"),
        **each("divide div", "write node / other"),
        **each("subtract sub", "write node - other"),
        **each("astype to float", "Cast(np.float32)(node)"),
        **each("numpy detach item size ndim dtype", OFNODES),
    },
    "Module": {
        **each("fit train_on_batch trainFromHost", TRAINS),
        **each("predict predict_on_batch calcFromHost", PREDICTS),
        **each("evaluate test_on_batch validateFromHost", VALIDATES),
        **each("forward call", "call it: net(x)"),
        "generate": "from puregraph import generate: generate(net, prompt) writes tokens behind a prompt",
        **each("parameters named_parameters trainable_variables trainable_weights vars", "params is a dict by path"),
        **each("getVar setVar", 'params is a dict by path: net.params["fc.W"]'),
        **each("buffers named_buffers getAttr setAttr", "states is a dict of them by path"),
        **each("named_modules named_children children layers", "modules() of a Graph is a dict of them by path"),
        **each("getByName get_submodule get_layer", 'net["name"] is the module of a path'),
        **each("state_dict save_weights get_weights", "net.save(path) writes them, net.params is a dict of them"),
        **each("load_state_dict load_weights set_weights", "net.load(path) reads them"),
        **each("eval", "call evalMode()"),
        "train": "call trainMode(), isTraining is the mode; Trainer(net, cost, optimizer).train(data, target) trains",
        "training": "it is called isTraining: trainMode() and evalMode() set it",
        **each("zero_grad zeroGradParams", "not needed: backward overwrites gradients"),
        **each("requires_grad_ requires_grad", "set trainable; freeze() and unfreeze() go for statistics too"),
        **each("to cuda cpu", MOVES),
        **each("half float double", 'calcMode("float16"), calcMode(np.float64) choose how to calculate'),
        **each("summary", "print(summary(net, shape)), with summary from puregraph"),
        **each("add add_module", "append of a Sequential adds a module"),
        **each("register_buffer", "in a constructor: self.mean = State(shape)"),
        **each("register_parameter add_weight", "in a constructor: self.W = Param(shape)"),
        **each("weight weights kernel", "W is the Param of weights, W.data its array"),
        **each("bias biases", "b is the Param of biases, b.data its array"),
        **each("plot plot_model render", 'net.draw("net.html") draws it, or .svg, .png, .dot'),
        **each("count_params num_parameters", "sum(p.size for p in net.params.values()); summary(net, shape) shows it"),
        **each("num_params nparams", "sum(p.size for p in net.params.values()); summary(net, shape) shows it"),
        **each("input_shape output_shape", "net.dataShapeFrom(shape) gives the shape of the output"),
        **each("predict_proba", "SoftMax()(scores), of what Calculator(net).calculate(data) gives"),
        **each("register_forward_hook", "after a pass every node holds its values: net.getNodeByName(name).data"),
        **each("apply", "modules() of a Graph is a dict of them by path; initscheme is an argument of each"),
        "export": "from puregraph.onnx import toOnnx: toOnnx(net, path, shapes)",
    },
    "Trainer": {
        **each("fit trainFromHost trainFromGpu run", "call train(data, target, epochs)"),
        **each("predict", PREDICTS),
        **each("evaluate validate test", VALIDATES),
        **each("model network module", "it is called net"),
        **each("criterion", "it is called cost"),
        **each("lr learning_rate learnRate", "rate is the learning rate now, optimizer.learnRate is set"),
        **each("save_checkpoint", "call save(path)"),
        **each("load_checkpoint restore_checkpoint load", "call resume(path)"),
        **each("current_epoch", "it is called epoch"),
        **each("global_step", "it is called step"),
        **each("findRate find_lr lr_find tuner", "findRate(trainer, data, target), from puregraph"),
        **each("plot losses", 'history.plot() shows the figures, history["loss"] is one of them'),
        **each("best best_model_path", 'Checkpoint(path, best="val loss") writes it, EarlyStop(restore=True) keeps it'),
    },
    "Calculator": each("calcFromHost predict run", "call calculate(data)"),
    "Validator": each("validateFromHost evaluate", "call validate(data, target)"),
    "Optimizer": {
        **each("zero_grad", "not needed: backward overwrites gradients"),
        **each("lr learning_rate", "it is called learnRate"),
        **each("weight_decay", "it is called decay"),
        **each("param_groups", "parameters have a rate and decay of their own: net['fc'].W.rate"),
        **each("apply_gradients minimize", "call update() after backward"),
        **each("state_dict load_state_dict", "net.save(path, optimizer=optimizer), and load, have it with them"),
        **each("addHook", "weight decay is the option decay"),
    },
    "History": {
        **each("history epoch columns", 'history["loss"] is a column, history[-1] the last row, names() what there is'),
        **each("losses loss", 'history["loss"] has it'),
        **each("to_csv save", "pandas.DataFrame(history).to_csv(path), or the callback CsvLog(path)"),
        **each("to_dataframe dataframe df", "pandas.DataFrame(history)"),
    },
    "TableReader": {
        **each("transform predict", "data(table) gives the inputs, target(table) the classes"),
        **each("fit_transform fit_predict", "fit(table).data(table)"),
        **each("classes_ categories_", "names are the classes, sizes says how many codes a category has"),
    },
    "Chart": each("savefig", "call save(path)"),
    "Stored": {
        **each("numpy detach get cpu item", "data is its array"),
        **each("requires_grad requires_grad_", "it is called trainable"),
        **each("value", "it is called data"),
        **each("set copy_ fill_ set_value", "assign to data"),
    },
}


def hintFor(name: str) -> str:
    """What is written instead of a name that one imports; nothing for one that is not in the table."""
    here = NAMES.get(name, "")
    return f"it is called {here}: from puregraph import {here}" if here.isidentifier() else here


class ForeignAttribute:
    """An attribute that there is not: reading it raises an error that says what it is called here.

    A `__getattr__` would do the same, but costs time at every attribute that there is.
    """

    def __init__(self, name: str, hint: str):
        self.name, self.hint = name, hint

    def __get__(self, thing: Any, owner: Any) -> Any:
        for cls in owner.__mro__:
            found = vars(cls).get(self.name, self)
            if not isinstance(found, ForeignAttribute):  # of a class that is extended beside ours
                return found.__get__(thing, owner) if hasattr(found, "__get__") else found
        kind = f"{owner.__name__!r} object" if thing is not None else f"type object {owner.__name__!r}"
        raise UnknownAttributeError(f"{kind} has no attribute {self.name!r}; {self.hint}")


class ForeignAttributes:
    """What says, of an attribute that it has not, what another framework's name for it is here."""

    __slots__ = ()

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name, hint in ATTRIBUTES.get(cls.__name__, {}).items() if cls.__module__.startswith("puregraph.") else ():
            if not hasattr(cls, name):
                setattr(cls, name, ForeignAttribute(name, hint))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not isinstance(getattr_static(self, name), ForeignAttribute)]


class ForeignFinder(MetaPathFinder):
    """Refuses to import a foreign name from the package, with the one that it has here."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        package, _, name = fullname.rpartition(".")
        hint = hintFor(name) if package.partition(".")[0] == "puregraph" else ""
        if hint:
            raise ImportError(f"cannot import {name!r} from {package!r}; {hint}", name=fullname)
