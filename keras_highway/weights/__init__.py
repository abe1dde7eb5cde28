"""Trained weights: which there are, what is known of them, their files, and where a `weights` argument leads."""
