"""Starts operators quickly: one process for each cluster imports the operator's modules once, and then forks an operator for
each start. Without this, imports take half of the time of a start.

There are three differences to the shipped program: no module is imported again, sets have the same order in all operators of
a cluster, and a Lease lasts twice as long, because several control planes share two cores, and a request then may take more
than ten seconds. tests/process/test_wheel.py, the node suite and the demo start the real program.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ome_local import processes
from ome_local.cluster import Cluster
from ome_operator.__main__ import main
from ome_operator.settings import Settings

NAME = "loaded"
"""Name of the process among the processes of its cluster."""
_WITHIN_S = 60.0


def use_long_lease() -> None:
    """Double the times of the Lease of this process, because several control planes share two cores."""
    Settings.__init__.__kwdefaults__.update(lease_duration=30.0, lease_renew=25.0)


def start(cluster: Cluster, name: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start `ome WORDS` as a process of the cluster. Its output goes to its log."""
    assert processes.find_process(cluster.at, name) is None, f"{name} is already running"
    address = str(cluster.at.run / NAME)
    if cluster.process(NAME) is None:
        cluster.spawn(NAME, [sys.executable, "-m", __name__, address], {"PYTHONPATH": environment["PYTHONPATH"]})
    asked = {"log": str(cluster.log(name)), "words": list(words), "environment": dict(environment)}
    processes.remember(cluster.at, name, _asked(cluster, address, json.dumps(asked)))


def _asked(cluster: Cluster, address: str, question: str) -> int:
    """Send a request for an operator, and return the operator's process ID."""
    until = time.monotonic() + _WITHIN_S
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_WITHIN_S)
            try:
                connection.connect(address)
            except (FileNotFoundError, ConnectionRefusedError):  # the process is still importing modules
                lives = cluster.process(NAME) is not None and time.monotonic() < until
                assert lives, f"no operator is loaded: {processes.last_words(cluster.at, NAME)}"
                time.sleep(0.05)
                continue
            connection.sendall(question.encode() + b"\n")
            return int(connection.makefile().read())


def _serve(address: str) -> None:
    """Fork for each request. The function returns only in a fork, which then becomes the requested operator."""
    importlib.import_module("ome_operator.app")  # the command imports it when it runs
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that no zombies remain
    Path(address).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        while True:
            connection, _ = listening.accept()
            with connection:
                asked = json.loads(connection.makefile().readline())
                child = os.fork()
                if not child:
                    break
                connection.sendall(str(child).encode())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    said = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(said, stream.fileno())
    os.environ.update(asked["environment"])
    sys.argv[1:] = asked["words"]


if __name__ == "__main__":
    _serve(sys.argv[1])
    use_long_lease()
    main()
