"""What `helm test` runs: an operator that works reports on a service within moments, whatever is wrong with the service.

The service names a model that does not exist, so that nothing is made of it, and it is removed again.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
WITHIN_S = float(os.environ.get("WITHIN_S", "60"))
NAME = os.environ["NAME"]
NAMESPACE = os.environ["NAMESPACE"]
CLASS = os.environ.get("CLASS", "")
OPERATOR = os.environ.get("OPERATOR", f"-n {NAMESPACE} deployment/ome-operator")
SERVER = "https://" + os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
PATH = f"/apis/ome.io/v1beta1/namespaces/{NAMESPACE}/inferenceservices"


def ask(method, path, body=None):
    """The JSON answer of the API server, as this pod's ServiceAccount."""
    token = Path(f"{ACCOUNT}/token").read_text()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, data, headers, method=method)
    context = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
    with urllib.request.urlopen(request, timeout=10, context=context) as reply:
        return json.load(reply)


def main():
    """0 when the operator has reported."""
    spec = {"model": {"name": "none-for-helm-test"}, "engine": {"minReplicas": 1, "maxReplicas": 1}}
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": {"ome.io/operator-class": CLASS} if CLASS else {}}
    try:
        ask("POST", PATH, {"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": metadata, "spec": spec})
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")
        print(f"The API server refused an InferenceService ({error.code}): is the chart ome-crd installed? {said}")
        return 1
    try:
        until = time.monotonic() + WITHIN_S
        while time.monotonic() < until:
            for condition in ask("GET", f"{PATH}/{NAME}").get("status", {}).get("conditions", ()):
                if condition["type"] == "Ready":
                    print(f"The operator works. It says of a service without a model: {condition['message']}")
                    return 0
            time.sleep(0.5)
        print(f"The operator said nothing about a service for {WITHIN_S:.0f} s; its log says why:")
        print(f"  kubectl logs {OPERATOR}")
        return 1
    finally:
        ask("DELETE", f"{PATH}/{NAME}")


sys.exit(main())
