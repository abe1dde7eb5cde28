"""A request that stops a run, as a signal would."""


class Asked:
    """A request to stop after so many looks."""

    def __init__(self, looks):
        self.looks = looks

    @property
    def made(self):
        self.looks -= 1
        return self.looks < 0
