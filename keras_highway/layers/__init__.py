"""Gated layers and blocks."""

from keras_highway._support.backend import only_public as _only_public
from keras_highway.layers.base import GatedBlock as GatedBlock
from keras_highway.layers.blocks import BasicBlock as BasicBlock
from keras_highway.layers.blocks import BottleneckBlock as BottleneckBlock
from keras_highway.layers.blocks import Branch as Branch
from keras_highway.layers.blocks import ZeroPadProjection as ZeroPadProjection
from keras_highway.layers.conv import HighwayConv2D as HighwayConv2D
from keras_highway.layers.dense import HighwayDense as HighwayDense
from keras_highway.layers.dense import HighwayDenseStack as HighwayDenseStack
from keras_highway.layers.language import CarriedLSTM as CarriedLSTM
from keras_highway.layers.language import CharCNN as CharCNN
from keras_highway.layers.language import CharEmbedding as CharEmbedding
from keras_highway.layers.language import HierarchicalSoftmax as HierarchicalSoftmax
from keras_highway.layers.language import TakeRows as TakeRows
from keras_highway.layers.preprocessing import Preprocessing as Preprocessing
from keras_highway.layers.ungated import ChannelGate as ChannelGate
from keras_highway.layers.ungated import GivenConv2D as GivenConv2D
from keras_highway.layers.ungated import LowRankDense as LowRankDense
from keras_highway.layers.ungated import SharedKernels as SharedKernels

_only_public(__name__)
