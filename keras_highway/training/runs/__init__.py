"""A run under way and its folder: steps, log, states saved, result."""
