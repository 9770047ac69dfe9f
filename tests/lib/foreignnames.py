"""Public names of Keras 3.15.1 and of PuzzleLib, whose packages the tests need not have."""

KERAS = {
    "layers": """
Activation ActivityRegularization AdaptiveAveragePooling1D AdaptiveAveragePooling2D AdaptiveAveragePooling3D
AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D Add AdditiveAttention AlphaDropout Attention AugMix
AutoContrast Average AveragePooling1D AveragePooling2D AveragePooling3D AvgPool1D AvgPool2D AvgPool3D
BatchNormalization Bidirectional CategoryEncoding CenterCrop Concatenate
ContrastLimitedAdaptiveHistogramEqualization Conv1D Conv1DTranspose Conv2D Conv2DTranspose Conv3D Conv3DTranspose
ConvLSTM1D ConvLSTM2D ConvLSTM3D Convolution1D Convolution1DTranspose Convolution2D Convolution2DTranspose
Convolution3D Convolution3DTranspose Cropping1D Cropping2D Cropping3D CutMix Dense DepthwiseConv1D DepthwiseConv2D
Discretization Dot Dropout ELU EinsumDense Embedding Equalization Flatten FlaxLayer GRU GRUCell GaussianDropout
GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D GlobalAvgPool1D GlobalAvgPool2D
GlobalAvgPool3D GlobalMaxPool1D GlobalMaxPool2D GlobalMaxPool3D GlobalMaxPooling1D GlobalMaxPooling2D
GlobalMaxPooling3D GroupNormalization GroupQueryAttention HashedCrossing Hashing Identity Input InputLayer InputSpec
IntegerLookup JaxLayer LSTM LSTMCell Lambda Layer LayerNormalization LeakyReLU Masking MaxNumBoundingBoxes MaxPool1D
MaxPool2D MaxPool3D MaxPooling1D MaxPooling2D MaxPooling3D Maximum MelSpectrogram Minimum MixUp MultiHeadAttention
Multiply Normalization PReLU Permute Pipeline RMSNormalization RNN RandAugment RandomBrightness
RandomColorDegeneration RandomColorJitter RandomContrast RandomCrop RandomElasticTransform RandomErasing RandomFlip
RandomGaussianBlur RandomGrayscale RandomHue RandomInvert RandomPerspective RandomPosterization RandomRotation
RandomSaturation RandomSharpness RandomShear RandomTranslation RandomZoom ReLU RepeatVector Rescaling Reshape
Resizing ReversibleEmbedding STFTSpectrogram SeparableConv1D SeparableConv2D SeparableConvolution1D
SeparableConvolution2D SimpleRNN SimpleRNNCell Softmax Solarization SpatialDropout1D SpatialDropout2D
SpatialDropout3D SpectralNormalization StackedRNNCells StringLookup Subtract TFSMLayer TextVectorization
TimeDistributed TorchModuleWrapper UnitNormalization UpSampling1D UpSampling2D UpSampling3D Wrapper ZeroPadding1D
ZeroPadding2D ZeroPadding3D add average concatenate deserialize dot maximum minimum multiply serialize subtract
""",
    "losses": """
BinaryCrossentropy BinaryFocalCrossentropy CTC CategoricalCrossentropy CategoricalFocalCrossentropy
CategoricalGeneralizedCrossEntropy CategoricalHinge Circle CosineSimilarity Dice Hinge Huber KLDivergence LogCosh
Loss MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredError MeanSquaredLogarithmicError Poisson
SparseCategoricalCrossentropy SquaredHinge Tversky binary_crossentropy binary_focal_crossentropy
categorical_crossentropy categorical_focal_crossentropy categorical_generalized_cross_entropy categorical_hinge
circle cosine_similarity ctc deserialize dice get hinge huber kl_divergence log_cosh mean_absolute_error
mean_absolute_percentage_error mean_squared_error mean_squared_logarithmic_error poisson serialize
sparse_categorical_crossentropy squared_hinge tversky
""",
    "metrics": """
AUC Accuracy BinaryAccuracy BinaryCrossentropy BinaryIoU CategoricalAccuracy CategoricalCrossentropy
CategoricalHinge ConcordanceCorrelation CosineSimilarity F1Score FBetaScore FalseNegatives FalsePositives Hinge IoU
KLDivergence LogCoshError Mean MeanAbsoluteError MeanAbsolutePercentageError MeanIoU MeanMetricWrapper
MeanSquaredError MeanSquaredLogarithmicError Metric OneHotIoU OneHotMeanIoU PearsonCorrelation Poisson Precision
PrecisionAtRecall R2Score Recall RecallAtPrecision RootMeanSquaredError SensitivityAtSpecificity
SparseCategoricalAccuracy SparseCategoricalCrossentropy SparseTopKCategoricalAccuracy SpecificityAtSensitivity
SquaredHinge Sum TopKCategoricalAccuracy TrueNegatives TruePositives binary_accuracy binary_crossentropy
binary_focal_crossentropy categorical_accuracy categorical_crossentropy categorical_focal_crossentropy
categorical_hinge concordance_correlation deserialize get hinge huber kl_divergence log_cosh mean_absolute_error
mean_absolute_percentage_error mean_squared_error mean_squared_logarithmic_error pearson_correlation poisson
serialize sparse_categorical_accuracy sparse_categorical_crossentropy sparse_top_k_categorical_accuracy
squared_hinge top_k_categorical_accuracy
""",
    "optimizers": """
Adadelta Adafactor Adagrad Adam AdamW Adamax CosineDecay CosineDecayRestarts ExponentialDecay Ftrl InverseTimeDecay
Lamb LearningRateSchedule Lion LossScaleOptimizer MultiOptimizer Muon Nadam Optimizer OptimizerMap
PiecewiseConstantDecay PolynomialDecay RMSprop SGD ScheduleFreeAdamW deserialize get legacy schedules serialize
""",
}

PUZZLELIB = {
    "Modules": """
Activation ActivationType Add AvgPool1D AvgPool2D AvgPool3D BatchNorm BatchNorm1D BatchNorm2D BatchNorm3D Cast
Concat Conv1D Conv2D Conv3D CrossMapLRN DataType Deconv1D Deconv2D Deconv3D DepthConcat DirectionMode Dropout
Dropout2D Embedder Flatten Gelu Glue GroupLinear GroupMode Identity InitScheme InjectMode InstanceNorm2D KMaxPool
LCN Linear MapLRN MaxPool1D MaxPool2D MaxPool3D MaxUnpool2D MemoryUnit Module ModuleError MoveAxis Mul MulAddConst
NoiseInjector NoiseType PRelu Pad1D Pad2D PadMode Penalty PenaltyMode RNN RNNMode Replicate Reshape Slice SoftMax
SpatialTf Split SubtractMean Sum SwapAxes Tile ToList Transpose Upsample2D Upsample3D UpsampleMode WeightModifier
clip elu leakyRelu relu sigmoid softPlus tanh
""",
    "Containers": """
Container Graph Parallel Sequential
""",
    "Cost": """
Abs BCE CTC CrossEntropy Hinge KLDivergence L1Hinge MSE Multi SVM SmoothL1
""",
    "Optimizers": """
AdaDelta AdaGrad Adam MomentumSGD NesterovSGD RMSProp RMSPropGraves SGD SMORMS3
""",
    "Handlers": """
Calculator Trainer Validator
""",
}
