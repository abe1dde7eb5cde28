"""Trained weights, runs and searches, each in a folder of its own; `release` makes the weights from runs."""
