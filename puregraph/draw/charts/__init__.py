"""Charts: curves and matrices, as text in a terminal and as pictures by matplotlib."""

from puregraph.draw.charts.chart import Chart
from puregraph.draw.charts.curvechart import CurveChart, Panel
from puregraph.draw.charts.matrixchart import MatrixChart

__all__ = ["Chart", "CurveChart", "MatrixChart", "Panel"]
