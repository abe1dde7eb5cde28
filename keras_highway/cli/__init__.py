"""The command line: `python -m keras_highway list | classify | evaluate | gates | summary | ...`."""

from keras_highway.cli.main import main as main
