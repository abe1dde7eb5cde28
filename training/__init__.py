"""Training the zoo: `python -m training.train RECIPE --data DIR --out RUN`."""
