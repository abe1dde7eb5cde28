"""The one place that tells weights that look at images from those that read words."""

from keras_highway.publishing.images import ImageClassifier
from keras_highway.publishing.language_models import LanguageModel
from keras_highway.publishing.subject import Subject
from keras_highway.variants import LM_VARIANTS


def kind_of(variant: str) -> type[Subject]:
    """Returns the class that opens weights of a variant."""
    return LanguageModel if variant in LM_VARIANTS else ImageClassifier
