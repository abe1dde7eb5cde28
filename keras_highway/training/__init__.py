"""Training the zoo: `python -m keras_highway train RECIPE --data DIR --out RUN`."""
