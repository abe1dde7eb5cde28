"""Trained weights: their names, what is known of them, their files, and where a `weights` argument leads."""
