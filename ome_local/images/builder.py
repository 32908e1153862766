"""Builds the stages of one Dockerfile that its image needs, each once, and their layers."""

import shutil
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path

from ome_local.images import rootfs
from ome_local.images.archive import ImageConfig
from ome_local.images.dockerfile import Copy, Run, Stage
from ome_local.progress import step
from ome_operator.errors import UserError

NOT_COPIED = ("__pycache__", "*.pyc")
"""What COPY leaves out, as .dockerignore does."""


class Builder:
    """Root file systems are made in the folder `work`; layers that images share are kept in `store` under their key."""

    def __init__(
        self, image: str, stages: Mapping[str, Stage], keys: Mapping[str, str], *,
        root: Path, base: str, store: Path, work: Path, log: Path,
    ) -> None:  # fmt: skip
        """Files are copied from `root`; what programs say goes to `log`."""
        self._image, self._stages, self._keys = image, stages, keys
        self._root, self._base, self._store, self._work, self._log = root, base, store, work, log
        self._before: dict[str, rootfs.State] = {}

    def layers(self, name: str) -> list[Path]:
        """The layer tars of a stage, the lowest first. The image's own layer is not kept: the archive holds it."""
        below = [] if name == self._base else self.layers(self._stages[name].parent)
        layer = self._store / f"{self._keys[name]}.tar" if name else self._work / "image.tar"
        if not layer.exists():
            new = self._work / "layer.new"
            if name == self._base:
                with step(f"{self._image}: Debian {rootfs.SUITE}", quiet_below=0.0) as more:
                    rootfs.debian(new, self._log)
                    more.append(megabytes(new))
            else:
                tree = self._tree_of_layer(name)
                with step(f"{self._image}: layer {name or 'of the image'}", quiet_below=0.0) as more:
                    rootfs.write_layer(tree, self._before[name], new)
                    more.append(megabytes(new))
            layer.parent.mkdir(exist_ok=True)
            new.replace(layer)
        return [*below, layer]

    def config(self) -> ImageConfig:
        """ENV of all stages that the image stands on; USER and ENTRYPOINT of its own."""
        last = self._stages[""]
        return ImageConfig(entrypoint=last.entrypoint, env=self._env(last), user=last.user)

    def _env(self, stage: Stage) -> dict[str, str]:
        above = self._stages.get(stage.parent)
        return {**(self._env(above) if above else {}), **stage.env}

    def _tree_of_layer(self, name: str) -> Path:
        """A tree in which all that the stage changed can be found. What only copies need not see what it copies onto."""
        if any(isinstance(each, Run) for each in self._stages[name].steps):
            return self._tree(name)
        return self._fill(name, self._work / f"copied-{name}", [])

    def _tree(self, name: str) -> Path:
        """The root file system of a stage after its last step."""
        tree = self._work / f"tree-{name}"
        return tree if tree.exists() else self._fill(name, tree, self.layers(self._stages[name].parent))

    def _fill(self, name: str, tree: Path, below: list[Path]) -> Path:
        stage = self._stages[name]
        rootfs.unpack(below, tree)
        self._before[name] = rootfs.state(tree)
        inherited = self._env(stage) if stage.parent == self._base else self._env(self._stages[stage.parent])
        for each in stage.steps:
            if isinstance(each, Run):
                with step(f"{self._image}: {textwrap.shorten(each.command, 70, placeholder='')}", quiet_below=0.0):
                    rootfs.run(tree, each.command, {**inherited, **each.env}, self._caches(each), self._log)
            else:
                self._copy(each, tree)
        return tree

    def _caches(self, run: Run) -> dict[str, Path]:
        """One folder for all images: what one downloads, the others have."""
        return {place: self._store.parent / "downloads" / place.strip("/").replace("/", "-") for place in run.caches}

    def _copy(self, copy: Copy, tree: Path) -> None:
        """Like Docker: a folder's content goes into the target, a file becomes it, or goes into it after a slash."""
        into, top = tree / copy.to.lstrip("/"), self._tree(copy.stage) if copy.stage else self._root
        for source in (top / source.lstrip("/") for source in copy.sources):
            if copy.stage:
                if not source.is_dir():
                    raise UserError(f"COPY --from={copy.stage}: that stage has no folder /{source.relative_to(top)}.")
                into.mkdir(parents=True, exist_ok=True)
                # Links, not copies: gigabytes, and both trees are thrown away.
                subprocess.run(["cp", "--archive", "--link", f"{source}/.", str(into)], check=True)
            elif source.is_dir():
                shutil.copytree(source, into, ignore=shutil.ignore_patterns(*NOT_COPIED), dirs_exist_ok=True)
            else:
                file = into / source.name if copy.to.endswith("/") else into
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, file)


def megabytes(file: Path) -> str:
    """Its size in words."""
    return f"{file.stat().st_size / 1e6:.0f} MB"
