"""Trained weights to the Hub and back: what a repository holds, bringing it up to date, verifying it."""

from keras_highway.publishing.bundle import write_bundle
from keras_highway.publishing.gate_report import gate_report
from keras_highway.publishing.kinds import kind_of
from keras_highway.publishing.publish import publish, publish_all
from keras_highway.publishing.sources import Publishable, find_publishable
from keras_highway.publishing.subject import Subject, recorded
from keras_highway.publishing.verify import Verification, verify

__all__ = [
    "Publishable",
    "Subject",
    "Verification",
    "find_publishable",
    "gate_report",
    "kind_of",
    "publish",
    "publish_all",
    "recorded",
    "verify",
    "write_bundle",
]
