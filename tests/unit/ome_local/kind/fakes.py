"""A simulated docker and a simulated kind, which keep the state of a cluster in files and record their command lines."""

from pathlib import Path

DOCKER = """#!/bin/sh
echo "docker $*" >> {here}/asked
case "$1" in
  ps) case "$*" in
      *status=exited*) cat {here}/stopped 2>/dev/null ;;
      *) cat {here}/clusters {here}/late 2>/dev/null; rm -f {here}/late ;;
    esac ;;
  start) rm -f {here}/stopped ;;
  exec) printf 'REF TYPE DIGEST SIZE\\n'; cat {here}/images-$2 2>/dev/null ;;
esac
exit 0
"""
KIND = """#!/bin/sh
echo "kind $*" >> {here}/asked
case "$1 $2" in
  "get clusters") cat {here}/clusters 2>/dev/null ;;
  "create cluster")
    echo "$4" >> {here}/clusters; cat > {here}/config
    [ ! -e {here}/fails ] || {{ cat {here}/fails >&2; exit 1; }}
    echo '{{}}' > "$6" ;;
  "delete cluster") sed -i "/^$4$/d" {here}/clusters 2>/dev/null ;;
  "load image-archive") for node in $(echo "$7" | tr , ' '); do cp {here}/archive "{here}/images-$node"; done ;;
esac
exit 0
"""


class Fakes:
    """The state of the simulated docker and kind as files: `clusters`, `stopped`, `late` (clusters that are listed once
    more), `images-NODE`, `fails`, and `archive` (the images that a load adds to a node).
    """

    def __init__(self, here: Path) -> None:
        self.here = here

    def asked(self) -> list[str]:
        """Return the command lines since the last call, without those that change nothing."""
        file = self.here / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        quiet = ("docker info", "docker ps", "docker exec", "kind get")
        return [line for line in lines if not line.startswith(quiet)]
