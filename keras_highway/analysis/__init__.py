"""What a network does inside: its blocks' signals, other wirings of the same layers, its cost, its gates."""

from keras_highway.analysis.cost import Cost as Cost
from keras_highway.analysis.cost import StageCost as StageCost
from keras_highway.analysis.cost import cost as cost
from keras_highway.analysis.graph import blocks as blocks
from keras_highway.analysis.plots import plot_gates as plot_gates
from keras_highway.analysis.rewire import Lesion as Lesion
from keras_highway.analysis.rewire import lesion as lesion
from keras_highway.analysis.rewire import rewire as rewire
from keras_highway.analysis.trace import BlockTrace as BlockTrace
from keras_highway.analysis.trace import Trace as Trace
from keras_highway.analysis.trace import Tracer as Tracer
from keras_highway.analysis.trace import trace as trace
