"""A docker and a kind that keep a cluster in files, and write down what they were asked."""

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
    """The state of fake docker and kind as files: `clusters`, `stopped`, `late` (listed once more), `images-NODE`, `fails`,
    and `archive`, the archive that a load puts into a node.
    """

    def __init__(self, here: Path) -> None:
        self.here = here

    def asked(self) -> list[str]:
        """The command lines since the last call, but questions that change nothing."""
        file = self.here / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        quiet = ("docker info", "docker ps", "docker exec", "kind get")
        return [line for line in lines if not line.startswith(quiet)]
