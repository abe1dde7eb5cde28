"""What goes wrong with the Hub, in one sentence."""


class HubError(OSError):
    """A request to the Hub failed; the message states what to do."""
