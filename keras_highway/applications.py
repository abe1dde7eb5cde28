from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.variants import VARIANTS
def create_model(variant, classifier_activation="softmax", **overrides):
    return build(override(VARIANTS[variant], **overrides), classifier_activation=classifier_activation)
