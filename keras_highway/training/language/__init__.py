"""Training of language models: their recipes' form, data, steps, epochs and results."""
