"""The token keeper: a small process that renews ServiceAccount tokens as long as the cluster is running.

The keeper is necessary because tokens expire after an hour, and clusters run longer. `keep` issues the first token at once
and writes a request; the keeper renews each requested token after half its lifetime (decisions 16). It uses only the
standard library, so that it needs little memory.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from ome_local.kubeapi import ApiError, ApiUnreachable, KubeApi, load
from ome_local.kubeconfig import with_token_file, write_atomically
from ome_local.layout import Layout

LIFE_S = 3600
_LOOK_EVERY_S = 1.0


def keep(at: Layout, namespace: str, account: str, life_s: int = LIFE_S) -> Path:
    """Issue a token, request its renewal, and return a kubeconfig that reads the token from its file."""
    stem = at.tokens / f"{namespace}.{account}"
    request = {"namespace": namespace, "account": account, "life_s": life_s}
    api = KubeApi.of(at.kubeconfig)
    issue(api, at, request)
    api.close()
    write_atomically(Path(f"{stem}.request"), json.dumps(request))
    cluster = load(at.kubeconfig)["clusters"][0]["cluster"]
    with_token_file(
        Path(f"{stem}.kubeconfig"),
        name=f"ome-{at.root.name}",
        server=cluster["server"],
        authority=cluster["certificate-authority-data"],
        user=account,
        token=token_file(at, request),
    )
    return Path(f"{stem}.kubeconfig")


def token_file(at: Layout, request: dict[str, object]) -> Path:
    """Return the path of the file that contains the ServiceAccount token of this request."""
    return at.tokens / f"{request['namespace']}.{request['account']}.token"


def issue(api: KubeApi, at: Layout, request: dict[str, object]) -> None:
    """Request a new token, and replace the file atomically."""
    answer = api.request(
        "POST",
        f"/api/v1/namespaces/{request['namespace']}/serviceaccounts/{request['account']}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": request["life_s"]},
        },
    )
    write_atomically(token_file(at, request), str(answer["status"]["token"]))


def is_due(written: float | None, life_s: float, now: float) -> bool:
    """Return whether a token has reached half its lifetime. `written` is the time when it was written. If there is no token,
    `written` is None and the result is True. `life_s` is this lifetime in seconds.
    """
    return written is None or now >= written + life_s / 2


def run(at: Layout) -> None:
    """Renew tokens that are due, until the cluster's directory is removed. If the API server does not respond, the
    renewal is retried later.
    """
    api: KubeApi | None = None
    while at.spec.exists():
        for file in at.tokens.glob("*.request"):
            try:
                request = json.loads(file.read_text())
                if not is_due(_written(token_file(at, request)), request["life_s"], time.time()):
                    continue
                api = api or KubeApi.of(at.kubeconfig)
                issue(api, at, request)
                print(f"renewed the token of {request['namespace']}/{request['account']}", flush=True)
            except (ApiError, ApiUnreachable, OSError, ValueError) as error:
                print(f"{file.stem}: {error}; trying again", file=sys.stderr, flush=True)
        time.sleep(_LOOK_EVERY_S)


def _written(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return None


def main() -> None:
    """Run the token keeper as a process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, required=True)
    run(Layout(parser.parse_args().dir))


if __name__ == "__main__":
    main()
