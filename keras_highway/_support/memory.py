"""How much memory a process may still take."""

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Returns what is free on this machine, or in this process's container where that is less.

    Returns:
        Bytes, without swap space; `None` where the system does not report it.
    """
    amounts = [amount for amount in (_of_machine(), *map(_of_group, _own_groups())) if amount is not None]
    return min(amounts, default=None)


def _of_machine() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    except (OSError, ValueError, IndexError):
        return None


def _own_groups() -> list[Path]:
    """The folders of this process's control group and of those around it."""
    try:
        own = next(line.split("::", 1)[1] for line in _GROUP.read_text().splitlines() if "::" in line)
    except (OSError, StopIteration):
        own = "/"
    folder = _GROUPS / own.strip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(_GROUPS))]


def _of_group(folder: Path) -> int | None:
    """What is left of a limit; cached files are dropped when memory is needed."""
    try:
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
        rows = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        cached = sum(int(value) for name, value in rows if name in ("inactive_file", "active_file"))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return None
    return max(0, limit - used + cached)
