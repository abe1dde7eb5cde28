"""The Hugging Face Hub: names, checked downloads, uploads. The only part that imports huggingface_hub, and lazily.

Everything that comes from the Hub is data: files of fixed names, read with
h5py, json and safetensors. No pickle is opened and no code is run.
"""

from keras_highway.hub.cards import CardMetric, ModelFacts, card_header
from keras_highway.hub.client import cache_folder
from keras_highway.hub.download import fetch
from keras_highway.hub.error import HubError
from keras_highway.hub.names import HubName, is_hub_name, parse, parse_target
from keras_highway.hub.upload import Pushed, push

__all__ = [
    "CardMetric",
    "HubError",
    "HubName",
    "ModelFacts",
    "Pushed",
    "cache_folder",
    "card_header",
    "fetch",
    "is_hub_name",
    "parse",
    "parse_target",
    "push",
]
