"""Resource usage of processes, from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Resources that a process has used since it started."""

    cpu_s: float
    peak_mib: float
    resident_mib: float = 0.0


def usage(pid: int) -> Usage:
    """Return the CPU time (user and system), and the maximum and current resident set, of the process `pid`."""
    folder = Path(f"/proc/{pid}")
    status = (folder / "status").read_text()
    return Usage(cpu_seconds((folder / "stat").read_text(), TICK), peak_mib(status), resident_mib(status))


def cpu_seconds(stat: str, tick: int) -> float:
    """Return the CPU seconds from the text of /proc/PID/stat; `tick` is the number of clock ticks per second. The program's
    name in the text may contain spaces and parentheses.
    """
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / tick


def peak_mib(status: str) -> float:
    """Return the maximum resident MiB from the text of /proc/PID/status."""
    return _mib(status, "VmHWM:")


def resident_mib(status: str) -> float:
    """Return the current resident MiB from the text of /proc/PID/status."""
    return _mib(status, "VmRSS:")


def _mib(status: str, field: str) -> float:
    for line in status.splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0
