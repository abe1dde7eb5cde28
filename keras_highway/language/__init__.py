"""The language model as its users see it: text in, perplexities, text and neighbours out."""

from keras_highway._support.backend import only_public as _only_public
from keras_highway.language.char_lm import CharLM as CharLM
from keras_highway.language.scores import Line as Line
from keras_highway.language.scores import Score as Score
from keras_highway.language.word_table import Neighbour as Neighbour

_only_public(__name__)
