"""What processes cost, from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Of one process since it started."""

    cpu_s: float
    peak_mib: float
    resident_mib: float = 0.0


def usage(pid: int) -> Usage:
    """User and system time, and the resident set: the largest, and now."""
    folder = Path(f"/proc/{pid}")
    status = (folder / "status").read_text()
    return Usage(cpu_seconds((folder / "stat").read_text(), TICK), peak_mib(status), resident_mib(status))


def cpu_seconds(stat: str, tick: int) -> float:
    """From the text of /proc/PID/stat; the program's name may hold spaces and parentheses."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / tick


def peak_mib(status: str) -> float:
    """Of the text of /proc/PID/status: the most that it held."""
    return _mib(status, "VmHWM:")


def resident_mib(status: str) -> float:
    """Of the text of /proc/PID/status: what it holds."""
    return _mib(status, "VmRSS:")


def _mib(status: str, field: str) -> float:
    for line in status.splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0
