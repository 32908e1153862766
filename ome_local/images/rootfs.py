"""Root file systems of images: Debian by mmdebstrap, commands inside them, and layers as differences between two states."""

import contextlib
import os
import shutil
import ssl
import stat
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ome_local.images.archive import PATH
from ome_operator.errors import UserError

SUITE = "bookworm"
_SLIM = ("path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/doc/*",
         "path-include=/usr/share/doc/*/copyright")  # fmt: skip
"""What Debian's slim images leave out too. The rules stay in the image, for what is installed later."""
_WHITEOUT = ".wh."
_SETTINGS = "/run/ome"
_PASSED_ON = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT", "http_proxy", "https_proxy")
"""Where packages come from is this machine's affair, and never in the image."""
_MOUNT_AND_RUN = """set -e
tree=$1; command=$2; shift 2
mount --rbind /proc "$tree/proc"
mount --rbind /dev "$tree/dev"
mount --bind /etc/resolv.conf "$tree/etc/resolv.conf"
while [ $# -gt 0 ]; do mount --bind "$1" "$tree$2"; shift 2; done
exec chroot "$tree" /bin/sh -c "$command"
"""

State = Mapping[str, tuple[int, ...]]


def debian(out: Path, log: Path) -> None:
    """The smallest Debian that has apt, as a layer at `out`."""
    _need_mmdebstrap(log)
    with _settings() as settings:
        # Names of this machine are no part of an image.
        hook = 'rm -f "$1/etc/resolv.conf" "$1/etc/hostname" && touch "$1/etc/resolv.conf"'
        options = ["--variant=minbase", "--format=tar", f"--customize-hook={hook}", f"--aptopt={settings / 'apt.conf'}"]
        options += [f"--dpkgopt={rule}" for rule in _SLIM]
        _logged(["mmdebstrap", *options, SUITE, str(out)], log, f"mmdebstrap could not make a Debian {SUITE}", {})


def unpack(layers: Sequence[Path], tree: Path) -> None:
    """Layers over each other, the lowest first, into the new folder `tree`."""
    tree.mkdir(parents=True)
    for layer in layers:
        listed = subprocess.run(["tar", "--list", "-f", str(layer)], capture_output=True, text=True, check=True).stdout
        for name in filter(lambda name: Path(name).name.startswith(_WHITEOUT), listed.splitlines()):
            _remove(tree / Path(name).parent / Path(name).name.removeprefix(_WHITEOUT))
        words = ["--extract", "--numeric-owner", "--preserve-permissions", f"--exclude={_WHITEOUT}*"]
        subprocess.run(["tar", *words, "-f", str(layer), "-C", str(tree)], check=True)


def run(tree: Path, command: str, env: Mapping[str, str], caches: Mapping[str, Path], log: Path) -> None:
    """Run a shell command in `tree` as root. `caches` are folders of this machine by their place inside.

    Everything is mounted in a namespace of the command's own: nothing is left mounted, however it ends.
    """
    with _settings() as settings:
        places = {**caches, _SETTINGS: settings}
        for place, folder in places.items():
            (tree / place[1:]).mkdir(parents=True, exist_ok=True)
            folder.mkdir(parents=True, exist_ok=True)
        pairs = [word for place, folder in places.items() for word in (str(folder), place)]
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNT_AND_RUN, "sh", str(tree), command]
        _logged([*words, *pairs], log, f"`{command[:60]}…` failed in the image", {**_outside(settings), **env})
        (tree / _SETTINGS[1:]).rmdir()


def state(tree: Path) -> State:
    """What tells a changed file from an unchanged one, by path. ctime cannot be set back by anything that runs inside."""
    found = {}
    for folder, names, files in os.walk(tree):
        for name in names + files:
            path = os.path.join(folder, name)  # noqa: PTH118 - 60,000 of them: Path objects would cost seconds
            at = os.lstat(path)
            # A directory's times change with its content, which is listed by itself.
            times = () if stat.S_ISDIR(at.st_mode) else (at.st_ino, at.st_ctime_ns, at.st_size)
            found[os.path.relpath(path, tree)] = (at.st_mode, at.st_uid, at.st_gid, *times)
    return found


def write_layer(tree: Path, before: State, out: Path) -> None:
    """The tar of what changed in `tree` since the state `before`; deleted files as whiteouts."""
    now = state(tree)
    deleted = before.keys() - now.keys()
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as layer:
        for name in sorted(name for name, seen in now.items() if before.get(name) != seen):
            layer.add(tree / name, name, recursive=False, filter=_nameless)
        for path in sorted(map(Path, deleted)):
            if str(path.parent) not in deleted:
                layer.addfile(tarfile.TarInfo(str(path.with_name(_WHITEOUT + path.name))))


def _nameless(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Ids are the image's; their names would be this machine's."""
    entry.uname = entry.gname = ""
    return entry


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _settings() -> Iterator[Path]:
    """A folder with this machine's certificates and apt's settings for downloads, for programs inside."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="ome-image-") as folder:
        path = Path(folder)
        dump = (
            subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
            if shutil.which("apt-config")
            else ""
        )
        (path / "apt.conf").write_text("".join(f"{line}\n" for line in dump.splitlines() if line.startswith("Acquire::")))
        if bundle := ssl.get_default_verify_paths().cafile:
            shutil.copyfile(bundle, path / "ca.crt")
        yield path


def _outside(settings: Path) -> dict[str, str]:
    """The environment of a command inside, without the image's own variables."""
    ours = {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", "APT_CONFIG": f"{_SETTINGS}/apt.conf"}
    if (settings / "ca.crt").exists():
        ours |= {"PIP_CERT": f"{_SETTINGS}/ca.crt", "SSL_CERT_FILE": f"{_SETTINGS}/ca.crt"}
    return {**ours, **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}}


def _need_mmdebstrap(log: Path) -> None:
    if shutil.which("mmdebstrap"):
        return
    if not shutil.which("apt-get"):
        raise UserError("mmdebstrap is missing: install it, or build with Docker (docker build -f images/…/Dockerfile .).")
    why = "mmdebstrap is missing and could not be installed"
    for words in (["update"], ["install", "-y", "--no-install-recommends", "mmdebstrap"]):
        _logged(["apt-get", *words], log, why, {**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def _logged(command: list[str], log: Path, why: str, env: Mapping[str, str]) -> None:
    """Run it with its words appended to the log; the last of them go into the UserError."""
    with log.open("ab") as file:
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=env or None, check=False
        ).returncode  # fmt: skip
    if code:
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
        raise UserError(f"{why} (see {log}): {last[0] if last else f'exit code {code}'}")
