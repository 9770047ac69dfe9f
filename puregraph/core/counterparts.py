"""Counterparts: the public names of PyTorch, Keras and PuzzleLib, with what stands for each here.

A line of TABLE is one of

    names                     the same name here
    names = Here; note        a class or function here, or an expression to write; the note says what differs
    names: reason             nothing here, and why, or what to do instead

and goes on in lines that begin with a space.

`scripts/coming.py` writes docs/coming.md from it; an import of a foreign name is answered from it, see foreign.py.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

SIZED = "the number of inputs is written: sizes are never taken from data"
COSTS = "costs are modules: CrossEntropy()(x, target)"
RANDOMLY = "images are changed by functions of your own ahead of a network, or by modules such as RandomFlip in it"

TABLE: dict[str, str] = {
    "torch.nn": f"""
Linear Bilinear Flatten Identity Dropout AlphaDropout FeatureAlphaDropout LayerNorm GroupNorm
  LocalResponseNorm ChannelShuffle
  PixelShuffle
PixelUnshuffle CosineSimilarity PairwiseDistance Unfold GLU Mish Sigmoid Tanh Threshold LogSigmoid GRU LSTM RNN
  Sequential
GRUCell LSTMCell RNNCell Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder
  TransformerEncoderLayer
LazyLinear = Linear; {SIZED}
Conv1d = Conv1D
Conv2d = Conv2D
Conv3d = Conv3D
LazyConv1d = Conv1D; {SIZED}
LazyConv2d = Conv2D; {SIZED}
LazyConv3d = Conv3D; {SIZED}
ConvTranspose2d = Deconv2D
ConvTranspose1d ConvTranspose3d = DeconvNd
LazyConvTranspose2d = Deconv2D; {SIZED}
LazyConvTranspose1d LazyConvTranspose3d = DeconvNd; {SIZED}
BatchNorm1d BatchNorm2d BatchNorm3d = BatchNorm; of any rank
LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d = BatchNorm; {SIZED}
SyncBatchNorm = BatchNorm(8, synchronized=True); the statistics of all processes
InstanceNorm1d InstanceNorm2d InstanceNorm3d = InstanceNorm; of any rank, without running statistics
LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d = InstanceNorm; {SIZED}
CrossMapLRN2d = LocalResponseNorm
RMSNorm = RmsNorm
MaxPool1d = MaxPool1D
MaxPool2d = MaxPool2D
MaxPool3d = MaxPool3D
AvgPool1d = AvgPool1D
AvgPool2d = AvgPool2D
AvgPool3d = AvgPool3D
LPPool1d LPPool2d LPPool3d = LpPoolNd
FractionalMaxPool2d FractionalMaxPool3d = FractionalMaxPool
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d = AdaptiveAvgPool
AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d = AdaptiveMaxPool
MaxUnpool1d MaxUnpool2d MaxUnpool3d = MaxUnpool; MaxPool2D(useMask=True) gives the mask that it takes
Embedding = Embedder; -1 is padding, and gives zeros
EmbeddingBag = EmbedderBag
MultiheadAttention = MultiHeadAttention
Dropout1d Dropout2d Dropout3d = Dropout2D; of any number of spatial axes
ReLU = Relu
ReLU6 = Relu6
LeakyReLU = LeakyRelu
PReLU = PRelu
RReLU = RRelu
ELU = Elu
SELU = Selu
CELU = Celu
GELU = Gelu
SiLU = Swish
Hardswish = HardSwish
Hardsigmoid = HardSigmoid
Hardtanh = Clip(-1, 1); its derivative is 1 at both bounds
Hardshrink = HardShrink
Softshrink = SoftShrink
Tanhshrink = TanhShrink
Softsign = SoftSign
Softplus = SoftPlus; without a threshold
Softmax Softmax2d = SoftMax
Softmin = SoftMin
LogSoftmax = LogSoftMax; CrossEntropy takes scores before softmax: leave LogSoftMax out in front of it
ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d ConstantPad3d = Pad
ReflectionPad1d ReflectionPad2d ReflectionPad3d = Pad(1, mode="reflect")
ReplicationPad1d ReplicationPad2d ReplicationPad3d = Pad(1, mode="edge")
CircularPad1d CircularPad2d CircularPad3d = Pad(1, mode="wrap")
Upsample = Upsample2D(2); Upsample1D and Upsample3D for other ranks, Resize for any factor and mode
UpsamplingNearest2d = Upsample2D
UpsamplingBilinear2d = Resize((2, 3), factors=(2, 2), mode="linear", coordinates="align_corners")
Unflatten = Reshape
Fold = Col2Im
AdaptiveLogSoftmaxWithLoss = AdaptiveSoftmax
L1Loss = Abs
MSELoss = MSE
CrossEntropyLoss = CrossEntropy
LinearCrossEntropyLoss = LinearCrossEntropy
NLLLoss NLLLoss2d = NLL
BCELoss = PointwiseCost(formula="-target * log(x) - (1 - target) * log(1 - x)"); BCE takes the scores before sigmoid:
  leave Sigmoid out
BCEWithLogitsLoss = BCE
KLDivLoss = KLDivergence
PoissonNLLLoss = Poisson
GaussianNLLLoss = GaussianNLL
SmoothL1Loss = SmoothL1
HuberLoss = Huber
SoftMarginLoss = SoftMargin
HingeEmbeddingLoss = HingeEmbedding
MultiMarginLoss = MultiMargin
MultiLabelMarginLoss = MultiLabelMargin
MultiLabelSoftMarginLoss = MultiLabelSoftMargin
MarginRankingLoss = MarginRanking
CosineEmbeddingLoss = CosineEmbedding
TripletMarginLoss TripletMarginWithDistanceLoss = Triplet
CTCLoss = CTC
Module
Parameter = Param
Buffer = State; in a constructor: self.mean = State(shape)
Container: a container is a Sequential, a Parallel or a Graph
ModuleList: a list of modules is a Sequential, or a plain list of which a Graph is made
ModuleDict: net["name"] is a module of a Graph by its path, and modules() a dict of all
ParameterList ParameterDict: params is a dict by path
RNNBase RNNCellBase: extend LSTM, GRU or RNN themselves
DataParallel: a Trainer started by several processes divides each batch
UninitializedParameter UninitializedBuffer: a parameter is a declaration until its data is first read
LinearCrossEntropyOptions: the options are arguments of LinearCrossEntropy
factory_kwargs: useDevice chooses the device of all, calcMode how a network calculates
""",
    "torch.nn.functional": """
linear = Linear
bilinear = Bilinear
conv1d = Conv1D; Convolve takes the weights as an input
conv2d = Conv2D; Convolve takes the weights as an input
conv3d = Conv3D; Convolve takes the weights as an input
conv_transpose2d = Deconv2D; Deconvolve takes the weights as an input
conv_transpose1d conv_transpose3d = DeconvNd; Deconvolve takes the weights as an input
conv_tbc = Conv1D; of (n, c, t): Transpose((1, 2, 0)) turns (t, n, c)
unfold = Unfold
fold = Col2Im
avg_pool1d = AvgPool1D
avg_pool2d = AvgPool2D
avg_pool3d = AvgPool3D
max_pool1d = MaxPool1D
max_pool2d = MaxPool2D
max_pool3d = MaxPool3D
max_pool1d_with_indices = MaxPool1D(2, useMask=True)
max_pool2d_with_indices = MaxPool2D(2, useMask=True)
max_pool3d_with_indices = MaxPool3D(2, useMask=True)
max_unpool1d max_unpool2d max_unpool3d = MaxUnpool
lp_pool1d lp_pool2d lp_pool3d = LpPoolNd
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d = AdaptiveAvgPool
adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d = AdaptiveMaxPool
adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices: AdaptiveMaxPool
  gives no indices
fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices =
  FractionalMaxPool; its indices are a second output
batch_norm = BatchNorm
instance_norm = InstanceNorm
layer_norm = LayerNorm
group_norm = GroupNorm
rms_norm = RmsNorm
local_response_norm = LocalResponseNorm
normalize = LpNormalize
embedding = Embedder
embedding_bag = EmbedderBag
one_hot = OneHot; CrossEntropy takes labels themselves
scaled_dot_product_attention = Attention
multi_head_attention_forward = MultiHeadAttention
dropout = Dropout
dropout1d dropout2d dropout3d = Dropout2D
alpha_dropout = AlphaDropout
feature_alpha_dropout = FeatureAlphaDropout
relu relu_ = Relu
relu6 = Relu6
leaky_relu leaky_relu_ = LeakyRelu
prelu = PRelu
rrelu rrelu_ = RRelu
elu elu_ = Elu
selu selu_ = Selu
celu celu_ = Celu
gelu = Gelu
silu = Swish
mish = Mish
glu = GLU
hardswish = HardSwish
hardsigmoid = HardSigmoid
hardtanh hardtanh_ = Clip(-1, 1); its derivative is 1 at both bounds
hardshrink = HardShrink
softshrink = SoftShrink
tanhshrink = TanhShrink
softsign = SoftSign
softplus = SoftPlus
logsigmoid = LogSigmoid
sigmoid = Sigmoid
tanh = Tanh
threshold threshold_ = Threshold
softmax = SoftMax
softmin = SoftMin
log_softmax = LogSoftMax; CrossEntropy takes scores before softmax: leave LogSoftMax out in front of it
gumbel_softmax = GumbelSoftMax
pad = Pad
interpolate upsample upsample_nearest upsample_bilinear = Resize((2, 3), factors=(2, 2)); Upsample2D(2) doubles both
  axes
grid_sample = GridSample
affine_grid = AffineGrid
pixel_shuffle = PixelShuffle
pixel_unshuffle = PixelUnshuffle
channel_shuffle native_channel_shuffle = ChannelShuffle
cosine_similarity = CosineSimilarity
pairwise_distance = PairwiseDistance
pdist = np.linalg.norm(x[:, None] - x[1:], axis=-1); of Variables: all pairs, twice; not differentiable where two are
  equal
l1_loss = Abs
mse_loss = MSE
cross_entropy = CrossEntropy
linear_cross_entropy = LinearCrossEntropy
nll_loss = NLL
binary_cross_entropy = PointwiseCost(formula="-target * log(x) - (1 - target) * log(1 - x)"); BCE takes the scores
  before sigmoid: leave Sigmoid out
binary_cross_entropy_with_logits = BCE
kl_div = KLDivergence
poisson_nll_loss = Poisson
gaussian_nll_loss = GaussianNLL
smooth_l1_loss = SmoothL1
huber_loss = Huber
soft_margin_loss = SoftMargin
hinge_embedding_loss = HingeEmbedding
multi_margin_loss = MultiMargin
multilabel_margin_loss = MultiLabelMargin
multilabel_soft_margin_loss = MultiLabelSoftMargin
margin_ranking_loss = MarginRanking
cosine_embedding_loss = CosineEmbedding
triplet_margin_loss triplet_margin_with_distance_loss = Triplet
ctc_loss = CTC
grouped_mm = GroupedMatMul; rows in blocks, each group a number of blocks
scaled_mm scaled_grouped_mm ScalingType SwizzleType: products of 8-bit floats are not calculated; QuantizedMatMul
  multiplies bytes
Tensor: data are arrays of numpy, or cupy on a GPU: there is no class of tensors
BroadcastingList1 BroadcastingList2 BroadcastingList3 DType Callable Optional TYPE_CHECKING: for annotations of types
  only
GRID_SAMPLE_INTERPOLATION_MODES GRID_SAMPLE_PADDING_MODES: mode and padding are arguments of GridSample
assert_int_or_pair boolean_dispatch handle_torch_function has_torch_function has_torch_function_unary
  has_torch_function_variadic: for the inside of that package only
reproducibility_notes sparse_support_notes tf32_notes: texts of that package's documentation
""",
    "torch.optim": """
SGD Adam AdamW Adamax NAdam RAdam Rprop ASGD Adafactor LBFGS Muon Optimizer
Adadelta = AdaDelta
Adagrad = AdaGrad
RMSprop = RMSProp
SparseAdam = Adam; gradients are arrays, none is sparse
swap_in_optimizer_params_and_state: an optimizer writes into the parameters that setupOn gave it
StepLR = Step
MultiStepLR = MultiStep
ExponentialLR = Exponential
PolynomialLR = Polynomial
ConstantLR = Hold
LinearLR = WarmUp
CosineAnnealingLR = Cosine
CosineAnnealingWarmRestarts = CosineRestarts
CyclicLR = Cyclic
OneCycleLR = OneCycle
SequentialLR = Chain
ReduceLROnPlateau = ReduceOnPlateau
LRScheduler LambdaLR MultiplicativeLR ChainedScheduler: a schedule is any function of the number of the update:
  Adam(1e-3, schedule=function)
""",
    "keras.layers": f"""
Add Attention AvgPool1D AvgPool2D AvgPool3D Conv1D Conv2D Conv3D Dropout AlphaDropout Flatten Identity Input LSTM GRU
RNN = Scan; over a cell
LSTMCell GRUCell MaxPool1D MaxPool2D MaxPool3D MultiHeadAttention Reshape
Dense = Linear; {SIZED}; an activation is a module of its own
EinsumDense = Einsum("nij,jk->nik"); of x and a Weight
Convolution1D = Conv1D
Convolution2D = Conv2D
Convolution3D = Conv3D
Conv2DTranspose Convolution2DTranspose = Deconv2D
Conv1DTranspose Conv3DTranspose Convolution1DTranspose Convolution3DTranspose = DeconvNd
DepthwiseConv1D = Conv1D(8, 8, 3, groups=8)
DepthwiseConv2D = Conv2D(8, 8, 3, groups=8)
SeparableConv1D SeparableConvolution1D SeparableConv2D SeparableConvolution2D = SeparableConv; of any rank
Activation = Relu; each activation is a module of its own: Sigmoid, Tanh, Gelu, SoftMax
BatchNormalization = BatchNorm; momentum=0.01 for 0.99 there: the share of the new value
LayerNormalization = LayerNorm
RMSNormalization = RmsNorm
UnitNormalization = LpNormalize
GroupNormalization = GroupNorm
Normalization = BatchNorm(8, affine=False); in evalMode, once it has seen the data
SpectralNormalization = SpectralNorm; linear.W = SpectralNorm(linear.W)
MaxPooling1D = MaxPool1D
MaxPooling2D = MaxPool2D
MaxPooling3D = MaxPool3D
AveragePooling1D = AvgPool1D
AveragePooling2D = AvgPool2D
AveragePooling3D = AvgPool3D
AdaptiveAveragePooling1D AdaptiveAveragePooling2D AdaptiveAveragePooling3D = AdaptiveAvgPool
AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D = AdaptiveMaxPool
GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D GlobalAvgPool1D GlobalAvgPool2D GlobalAvgPool3D =
  GlobalAvgPool
GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D GlobalMaxPool1D GlobalMaxPool2D GlobalMaxPool3D =
  GlobalMaxPool
SpatialDropout1D SpatialDropout2D SpatialDropout3D = Dropout2D; of any number of spatial axes
Embedding = Embedder; -1 is padding, and gives zeros
CategoryEncoding = OneHot
ReLU = Relu
LeakyReLU = LeakyRelu
PReLU = PRelu
ELU = Elu
ZeroPadding1D ZeroPadding2D ZeroPadding3D = Pad
GaussianNoise = NoiseInjector("add", "gaussian", (0, 0.1)); of deviation 0.1
GaussianDropout = NoiseInjector("mul", "gaussian", (1, 0.5)); of deviation 0.5
ActivityRegularization = Penalty(0.01, "abs(x)"); its second output is added to the cost
Concatenate concatenate = Concat
add = Add
Multiply multiply = Mul
Subtract subtract = Sub
Average average = Average
Maximum maximum = Maximum
Minimum minimum = Minimum
Dot dot = Einsum("ni,ni->n"); along any axes, as its letters say
Permute = Transpose; its axes count the one of samples
RepeatVector
Cropping1D = Pad(-1); a negative side cuts off
Cropping2D Cropping3D CenterCrop = Pad(-1); a negative side cuts off
UpSampling1D = Upsample1D
UpSampling2D = Upsample2D
UpSampling3D = Upsample3D
Resizing = Resize((2, 3), by="sizes", factors=(32, 32), mode="linear")
Rescaling = MulAddConst(1 / 255, 0.0)
ReversibleEmbedding = Linear(8, 100, transpose=True); its W is the table of an Embedder(100, 8), which both may share
GroupQueryAttention = MultiHeadAttention(8, 4, groups=2)
AdditiveAttention
SimpleRNN = RNN
SimpleRNNCell = RNNCell
StackedRNNCells = RecurrentLayers
Bidirectional = LSTM(8, 16, direction="bi")
TimeDistributed
Softmax = SoftMax
ConvLSTM1D ConvLSTM2D ConvLSTM3D = ConvLSTM; channels come before spatial axes
STFTSpectrogram: DFT transforms windows, and a Conv1D with cosines and sines for weights makes both at once
MelSpectrogram: a Linear of mel filters behind DFT, of windows that Slice or Unfold make
Masking: what reads the sequences takes their lengths: LSTM(8, 16)(x, lengths=n)
InputLayer InputSpec = Input
Lambda = Pointwise(formula="x * sigmoid(x)"); what is not a formula is a Module or Function of your own
Layer = Module
Wrapper: a module holds another one as an attribute of its constructor, or a Derived replaces its weight
Pipeline = Sequential
IntegerLookup StringLookup = puregraph.data.TableReader(categories="town"); numbers categories ahead of a network
Hashing HashedCrossing TextVectorization Discretization: texts and intervals become numbers ahead of a network,
  as by np.digitize
AutoContrast RandomBrightness RandomColorDegeneration RandomContrast RandomElasticTransform RandomErasing
  RandomFlip RandomGaussianBlur RandomGrayscale RandomHue RandomInvert RandomPerspective RandomPosterization
  RandomRotation RandomSaturation RandomSharpness RandomShear RandomTranslation RandomZoom
CutMix = CutMix; takes images and targets, which both are outputs
MixUp = MixUp; takes images and targets, which both are outputs
RandomColorJitter = Sequential(RandomBrightness(), RandomContrast(), RandomSaturation(), RandomHue())
Solarization = Solarization(threshold=0.5); of one threshold, which there is uniform between 0 and its factor
RandomCrop = puregraph.data.Augmented(images, target, flip=True, crop=4); the batches of a training
AugMix ContrastLimitedAdaptiveHistogramEqualization Equalization RandAugment MaxNumBoundingBoxes:
  {RANDOMLY}
FlaxLayer JaxLayer TFSMLayer: no layers of other frameworks are run; puregraph.onnx reads their models
TorchModuleWrapper: puregraph.torch.fromTorch makes a graph of a network of PyTorch's
deserialize serialize: net.save(path) writes a network, puregraph.load reads it
""",
    "keras.losses": f"""
CTC Dice Hinge Huber KLDivergence LogCosh Poisson SquaredHinge Tversky
CosineSimilarity cosine_similarity = CosineEmbedding; for targets of 1, 1 more than there
BinaryCrossentropy binary_crossentropy = BCE; takes scores before sigmoid: leave Sigmoid out
CategoricalCrossentropy categorical_crossentropy = SoftCrossEntropy; takes scores before softmax, and probabilities
  for targets: leave SoftMax out
SparseCategoricalCrossentropy sparse_categorical_crossentropy = CrossEntropy; takes scores before softmax, and labels:
  leave SoftMax out
BinaryFocalCrossentropy binary_focal_crossentropy = Focal
CategoricalFocalCrossentropy categorical_focal_crossentropy = FocalCrossEntropy
CategoricalGeneralizedCrossEntropy categorical_generalized_cross_entropy = PointwiseCost(formula="target * (1 - x **
  0.5) / 0.5"); of probabilities, for q = 0.5, and a sum over classes
CategoricalHinge categorical_hinge: MultiMargin compares the label with every other class, not with the worst alone
Circle circle: a cost of whole batches; NTXent and InfoNCE compare all pairs of one
MeanAbsoluteError mean_absolute_error = Abs
MeanSquaredError mean_squared_error = MSE
MeanAbsolutePercentageError mean_absolute_percentage_error = PointwiseCost(formula="abs(x - target) / abs(target)");
  MAPE is the metric
MeanSquaredLogarithmicError mean_squared_logarithmic_error = PointwiseCost(formula="(log(1 + x) - log(1 + target)) **
  2")
Loss = Cost
ctc = CTC
dice = Dice
hinge = Hinge
huber = Huber
kl_divergence = KLDivergence
log_cosh = LogCosh
poisson = Poisson
squared_hinge = SquaredHinge
tversky = Tversky
get deserialize serialize: {COSTS}
""",
    "keras.metrics": """
Accuracy MeanIoU Metric Precision Recall
BinaryAccuracy CategoricalAccuracy SparseCategoricalAccuracy binary_accuracy categorical_accuracy
  sparse_categorical_accuracy = Accuracy
TopKCategoricalAccuracy SparseTopKCategoricalAccuracy top_k_categorical_accuracy sparse_top_k_categorical_accuracy =
  TopK
BinaryCrossentropy CategoricalCrossentropy SparseCategoricalCrossentropy binary_crossentropy categorical_crossentropy
  sparse_categorical_crossentropy = LogLoss; of scores
AUC = RocAuc; the area under the curve of precision and recall is AveragePrecision
F1Score = F1
FBetaScore: F1 is that of beta 1; any other is computed from Precision and Recall
BinaryIoU IoU OneHotIoU OneHotMeanIoU = MeanIoU
TruePositives FalsePositives TrueNegatives FalseNegatives = Confusion(2); counts all four
PrecisionAtRecall RecallAtPrecision SensitivityAtSpecificity SpecificityAtSensitivity: RocAuc and AveragePrecision are
  areas under these curves, no metric picks one of their points
MeanSquaredError mean_squared_error = SquaredError; MSE is the cost
MeanAbsoluteError mean_absolute_error = MAE; Abs is the cost
MeanAbsolutePercentageError mean_absolute_percentage_error = MAPE
RootMeanSquaredError = RMSE
MeanSquaredLogarithmicError mean_squared_logarithmic_error: SquaredError of the logarithms: no metric takes them by
  itself
R2Score = R2
PearsonCorrelation pearson_correlation = Pearson
ConcordanceCorrelation concordance_correlation: Pearson and R2 are there, no metric multiplies them
CosineSimilarity: CosineSimilarity is a module here, CosineEmbedding a cost; a Metric of your own divides two sums
CategoricalHinge Hinge KLDivergence LogCoshError Poisson SquaredHinge binary_focal_crossentropy
  categorical_focal_crossentropy categorical_hinge hinge huber kl_divergence log_cosh poisson squared_hinge: the
  cost's own mean stands in the history; as a figure beside it, a Metric of your own
Mean MeanMetricWrapper Sum = Metric; a subclass computes in `share` what a batch adds to two sums
get deserialize serialize: a Trainer takes a list of metrics: metrics=[Accuracy()]
""",
    "keras.optimizers": """
SGD Adam AdamW Adamax Adafactor Lion Muon Optimizer MultiOptimizer
Adadelta = AdaDelta
Adagrad = AdaGrad
Nadam = NAdam
RMSprop = RMSProp
Lamb = LAMB
ScheduleFreeAdamW = ScheduleFree
OptimizerMap = MultiOptimizer
LossScaleOptimizer: net.calcMode("float16") has the scale of the loss with it
Ftrl legacy: AdaGrad adapts the rate of each element as that does, without its penalties
CosineDecay = Cosine
CosineDecayRestarts = CosineRestarts
ExponentialDecay = Exponential
PiecewiseConstantDecay = MultiStep
PolynomialDecay = Polynomial
LearningRateSchedule InverseTimeDecay: a schedule is any function of the number of the update: Adam(1e-3,
  schedule=function)
get deserialize serialize schedules: optimizers and schedules are classes: Adam(1e-3, schedule=Cosine())
""",
    "PuzzleLib.Modules": """
Add AvgPool1D AvgPool2D AvgPool3D BatchNorm Cast Concat Conv1D Conv2D Conv3D Deconv2D DepthConcat Dropout Dropout2D
  Embedder
Flatten Gelu GroupLinear Identity KMaxPool LCN Linear MapLRN MaxPool1D MaxPool2D MaxPool3D Module MoveAxis Mul
  MulAddConst
NoiseInjector PRelu Penalty RNN Reshape Slice SoftMax Split SubtractMean Sum SwapAxes Tile Transpose Upsample2D
  Upsample3D
BatchNorm1D BatchNorm2D BatchNorm3D = BatchNorm; of any rank
Deconv1D Deconv3D = DeconvNd
CrossMapLRN = LocalResponseNorm
InstanceNorm2D = InstanceNorm; of any rank
MaxUnpool2D = MaxUnpool; MaxPool2D(useMask=True) gives the mask that it takes
Pad1D Pad2D = Pad
SpatialTf = GridSample; at the grid that AffineGrid makes of theta
Activation = Relu; each activation is a module of its own: Sigmoid, Tanh, LeakyRelu, Elu, SoftPlus, Clip
sigmoid = Sigmoid
tanh = Tanh
relu = Relu
leakyRelu = LeakyRelu
elu = Elu
softPlus = SoftPlus
clip = Clip
Glue = Function; its callbacks are the methods forward and backward
Replicate: not needed: a node of a Graph may have any number of readers
ToList: not needed: several outputs of a node are a list, and one output is read by its slot: (node, 0)
ActivationType DataType GroupMode InitScheme InjectMode NoiseType PadMode PenaltyMode RNNMode DirectionMode
  UpsampleMode WeightModifier: an option is a str: Pad(1, mode="reflect")
MemoryUnit: summary(net, shape) says how many bytes, in a unit that suits
ModuleError = ShapeError
""",
    "PuzzleLib.Containers": """
Graph Parallel Sequential
Container: a container is a Sequential, a Parallel or a Graph
toGraph: not needed: every container is a Graph
""",
    "PuzzleLib.Cost": """
Abs BCE CTC CrossEntropy Hinge KLDivergence L1Hinge MSE SVM SmoothL1
Multi = CostSum
""",
    "PuzzleLib.Optimizers": """
AdaDelta AdaGrad Adam MomentumSGD NesterovSGD RMSProp RMSPropGraves SGD SMORMS3
""",
    "PuzzleLib.Handlers": """
Calculator Trainer Validator
""",
}

OTHERS = """
LRN = LocalResponseNorm
Silu = Swish
HardSiLU = HardSwish
register_buffer = State; in a constructor: self.mean = State(shape)
DistributedDataParallel: a Trainer started by several processes divides each batch
im2col = Unfold
col2im = Col2Im
to_categorical = OneHot; CrossEntropy takes labels themselves
hard_sigmoid = HardSigmoid
DepthToSpace = PixelShuffle
SpaceToDepth = PixelUnshuffle
tensor Variable: data are arrays of numpy, or cupy on a GPU: there is no class of tensors
LearningRateScheduler: a schedule is any function of the number of the update: Adam(1e-3, schedule=function)
ExponentialMovingAverage AveragedModel = EMA
SWALR = SWA; an average of weights; its rate is a schedule like any other
spectral_norm = SpectralNorm; linear.W = SpectralNorm(linear.W)
quantize quantize_static quantize_dynamic quantize_model = quantise
cat = Concat
permute = Transpose
FocalLoss sigmoid_focal_loss = Focal
DiceLoss = Dice
HingeLoss hinge_loss = Hinge
LogCoshLoss = LogCosh
TweedieLoss = Tweedie
QuantileLoss PinballLoss pinball_loss = Quantile
log_loss = LogLoss
fbeta_score: F1 is that of beta 1; any other is computed from Precision and Recall
r2_score = R2
root_mean_squared_error = RMSE
InstanceNormalization = InstanceNorm
sparsemax Sparsemax = SparseMax
entmax entmax15 Entmax15 = Entmax
ThresholdedReLU = Threshold
DropPath drop_path stochastic_depth = StochasticDepth
swapaxes = SwapAxes
moveaxis movedim = MoveAxis
View = Reshape
rand_like randn_like = RandomLike
dynamic_slice = DynamicSlice
EarlyStopping = EarlyStop
ModelCheckpoint = Checkpoint
LRFinder lr_find LearningRateFinder = findRate
CSVLogger = CsvLog
top_k_accuracy_score = TopK
ConfusionMatrix BinaryConfusionMatrix MulticlassConfusionMatrix confusion_matrix = Confusion
BinaryF1Score MulticlassF1Score MultilabelF1Score f1_score = F1
BinaryPrecision MulticlassPrecision precision_score = Precision
BinaryRecall MulticlassRecall recall_score Sensitivity = Recall
AUROC ROC ROCAUC BinaryAUROC MulticlassAUROC MultilabelAUROC roc_auc_score = RocAuc
BinaryAveragePrecision MulticlassAveragePrecision MultilabelAveragePrecision average_precision_score PRAUC =
  AveragePrecision
PrecisionRecallCurve precision_recall_curve roc_curve: RocAuc and AveragePrecision are areas under them
CharErrorRate cer = CER
WordErrorRate wer = WER
EditDistance: CER divides edit distances by the lengths of the targets
BLEUScore SacreBLEUScore corpus_bleu sentence_bleu = BLEU
BinaryCalibrationError MulticlassCalibrationError expected_calibration_error ECE = CalibrationError
MulticlassAccuracy MultilabelAccuracy accuracy_score = Accuracy
balanced_accuracy_score: Recall(classes=n) is the mean over classes
MetricCollection: a Trainer takes a list of metrics
SpearmanCorrCoef spearmanr = Spearman
weighted_metrics: Accuracy().weighted() uses the sampleWeight of train and validate
explained_variance_score = ExplainedVariance
PearsonCorrCoef = Pearson
CohenKappa BinaryCohenKappa MulticlassCohenKappa cohen_kappa_score = Kappa
MatthewsCorrCoef BinaryMatthewsCorrCoef MulticlassMatthewsCorrCoef matthews_corrcoef = Matthews
JaccardIndex BinaryJaccardIndex MulticlassJaccardIndex jaccard_score = MeanIoU
autocast GradScaler amp mixed_precision set_global_policy: net.calcMode("bfloat16") chooses how a network calculates
stop_gradient detach = StopGradient
LoraConfig get_peft_model = LoRA
weight_norm = WeightNorm
orthogonal = Orthogonal
Residual: a node may be read twice: x + module(x)
load_model = load
Model GraphModule = Graph
save: net.save(path) writes a network, trainer.save(path) all of a training
no_grad inference_mode: nothing is recorded until backward is called: net.evalMode() is enough
DataLoader Dataset TensorDataset: a Trainer takes arrays, or batches (data, target) of any iterable
manual_seed set_seed set_random_seed seed_everything = seed
clip_grad_norm_ clip_grad_value_: the optimizer clips: Adam(1e-3, clipNorm=1.0), or clipValue=0.5
GradientTape grad vjp jvp jacrev jacfwd jacobian hessian vmap functional_call: derivatives of functions are in
  puregraph.autodiff: grad, jvp, vjp, jacobian, hessian, per_sample_gradients
init xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ trunc_normal_: a module takes its scheme:
  Linear(3, 4, initscheme="he")
zeros ones full rand randn arange linspace stack where matmul bmm einsum clamp sort topk from_numpy as_tensor: data are
  arrays of numpy: np.zeros(3); inside of a graph, docs/modules.md lists the module for each function
random_split Subset train_test_split: select samples by index: data[:800], data[800:]
TerminateOnNaN: the optimizer stops at NaN: Adam(1e-3, onNonFinite="raise")
LambdaCallback: a callback of your own is a class: from puregraph import Callback
LightningModule: from puregraph import Trainer; Trainer(net, cost, optimizer).train(data, target, epochs=10)
plot_model: net.draw("net.svg")
jit script trace: a Trainer compiles its step; net.compile(shape) compiles a network
metrics: metrics are there at once: from puregraph import Accuracy
device_count is_available: puregraph doctor, or device.name(), says which device is used
nn layers keras functional Modules Containers: modules are there at once: from puregraph import Linear
optim Optimizers: optimizers are there at once: from puregraph import Adam
losses: costs are there at once: from puregraph import CrossEntropy
Handlers callbacks: from puregraph import Trainer, Validator, Calculator, Checkpoint
Backend Config gpuarray: PUREGRAPH_DEVICE=cpu or cuda, or useDevice, chooses the device
"""


class Counterpart(NamedTuple):
    """One foreign name: what stands for it here, a name or an expression, empty for nothing; and a note or reason."""

    name: str
    here: str
    note: str

    @property
    def hint(self) -> str:
        """The answer to an import of the name."""
        if self.here.isidentifier():
            return f"it is called {self.here}: from puregraph import {self.here}" + (self.note and f"; {self.note}")
        return "; ".join(filter(None, [self.here and f"write {self.here}", self.note]))


def rows(text: str) -> list[list[Counterpart]]:
    """The lines of a text as counterparts, those of one line together."""
    table = []
    for line in filter(None, text.replace("\n ", "").splitlines()):
        names, isHere, here = line.partition(" = ")
        here, _, note = here.partition("; ")
        if not isHere:
            names, _, note = line.partition(": ")
        isSame = not (isHere or note)
        made = [Counterpart(name, name if isSame else here, note) for name in names.split()]
        table += [[one] for one in made] if isSame else [made]
    return table


@cache
def counterparts() -> dict[str, Counterpart]:
    """Counterparts by foreign name; of a name in several packages, the first that is here."""
    every = [one for text in (*TABLE.values(), OTHERS) for row in rows(text) for one in row]
    every.sort(key=lambda one: not one.here)
    return {one.name: one for one in reversed(every)}
