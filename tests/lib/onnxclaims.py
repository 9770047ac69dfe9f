"""Which operators of ONNX are claimed to be read: those of which every case has to pass, and why others are not.

`EXPANDED` are claimed because the standard writes them out in operators that are; `LEFTOUT` says of single cases of
claimed operators why they cannot pass.
"""

CLAIMED = """
Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitCast BitShift BitwiseAnd BitwiseNot
BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Compress Concat Constant ConstantOfShape Conv ConvInteger
ConvTranspose DeformConv Cos Cosh CumProd CumSum DepthToSpace DequantizeLinear Det Div Dropout DynamicQuantizeLinear Einsum Elu
Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool
Greater GreaterOrEqual GridSample HardSigmoid HardSwish Hardmax Identity If InstanceNormalization IsInf IsNaN LRN LSTM
LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax Loop LpNormalization LpPool MatMul MatMulInteger Max MaxPool
Mean Min Mish Mod Mul Neg NonMaxSuppression NonZero Not OneHot Or PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear RNN Range
Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign Round Scatter ScatterElements ScatterND Scan Selu Shape Shrink Sigmoid Sign Sin
Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tan Tanh TensorScatter
ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze Upsample Where Xor
""".split()

EXPANDED = """
Attention BlackmanWindow CausalConvWithState CenterCropPad GroupNormalization HammingWindow HannWindow LinearAttention MeanVarianceNormalization
NegativeLogLikelihoodLoss RMSNormalization RotaryEmbedding SoftmaxCrossEntropyLoss SwiGLU
""".split()

CONSTANT = {  # operators of which these inputs, lengths, axes and shapes, have to be constants
    "Col2Im": {1, 2},
    "DFT": {1, 2},
    "MaxUnpool": {2},
    "MelWeightMatrix": {0, 1, 2, 3, 4},
    "STFT": {1, 3},
}

SEQUENCES = """
ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty
SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence
""".split()

RANDOM = "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()

LEFTOUT = {
    **dict.fromkeys(
        """
        attention_4d_causal_fp16 attention_4d_causal_bf16 attention_4d_padded_kv_bf16
        attention_4d_causal_padded_kv_bf16 attention_4d_attn_mask_causal_bf16 attention_3d_causal_bf16
        """.split(),
        "expected is what comes of rounding to 16 bits after each step, to the last bit; here sums are wider",
    ),
    "training_dropout": "elements are set to zero at random",
    "bernoulli": "elements are drawn at random",
}

PLAIN, WRITTENOUT = 1190, 418  # cases that pass; they may only grow
