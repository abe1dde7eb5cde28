"""Which class opens trained weights: the one of their task."""

from keras_highway.applications import get_spec
from keras_highway.publishing.images import ClassifierWeights
from keras_highway.publishing.language_models import LanguageModel
from keras_highway.publishing.task_weights import TaskWeights

_CLASSES: dict[str, type[TaskWeights]] = {cls.task.name: cls for cls in (ClassifierWeights, LanguageModel)}


def weights_class(variant: str) -> type[TaskWeights]:
    """Return the class that opens weights of a variant."""
    return _CLASSES[get_spec(variant).task.name]
