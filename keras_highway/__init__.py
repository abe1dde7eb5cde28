"""Networks with gated skip connections for Keras: `y = H(x)·T(x) + x·C(x)`.

>>> import keras_highway as kh
>>> model = kh.load("mnist10_w16.tvdn")
>>> kh.list_models("highway*")
>>> kh.Highway50(weights=None, classes=10)
"""

import os as _os

from keras_highway._support.backend import COMMAND as _COMMAND
from keras_highway._support.backend import only_public as _only_public
from keras_highway._support.backend import program_of as _program_of

_PROGRAM = _program_of(__name__)
if _PROGRAM:
    _os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # TensorFlow's warnings and errors, no information
if _PROGRAM != _COMMAND:  # `--help` and `list` need not wait for Keras
    from keras_highway._support.backend import explained as _explained

    try:
        import keras as _keras  # noqa: F401
    except ModuleNotFoundError as _error:
        raise _explained(_error) from _error
    from keras_highway import analysis as analysis
    from keras_highway import data as data
    from keras_highway import language as language
    from keras_highway import layers as layers
    from keras_highway._support.terminal import Notice as Notice
    from keras_highway.applications import Highway50 as Highway50
    from keras_highway.applications import Highway101 as Highway101
    from keras_highway.applications import Highway152 as Highway152
    from keras_highway.applications import HighwayResNet50 as HighwayResNet50
    from keras_highway.applications import HighwayResNet101 as HighwayResNet101
    from keras_highway.applications import HighwayResNet152 as HighwayResNet152
    from keras_highway.applications import ResNet50 as ResNet50
    from keras_highway.applications import ResNet101 as ResNet101
    from keras_highway.applications import ResNet152 as ResNet152
    from keras_highway.applications import create_model as create_model
    from keras_highway.applications import get_spec as get_spec
    from keras_highway.applications import list_models as list_models
    from keras_highway.applications import load as load
    from keras_highway.data.transforms import PixelRange as PixelRange
    from keras_highway.data.vocabulary import Vocabulary as Vocabulary
    from keras_highway.equation import mix as mix
    from keras_highway.gating import GATINGS as GATINGS
    from keras_highway.gating import Signals as Signals
    from keras_highway.language import CharLM as CharLM
    from keras_highway.models.transfer import enable_lora as enable_lora
    from keras_highway.models.transfer import features as features
    from keras_highway.models.transfer import freeze as freeze
    from keras_highway.models.transfer import freeze_batch_norm as freeze_batch_norm
    from keras_highway.models.transfer import layer_groups as layer_groups
    from keras_highway.models.transfer import merge_lora as merge_lora
    from keras_highway.models.transfer import num_features as num_features
    from keras_highway.models.transfer import reset_classifier as reset_classifier
    from keras_highway.models.transfer import unfreeze as unfreeze
    from keras_highway.predictions import classify as classify
    from keras_highway.predictions import decode_predictions as decode_predictions
    from keras_highway.predictions import get_transform as get_transform
    from keras_highway.predictions import preprocess_input as preprocess_input
    from keras_highway.weights.describe import describe_weights as describe_weights
    from keras_highway.weights.hub import HubError as HubError
    from keras_highway.weights.info import UncheckedWeights as UncheckedWeights
    from keras_highway.weights.info import WeightFileError as WeightFileError
    from keras_highway.weights.load import FreshHead as FreshHead
    from keras_highway.weights.registry import list_weights as list_weights
    from keras_highway.weights.resnet_to_highway import highway_from_resnet as highway_from_resnet
    from keras_highway.weights.save import push_to_hub as push_to_hub
    from keras_highway.weights.save import save as save

__version__ = "0.2.0"

_only_public(__name__, modules=("analysis", "data", "language", "layers"))
