"""Reads the model of `ome generate --from`: a config.json, a directory with a model's files, or a repository of a hub."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ome_operator.api import Facts, Model, source_hints
from ome_operator.cli.file_errors import why_unreadable
from ome_operator.cli.weight_files import is_file, is_folder, only_gguf, weight_bytes
from ome_operator.cookbook.library import published_config, published_names
from ome_operator.cookbook.own_model import OwnModel, names_code
from ome_operator.errors import UserError
from ome_operator.modelinfo.extract import CONFIG, FILES, MEMORY, MODELOPT, facts
from ome_operator.util.json_limits import parse_untrusted
from ome_operator.util.similar import suggestion
from ome_operator.util.visible import make_visible

if TYPE_CHECKING:
    from ome_operator.kube.client import Client

_REPOSITORY = re.compile(r"(?:hf://)?([\w.-]+/[\w.-]+)(@[\w.-]+)?")
"""A repository, and its revision."""
_WITH_CODE = ("tokenizer_config.json", "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
"""Files next to config.json that may name Python code that is stored with the weights."""
_ROOT = "/raid/models"
"""Directory of models on the nodes, as in config/models."""


def own_model(source: str) -> OwnModel:
    """Return the known facts of the model at `source`. Raises UserError if nothing is known about the model."""
    place = Path(source)
    if is_folder(place):
        return _of_files(place)
    if is_file(place):
        return _of_files(place.parent, place)
    source = source_hints.repository_of_page(source) or source.rstrip("/")
    found = _REPOSITORY.fullmatch(source)
    if found and not source.startswith(".") and not source.endswith(".json"):
        return _of_repository(found[1], found[2] or "")
    raise UserError(
        f"--from {source}: there is no such file or directory, and it is not a repository such as org/model: name a "
        "config.json, the directory of a model, or a repository"
    )


def _of_files(folder: Path, config: Path | None = None) -> OwnModel:
    """Return the facts that the files in a directory state. With `config`, only this file is read, and no weights. Raises
    UserError if the files are missing or unsuitable.
    """
    folder = folder.resolve()
    paths = {CONFIG: config} if config else {name: folder / name for name in FILES if (folder / name).is_file()}
    if config is None and only_gguf(folder):
        raise UserError(
            f"--from {folder}: the directory contains GGUF files, but files are written for safetensors models only: name "
            "the directory of the original model, or begin with config/samples/isvc/moonshotai/kimi-k2-gguf.yaml"
        )
    if CONFIG not in paths:
        raise UserError(f"--from {folder}: there is no {CONFIG} in this directory: name a directory that contains this file")
    content = _object(paths[CONFIG])
    modelopt = _object(folder / MODELOPT) if MODELOPT in paths else None
    others = [] if config else [_object(folder / name) for name in _WITH_CODE if (folder / name).is_file()]
    title = config.stem if config and config.name != CONFIG else folder.name or "model"
    return OwnModel(
        title=make_visible(title),  # becomes a comment in a manifest, and a file name may contain line breaks
        uri=f"local://{folder}",
        path=str(folder),
        facts=facts({name: path.read_bytes() for name, path in paths.items()}),
        config=content,
        modelopt=modelopt,
        stored_bytes=None if config else weight_bytes(folder),
        remote_code=names_code([content, *others]),
    )


def _object(path: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file. Raises UserError if it cannot be read."""
    try:
        content = parse_untrusted(path.read_bytes(), str(path), memory=MEMORY[CONFIG], extract=lambda value: value)
    except json.JSONDecodeError as error:
        raise UserError(f"--from {path}: the file is not JSON ({error}): name the config.json of a model") from error
    except (OSError, ValueError) as error:
        raise UserError(f"--from {path}: the file cannot be read: {why_unreadable(error)}") from error
    if not isinstance(content, dict):
        raise UserError(f"--from {path}: the file contains no JSON object: name the config.json of a model")
    return content


def _of_repository(repository: str, revision: str) -> OwnModel:
    """Return the known facts of a repository without downloading its files: its config.json in a recipe, or the facts that
    an agent read on a node. `revision` is "" or `@` and the name of a revision.
    """
    import json

    uri, title = f"hf://{repository}", repository.rpartition("/")[2]
    if (config := published_config(repository)) is not None:
        return OwnModel(
            title,
            f"{uri}{revision}",
            f"{_ROOT}/{repository}",
            facts({CONFIG: json.dumps(config)}),
            config,
            remote_code=names_code([config]),
        )
    found = _on_the_cluster(uri)
    if found is None:
        raise UserError(
            f"--from {repository}: the architecture is unknown, because no agent of the cluster has read the files of a "
            f"model with the URI {uri}: {suggestion(title, published_names())}name its config.json, or apply a model with "
            "this URI and wait for the agent"
        )
    learned, path = found
    return OwnModel(title, f"{uri}{revision}", path or f"{_ROOT}/{repository}", learned)


def _on_the_cluster(uri: str) -> tuple[Facts, str] | None:
    """Return the facts in the status of a model with this URI, and the path of its files; None if there is no such model,
    or no cluster.

    A ClusterBaseModel is preferred. For a BaseModel, which belongs to a tenant, the path is "". A BaseModel with
    `storage.parameters` is ignored, because its facts may describe the files of another hub or repository.
    """
    from ome_operator.cache.resources import MODELS
    from ome_operator.cli.connect import on_cluster

    async def work(client: "Client") -> list[Mapping[str, Any]]:
        return [body for resource in MODELS for body in await client.list_objects(resource)]

    try:
        bodies = on_cluster(None, None, work, read_only=True)
    except UserError:
        return None
    for body in bodies:
        model = Model.parse(body)
        if (
            isinstance(model, Model)
            and model.spec.storage.storage_uri.partition("@")[0] == uri
            and model.status.get("facts")
            and (not model.namespace or not model.spec.storage.parameters)
        ):
            return Facts.read(model.status["facts"]), "" if model.namespace else model.spec.storage.path or ""
    return None
