"""A report of one network: every analysis on a subset of a test set, as one HTML page and JSON."""

from keras_highway.reporting.page import numbers_of as numbers_of
from keras_highway.reporting.page import write_report as write_report
from keras_highway.reporting.report import Report as Report
from keras_highway.reporting.report import default_samples as default_samples
from keras_highway.reporting.report import make_report as make_report
from keras_highway.reporting.section import Section as Section
