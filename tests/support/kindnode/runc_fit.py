#!/usr/bin/python3 -SE
"""A runtime for Docker that runs runc on a machine without CAP_SYS_RESOURCE: it requests only capabilities and limits
that this process has itself.

Docker requests every capability for kind's nodes, and runc fails for those that are outside the bounding set. This
program removes such capabilities, reduces limits to the hard limit, and raises an OOM score below this process's own. It
runs before any of our code can be imported.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

REAL = os.environ.get("REAL_RUNC", "/usr/sbin/runc")
_NAMES = """chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service
net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin sys_boot
sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override mac_admin syslog
wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore"""
"""Names of capabilities, in the kernel's order."""


def bounding() -> set[str]:
    """Return the capabilities that a process can have here."""
    with open("/proc/self/status") as file:  # noqa: PTH123 - starts at every exec: pathlib costs more than the rest
        bits = next(int(line.split()[1], 16) for line in file if line.startswith("CapBnd"))
    return {"CAP_" + name.upper() for number, name in enumerate(_NAMES.split()) if bits >> number & 1}


def fit(process: dict[str, Any], have: set[str], hard: Callable[[str], int], score: int) -> None:
    """Adapt the capabilities, limits and OOM score of a process, in the format of the runtime specification, to what this
    process may grant. `hard` returns the hard limit of a resource, -1 for no limit.
    """
    for kind, wanted in (process.get("capabilities") or {}).items():
        process["capabilities"][kind] = [each for each in wanted or [] if each in have]
    for limit in process.get("rlimits") or []:
        if (most := hard(limit["type"])) != resource.RLIM_INFINITY:
            limit["hard"], limit["soft"] = min(limit["hard"], most), min(limit["soft"], most)
    if process.get("oomScoreAdj") is not None:
        process["oomScoreAdj"] = max(process["oomScoreAdj"], score)


def option(words: list[str], *names: str) -> str:
    """Return the value of an option that is written as `--name value` or `--name=value`; "" if it is absent."""
    for number, word in enumerate(words):
        for name in names:
            if word == name:
                return words[number + 1]
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
    return ""


def rewrite(path: str, whole: bool) -> None:
    """Rewrite the file of a container (`whole`), or of a process in it."""
    with open("/proc/self/oom_score_adj") as file:  # noqa: PTH123
        score = int(file.read())
    with open(path) as file:  # noqa: PTH123
        told = json.load(file)
    fit(told["process"] if whole else told, bounding(), lambda name: resource.getrlimit(getattr(resource, name))[1], score)
    with open(path, "w") as file:  # noqa: PTH123
        json.dump(told, file)


def main(words: list[str]) -> None:
    """Rewrite the files that runc is about to read, and replace this process by runc."""
    if "create" in words or "run" in words:
        rewrite(os.path.join(option(words, "--bundle", "-b") or ".", "config.json"), whole=True)  # noqa: PTH118
    elif "exec" in words and (process := option(words, "--process", "-p")):
        rewrite(process, whole=False)
    os.execv(REAL, ["runc", *words])


if __name__ == "__main__":
    main(sys.argv[1:])
