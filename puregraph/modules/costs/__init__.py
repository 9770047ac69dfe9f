"""Costs: Modules that compare predictions with targets and return a number: a mean, or a sum."""

from puregraph.modules.costs.abs import Abs
from puregraph.modules.costs.adaptivesoftmax import AdaptiveSoftmax
from puregraph.modules.costs.arcface import ArcFace
from puregraph.modules.costs.bce import BCE
from puregraph.modules.costs.cost import Cost
from puregraph.modules.costs.counts import Poisson, Tweedie
from puregraph.modules.costs.crossentropy import CrossEntropy
from puregraph.modules.costs.ctc import CTC
from puregraph.modules.costs.distances import LogCosh, Quantile
from puregraph.modules.costs.divergence import KLDivergence
from puregraph.modules.costs.focal import Focal, FocalCrossEntropy
from puregraph.modules.costs.gaussiannll import GaussianNLL
from puregraph.modules.costs.hinge import Hinge, HingeEmbedding, L1Hinge, SoftMargin, SquaredHinge
from puregraph.modules.costs.huber import Huber
from puregraph.modules.costs.infonce import InfoNCE, NTXent
from puregraph.modules.costs.linearcrossentropy import LinearCrossEntropy
from puregraph.modules.costs.mse import MSE
from puregraph.modules.costs.multimargin import SVM, MultiLabelMargin, MultiLabelSoftMargin, MultiMargin
from puregraph.modules.costs.nll import NLL
from puregraph.modules.costs.pairs import Contrastive, CosineEmbedding, MarginRanking, Triplet
from puregraph.modules.costs.pointwisecost import PointwiseCost
from puregraph.modules.costs.regions import Dice, Lovasz, LovaszHinge, Tversky
from puregraph.modules.costs.rnnt import RNNT
from puregraph.modules.costs.smoothl1 import SmoothL1
from puregraph.modules.costs.softcrossentropy import SoftCrossEntropy

__all__ = [
    "Abs",
    "AdaptiveSoftmax",
    "ArcFace",
    "BCE",
    "CTC",
    "Contrastive",
    "CosineEmbedding",
    "Cost",
    "CrossEntropy",
    "Dice",
    "Focal",
    "FocalCrossEntropy",
    "GaussianNLL",
    "Hinge",
    "HingeEmbedding",
    "Huber",
    "InfoNCE",
    "KLDivergence",
    "L1Hinge",
    "LinearCrossEntropy",
    "LogCosh",
    "Lovasz",
    "LovaszHinge",
    "MSE",
    "MarginRanking",
    "MultiLabelMargin",
    "MultiLabelSoftMargin",
    "MultiMargin",
    "NLL",
    "NTXent",
    "PointwiseCost",
    "Poisson",
    "Quantile",
    "RNNT",
    "SVM",
    "SmoothL1",
    "SoftCrossEntropy",
    "SoftMargin",
    "SquaredHinge",
    "Triplet",
    "Tversky",
    "Tweedie",
]
