"""What is loaded of the package `kubernetes`."""

import subprocess
import sys

PROGRAM = """
import sys
import ome_operator.kube.connection
heavy = {"requests", "urllib3", "oauthlib", "websocket"}
print(*sorted(heavy & sys.modules.keys()), "connected")
import kubernetes
from kubernetes import client
print(client.V1Pod.__name__, kubernetes.aio.client.Configuration.__name__)
print(kubernetes.__version__ > "", kubernetes.watch.Watch.__name__, *sorted(heavy & sys.modules.keys()))
"""


def test_a_connection_loads_no_other_client_and_the_package_is_whole_for_who_asks() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "connected",
        "V1Pod Configuration",
        "True Watch oauthlib requests urllib3 websocket",
    ]
