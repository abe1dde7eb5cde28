"""What Linux tells of the processor."""

from pathlib import Path


def processor_fields() -> dict[str, str]:
    """Returns the fields of /proc/cpuinfo, e.g. `model name` and `flags`, of one processor; elsewhere none."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
