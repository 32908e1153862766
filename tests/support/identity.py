"""Sends requests with the token of a ServiceAccount, as a real client does, and not by impersonation."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ome_local.kubeapi import load
from ome_local.kubeconfig import with_token_file
from tests.support.rig import Rig


def agent(rig: Rig, node: str, folder: Path) -> Path:
    """Return a kubeconfig with the token of the agent's pod on a node. The token is requested from the API server in the
    same way as by the kubelet.
    """
    select = "app.kubernetes.io/name=ome-agent"

    def found() -> dict[str, Any] | None:
        return next((item for item in rig.all("Pod", "ome", select) if item["spec"].get("nodeName") == node), None)

    pod = rig.wait(f"agent's pod on {node}", found, 60)
    assert pod is not None
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    asked = {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", **asked}
    made = rig.api.request("POST", "/api/v1/namespaces/ome/serviceaccounts/ome-agent/token", request)
    token = folder / f"{node}.token"
    token.write_text(made["status"]["token"])
    cluster = load(rig.cluster.at.kubeconfig)["clusters"][0]["cluster"]
    authority = cluster["certificate-authority-data"]
    with_token_file(folder / node, name="test", server=cluster["server"], authority=authority, user="ome-agent", token=token)
    return folder / node


class Token:
    """A client with the token of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        config = load(kubeconfig)
        cluster = config["clusters"][0]["cluster"]
        self._server = cluster["server"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._token = Path(config["users"][0]["user"]["tokenFile"]).read_text().strip()

    def send(
        self, method: str, location: str, body: Any = None, content: str = "application/json", **headers: str
    ) -> tuple[int, str]:
        """Send a request. Return status and message of the response."""
        data = None if body is None else json.dumps(body).encode()
        told = {"Authorization": f"Bearer {self._token}", "Content-Type": content, **headers}
        request = urllib.request.Request(self._server + location, data, told, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._tls))
        try:
            with opener.open(request, timeout=10) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["message"]
