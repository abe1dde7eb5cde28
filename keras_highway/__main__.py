"""`python -m keras_highway`."""

import sys

from keras_highway.cli import main

sys.exit(main())
