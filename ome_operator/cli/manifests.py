"""Reads the YAML files and folders that a user names on the command line; `-` is standard input."""

import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ome_operator.api import InferenceService
from ome_operator.api.invalid import as_yaml
from ome_operator.cli import gate
from ome_operator.cli.file_errors import why_unreadable
from ome_operator.cli.live.cluster_from_manifests import KNOWN, full_name, ref_of_body
from ome_operator.cli.output import print_error
from ome_operator.core.observed.objects import Manifest, Ref
from ome_operator.core.resolve.inputs import object_refs, runtime_refs
from ome_operator.errors import QuestionUnanswered, UserError
from ome_operator.kube.resources import RESOURCES, resource_name
from ome_operator.util.checkout import shipped_folder
from ome_operator.util.json_limits import exceeds_count, exceeds_depth
from ome_operator.util.kubeyaml import LEVELS, VALUES, Document, documents_with_repeats

STDIN = Path("-")
SHOWN = 5
"""Maximum number of skipped objects that a message names."""
SERVICES = ("InferenceService", "Serving")
"""Kinds of services, which refer to objects of other kinds (models, runtimes)."""
_TEMPLATES = {
    "{{": "The file seems to be a Helm template: pass the output of `helm template` instead.",
    "${": "The file seems to contain variables of a shell: pass the output of `envsubst` instead.",
    "\t": "YAML does not accept tabs for indentation: use spaces.",
}
"""Maps a text in a file that is not YAML to a statement of what the file probably is, and what to do."""
_SERVERS: Mapping[str, type] = {"uid": str, "generation": int, "deletionTimestamp": str}
"""Metadata fields that the API server sets and that the operator reads, each with its type. Owner references and managed
fields are left out, because without a cluster they have no meaning."""


def catalog_paths(paths: Iterable[Path] | None) -> list[Path]:
    """Return the folders with models and runtimes. If a path below `config` does not exist, it is replaced by the same path
    in the `config` folder that is shipped with this program. If `paths` is None, there are no folders.
    """
    return [
        path if path.exists() or path.parts[:1] != ("config",) else shipped_folder("config").joinpath(*path.parts[1:])
        for path in paths or ()
    ]


def catalog_or_default(named: list[Path] | None) -> list[Path]:
    """Return the folders from which referenced models and runtimes are read: the named folders, or the `config` that is
    shipped with this program. Return [] if there is no such folder, as in the operator's image. The files must then
    contain all referenced objects.
    """
    if named:
        return catalog_paths(named)
    try:
        return catalog_paths([Path("config")])
    except UserError:
        return []


class Files(NamedTuple):
    """The content of the files and folders that a user names."""

    objects: list[Manifest]
    """The objects whose kinds the operator reads."""
    namespaces: frozenset[str]
    """Names of the namespaces that the files create."""
    others: frozenset[Ref]
    """The objects of other kinds that the files create, such as claims and Secrets."""
    refused: tuple[gate.FileRefusal, ...]
    """The parts of the objects that a cluster would refuse."""
    unchecked: tuple[str, ...]
    """The objects that no command checks, each with its file."""
    looked: int
    """Number of objects of the operator's kinds, including those that are refused."""

    def accepted_objects(self, unless: Container[str] = ()) -> list[Manifest]:
        """Return the objects that a cluster would accept. Refusals by the rules `unless` do not count."""
        refused = {each.object for each in self.refused if each.rule not in unless}
        return [body for body in self.objects if full_name(ref_of_body(body)) not in refused]


def read_files(paths: Iterable[Path], namespace: str) -> Files:
    """Return the content of these files and folders. `namespace` is the namespace of objects that state no namespace.
    Raises QuestionUnanswered for a file that cannot be read or parsed.
    """
    files = {file if file == STDIN else file.resolve(): file for file in files_in(paths)}  # each file once
    parts = [part for file in files.values() for where, found in _documents(file) for part in _parts(where, found)]
    return Files(
        objects=[entry for part in parts for entry in _objects(part.source_path, part.body, namespace)],
        namespaces=frozenset(name for part in parts for name in _namespaces(part.body)),
        others=frozenset(ref for part in parts if not part.is_known_kind and (ref := _ref(part.body, namespace))),
        refused=tuple(gate.refusals(parts, namespace)),
        unchecked=gate.unchecked_objects(parts),
        looked=sum(part.is_known_kind or part.resembles_known_kind for part in parts),
    )


def report_skipped(found: Files) -> None:
    """Print to stderr which objects of the files the command does not check. Raises QuestionUnanswered if the command
    checks no object.
    """
    named = ", ".join(found.unchecked[:SHOWN])
    if len(found.unchecked) > SHOWN:
        named += f", and {len(found.unchecked) - SHOWN} more"
    if not found.looked:
        message = f": there {'is' if len(found.unchecked) == 1 else 'are'} only {named}" if named else ""
        raise QuestionUnanswered(f"the files contain no object of this operator{message}. Name a file that has one.")
    if named:
        print_error(f"not checked: {named}")


def left_out(problems: Sequence[str], rest: str) -> str:
    """Return the message about objects that a command could not judge. `rest` states what happened to the other objects,
    such as "The other services are checked". Return "" if every object could be judged.
    """
    number = "it" if len(problems) == 1 else "them"
    return f"{'; '.join(problems)}{f'. {rest} as if the files did not contain {number}' if rest else ''}"


def catalog_name(named: list[Path] | None) -> str:
    """Return the name of the catalog for messages. `named` are the folders that the user named; None for the default
    catalog.
    """
    return ", ".join(map(str, named)) if named else "the catalog of ome (config/)"


def report_borrowed(used: Iterable[str], found: Files, catalog: str) -> None:
    """Print to stderr which models and runtimes come from the catalog. `used` are the models and runtimes of the services,
    each as its kind and name.
    """
    own = {f"{body['kind']} {body['metadata']['name']}" for body in found.objects}
    if names := sorted(set(filter(None, used)) - own):
        print_error(f"from {catalog}: {', '.join(names)}")


def read_manifests(paths: Iterable[Path], namespace: str) -> list[Manifest]:
    """Return the objects in these files and folders whose kinds the operator reads, and skip all other objects. `namespace`
    is the namespace of objects that state no namespace. Raises QuestionUnanswered for a file that cannot be read or
    parsed.
    """
    found = (part for path in paths for where, item in _documents(path) for part in _parts(where, item))
    return [entry for part in found for entry in _objects(part.source_path, part.body, namespace)]


def read_referenced(
    paths: Iterable[Path], given: Iterable[Path], namespace: str, using: Iterable[Manifest]
) -> list[Manifest]:
    """Return the objects in `paths` to which the objects `using` may refer. Services are left out, and so are the files in
    `given`, which the caller reads separately.

    A file is not parsed if its text contains neither a name that is referred to nor an accelerator class, because parsing
    the whole catalog takes longer than all checks of a service. All files are parsed if a runtime has to be selected among
    all of them, or if a name is not found, because the message then proposes similar names.
    """
    known = {file.resolve() for file in files_in(given)}
    files = [file for file in files_in(paths) if file.resolve() not in known]
    using = list(using)
    if (names := _referenced_names(using)) is not None:
        found = _without_services(read_manifests((file for file in files if _mentions(file, names)), namespace))
        if names <= {body["metadata"]["name"] for body in [*found, *using]}:
            return found
    return _without_services(read_manifests(files, namespace))


def _without_services(bodies: Iterable[Manifest]) -> list[Manifest]:
    return [body for body in bodies if body["kind"] not in SERVICES]


def _referenced_names(bodies: Iterable[Manifest]) -> set[str] | None:
    """Return the names of all models and runtimes to which these objects refer. Return None if this is not known: for a
    service that names no runtime or cannot be parsed, and for a runtime that no service names.
    """
    names: set[str] = set()
    runtimes: set[str] = set()
    for body in bodies:
        if body["kind"] in SERVICES:
            service = InferenceService.parse(body) if body["kind"] == "InferenceService" else None
            if not isinstance(service, InferenceService) or not runtime_refs(service):
                return None
            names |= {ref.name for ref in (*object_refs(service), *runtime_refs(service))}
        elif body["kind"] in ("FineTunedWeight", "BenchmarkJob"):
            return None
        elif body["kind"].endswith("ServingRuntime"):
            runtimes.add(body["metadata"]["name"])
    return names if runtimes <= names else None


def _mentions(file: Path, names: Iterable[str]) -> bool:
    try:
        text = file.read_text()
    except (OSError, ValueError):
        return True  # the parser reports the error
    return "AcceleratorClass" in text or any(name in text for name in names)


def _namespaces(body: Mapping[str, Any]) -> Iterator[str]:
    metadata = body.get("metadata")
    if (body.get("apiVersion"), body.get("kind")) == ("v1", "Namespace") and isinstance(metadata, Mapping):
        yield str(metadata.get("name"))


def _ref(body: Mapping[str, Any], namespace: str) -> Ref | None:
    """Return the reference to an object of a kind with namespaces; None if it has no name."""
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        return None
    return Ref(str(body.get("kind")), str(metadata.get("namespace") or namespace), str(metadata["name"]))


def _parts(where: str, found: Document) -> Iterator[gate.WrittenObject]:
    """Yield the object in a document, or the objects in a List. A document that is no map, such as a JSON patch of
    kustomize, is yielded as an object without fields. Raises QuestionUnanswered for a list of objects of the operator.
    """
    body = found.value
    if body is None:
        return
    if not isinstance(body, Mapping):
        within = body if isinstance(body, list) else ()
        written = [gate.WrittenObject(where, each, ()) for each in within if isinstance(each, Mapping)]
        if any(each.is_known_kind or each.resembles_known_kind for each in written):
            what = "a list: write each object as a document of its own"
            raise QuestionUnanswered(f"{where}: a document is {what}, and divide documents by a line ---.")
        yield gate.WrittenObject(where, {}, ())
    elif isinstance(body.get("items"), list) and str(body.get("kind", "")).endswith("List"):
        for number, item in enumerate(body["items"]):
            yield from _parts(where, Document(item, () if number else found.repeats))
    else:
        yield gate.WrittenObject(where, body, found.repeats)


def files_in(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files in `paths`, and the YAML and JSON files in the folders in `paths`. Links to devices and pipes in a
    folder are left out, because the folder may come from somebody else.
    """
    for path in paths:
        if path.is_dir():
            found = (entry for suffix in ("yaml", "yml", "json") for entry in path.rglob(f"*.{suffix}"))
            try:
                files = sorted(entry for entry in found if entry.is_file())
            except OSError as error:  # for example of a process below /proc that has ended
                raise QuestionUnanswered(f"{error.filename or path} cannot be read: {why_unreadable(error)}") from error
            yield from files
        else:
            yield path


def _documents(path: Path) -> Iterator[tuple[str, Document]]:
    """Yield the file name and each YAML document in a file, or in the files of a folder."""
    for entry in files_in([path]):
        where, text = "standard input" if entry == STDIN else str(entry), ""
        try:
            text = sys.stdin.read() if entry == STDIN else entry.read_text()
            yield from ((where, document) for document in documents_with_repeats(text))
        except (OSError, ValueError, yaml.YAMLError) as error:
            why = why_unreadable(error)
            hint = next((f"\n{told}" for mark, told in _TEMPLATES.items() if mark in text), "")
            if re.match("https?:/", where):
                where, hint = (
                    where.replace(":/", "://", 1),
                    ". URLs are not read: pass the file with `curl -fsSL URL` and -f -",
                )
            raise QuestionUnanswered(f"{where} cannot be read: {why}{hint}") from error


def _objects(where: str, body: Mapping[str, Any], namespace: str) -> Iterator[Manifest]:
    kind = resource_name(str(body.get("apiVersion", "")), str(body.get("kind", "")))
    if kind not in KNOWN or body.get("apiVersion") != RESOURCES[kind].api_version:
        return
    if problem := _too_much(body) or _wrong_metadata(body) or _wrong_key(body, ""):
        raise QuestionUnanswered(f"{where}: {problem}.")
    # Errors in other fields are reported by the parser of the kind. A `status` that is not a map cannot come from an API
    # server.
    status: Manifest = {} if isinstance(body.get("status", {}), Mapping) else {"status": {}}
    yield {**body, **status, "metadata": _metadata(body["metadata"], namespace if RESOURCES[kind].namespaced else None)}


def _metadata(written: Mapping[str, Any], namespace: str | None) -> Manifest:
    """Return the metadata that the operator reads. `namespace` is the default namespace; it is None for a cluster-scoped
    kind.
    """
    own = {name: written[name] for name in ("name", "labels", "annotations") if written.get(name) is not None}
    added = {name: written[name] for name, kind in _SERVERS.items() if isinstance(written.get(name), kind)}
    inside = {} if namespace is None else {"namespace": written.get("namespace") or namespace}
    return {**own, **inside, **added}


def _wrong_metadata(body: Mapping[str, Any]) -> str:
    """Return a sentence that describes an error in the name, namespace, labels or annotations; "" if they are valid."""
    metadata, kind = body.get("metadata"), body["kind"]
    if not isinstance(metadata, Mapping) or metadata.get("name") in (None, ""):
        return f"metadata.name is missing in an object of kind {kind}: set it"
    for field in ("name", "namespace"):
        value = metadata.get(field)
        if value is not None and not isinstance(value, str):
            words = "put quotes around it" if isinstance(value, int | float) else "write a string"
            return f"metadata.{field} is {as_yaml(value)} in an object of kind {kind}: {words}"
    for field in ("labels", "annotations"):
        value = metadata.get(field)
        if value is not None and not isinstance(value, Mapping):
            return f"metadata.{field} of {kind} {metadata['name']} is {as_yaml(value)}: write a map of keys and values"
    return ""


def _too_much(body: Mapping[str, Any]) -> str:
    """Return a sentence if the object is too large or too deeply nested to process; "" otherwise."""
    if exceeds_count(body, VALUES):
        return f"an object of kind {body['kind']} has more than {VALUES} values: remove YAML aliases (*name)"
    if exceeds_depth(body, LEVELS):
        return f"an object of kind {body['kind']} nests lists and maps more than {LEVELS} levels deep: use fewer levels"
    return ""


def _wrong_key(value: Any, where: str) -> str:
    """Return a sentence about the first key that is not a string; "" if all keys are strings. `value` must not be deeper
    than LEVELS, because the function is recursive.
    """
    if isinstance(value, list):
        return next(
            (problem for number, entry in enumerate(value) if (problem := _wrong_key(entry, f"{where}[{number}]"))), ""
        )
    if not isinstance(value, Mapping):
        return ""
    for key, entry in value.items():
        if not isinstance(key, str):
            return f"{where or 'the object'} has the key {as_yaml(key)}, which is not a string: put quotes around it"
        if problem := _wrong_key(entry, f"{where}.{key}" if where else key):
            return problem
    return ""
