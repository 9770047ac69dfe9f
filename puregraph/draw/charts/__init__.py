"""Charts: curves, matrices, images and histograms, as text in a terminal and as pictures by matplotlib."""

from puregraph.draw.charts.chart import Chart
from puregraph.draw.charts.curvechart import CurveChart, Panel
from puregraph.draw.charts.histogramchart import HistogramChart
from puregraph.draw.charts.imagechart import ImageChart
from puregraph.draw.charts.matrixchart import MatrixChart

__all__ = ["Chart", "CurveChart", "HistogramChart", "ImageChart", "MatrixChart", "Panel"]
