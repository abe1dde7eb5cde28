"""Trained weights to the Hub and back: what a repository holds, bringing it up to date, verifying it."""

from keras_highway.publishing.bundle import write_bundle
from keras_highway.publishing.gate_report import gate_report
from keras_highway.publishing.publish import publish, publish_all
from keras_highway.publishing.sources import Publishable, find_publishable
from keras_highway.publishing.verify import Verification, verify

__all__ = [
    "Publishable",
    "Verification",
    "find_publishable",
    "gate_report",
    "publish",
    "publish_all",
    "verify",
    "write_bundle",
]
