"""Trained weights, one folder each, and the tables made from their results."""
