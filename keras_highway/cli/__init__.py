"""The command line: `python -m keras_highway list | classify | evaluate | gates | summary | ...`."""

from keras_highway.cli.parser import main as main
