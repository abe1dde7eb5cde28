"""Trained weights to the Hub and back: what a repository holds, bringing it up to date, verifying it."""

from keras_highway.publishing.bundle import write_bundle
from keras_highway.publishing.by_task import weights_class
from keras_highway.publishing.gate_report import gate_report
from keras_highway.publishing.publish import publish, publish_all
from keras_highway.publishing.publishable import Publishable, find_publishable
from keras_highway.publishing.task_weights import TaskWeights, recorded
from keras_highway.publishing.verify import Verification, verify

__all__ = [
    "Publishable",
    "TaskWeights",
    "Verification",
    "find_publishable",
    "gate_report",
    "publish",
    "publish_all",
    "recorded",
    "verify",
    "weights_class",
    "write_bundle",
]
