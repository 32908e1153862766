"""`make release VERSION=… [REGISTRY=…]`: build dist/, and push it if a registry is given.

The command asks no questions, and pushes nothing before everything is built. If it cannot build or push the release, it
prints one sentence and exits with code 1.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from ome_operator.errors import UserError
from release import checkout, dist, images, programs
from release.push import push

ROOT = Path(__file__).resolve().parents[1]


def main(words: list[str]) -> int:
    """Parse the command line, run the command, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("command", choices=("images", "dist", "push", "digests", "outputs", "lint"))
    parser.add_argument("--version", default="")
    parser.add_argument("--registry", default="", help="registry and path, such as ghcr.io/us/ome")
    asked = parser.parse_args(words)
    try:
        return run(asked.command, asked.version, asked.registry)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def run(command: str, version: str = "", registry: str = "", root: Path = ROOT) -> int:
    """Run the command, and return exit code 0. Raises UserError if the command fails."""
    out = root / "dist"
    if command == "images":
        commit = checkout.git(root, "rev-parse", "HEAD").strip()
        images.make(root, root / "build" / "images" / commit[:12], published=True)
        return 0
    if command == "lint":
        return subprocess.run([programs.program(programs.ACTIONLINT)], cwd=root, check=False).returncode
    if command == "digests":
        made = existing_release(out)
        print("".join(f"{made.registry}/{item.repository}@{item.digest}\n" for item in made.items), end="")
        return 0
    if command == "outputs":
        print(
            "".join(f"{item.repository.replace('/', '-')}={item.digest}\n" for item in existing_release(out).items), end=""
        )
        return 0
    if reason := checkout.why_not(version, checkout.read_checkout(root)):
        raise UserError(reason)
    if command == "push" and not registry:
        raise UserError("REGISTRY is not set: name the registry to push to, such as REGISTRY=ghcr.io/us/ome.")
    made = dist.make(root, version, registry or dist.EXAMPLE, out)
    print(f"dist/ holds {version} for {', '.join(made.platforms)}, built from {made.commit[:12]}.")
    if command == "push":
        push(made.items, out / dist.LAYOUT, registry, version)
        print(f"Pushed to {registry}: {', '.join(item.repository for item in made.items)}.")
    return 0


def existing_release(out: Path) -> dist.Release:
    """Return the release in dist/. Raises UserError if there is none."""
    made = dist.Release.load(out)
    if made is None:
        raise UserError("There is no release in dist/: `make release VERSION=…` builds it.")
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
