"""Create Debian's smallest root file system, for machines that can reach Debian's packages but no image registry."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ome_local import cancel
from ome_local.realnode import requirements
from ome_operator.errors import UserError

SUITE = "bookworm"
_SLIM = ("path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/doc/*",
         "path-include=/usr/share/doc/*/copyright")  # fmt: skip
"""Paths that Debian's slim images also omit. The rules stay in the image, so they also apply to packages that are
installed later."""
_DOWNLOADS = ("proxy", "cainfo", "verify", "timeout", "retries")
# Names of this machine must not be part of an image.
_NAMELESS = 'rm -f "$1/etc/resolv.conf" "$1/etc/hostname" && touch "$1/etc/resolv.conf"'


def tree(out: Path, log: Path) -> None:
    """Write the smallest Debian with apt as a tar file to `out`."""
    if shutil.which("mmdebstrap") is None:
        requirements.install(["mmdebstrap"])
    with tempfile.TemporaryDirectory(prefix="ome-debian-") as folder:
        apt = Path(folder) / "apt.conf"
        apt.write_text(apt_settings())
        options = ["--variant=minbase", "--format=tar", f"--customize-hook={_NAMELESS}", f"--aptopt={apt}"]
        options += [f"--dpkgopt={rule}" for rule in _SLIM]
        _logged(["mmdebstrap", *options, SUITE, str(out)], log, os.environ)


def apt_settings() -> str:
    """Return the download settings of this machine's apt (proxies, certificates); "" if the machine has no such settings.

    `apt-config dump` also prints default values, which are not included.
    """
    if shutil.which("apt-config") is None:
        return ""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
    lines = [line for line in dump.splitlines() if line.startswith("Acquire::") and not line.endswith('"";')]
    own = [line for line in lines if any(word in line.lower() for word in _DOWNLOADS)]
    return "".join(f"{line}\n" for line in own)


def _logged(command: list[str], log: Path, environment: Mapping[str, str]) -> None:
    """Run a command and append its output to the log. Raises UserError, with the last line of the output, if the command
    fails.
    """
    with log.open("ab") as file:
        done = cancel.run(command, env=environment, output=file)
    if done.returncode:
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
        said = last[0] if last else f"exit code {done.returncode}"
        raise UserError(f"{command[0]} could not create a Debian {SUITE} file system (see {log}): {said}")
