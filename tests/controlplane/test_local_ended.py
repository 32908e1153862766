"""Tests of components of a local cluster that exited by themselves."""

import signal

from typer.testing import CliRunner

from ome_local.cli import app
from ome_local.cluster import Cluster
from tests.support.local import eventually


def test_exited_component_is_reported_and_restarted_by_up(own: Cluster) -> None:
    """Commands of `ome local` report a component that has exited by itself, and `up` starts it again. The operator exits by
    itself after it has lost its Lease; without a report, users would not notice that their edits have no effect any more.
    """
    first = own.spawn("helper", ["sh", "-c", 'echo "says $WORD"; exec sleep 1000'], {"WORD": "this"})
    eventually("the helper has written its line", lambda: own.log("helper").read_text() == "says this\n")
    assert CliRunner().invoke(app, ["kubeconfig", "--name", "own"]).stderr == ""
    for process, name in ((first, "helper"), (own.process("kwok"), "kwok")):
        assert process is not None
        process.signal(signal.SIGKILL)
        eventually(f"{name} has ended", lambda name=name: own.process(name) is None)
    told = CliRunner().invoke(app, ["kubeconfig", "--name", "own"])
    assert told.stderr == "kwok, helper of cluster own do not run: `ome local up --name own` starts them.\n"
    assert told.stdout == f"{own.kubeconfig}\n"
    Cluster.up("own")
    assert own.ended_processes() == [] and (second := own.process("helper")) is not None and second.pid != first.pid
    eventually("it says the same", lambda: own.log("helper").read_text() == "says this\nsays this\n")
    own.stop("helper")
    Cluster.up("own")
    assert own.process("helper") is None, "a process that a user stopped is not started again"
