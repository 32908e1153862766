"""Server-side dry run of objects that a user is about to apply, with the API server's refusals as sentences."""

import re
from collections.abc import Collection, Iterable, Mapping

from ome_operator.api import strict
from ome_operator.cache.resources import BENCHMARK, CATALOG, SERVICE, SHORT
from ome_operator.cli.gate import describe_mistake
from ome_operator.cli.live.cluster_from_manifests import ref_of_body
from ome_operator.core.observed.objects import Manifest, Ref
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, Invalid, KubeError, NotServed, ServerError

WRITTEN = frozenset((SERVICE, *CATALOG, *SHORT, BENCHMARK))
"""Kinds that users apply."""
RIGHTS = "cannot patch resource"
"""Part of the API server's message if the user lacks the right to patch. The refusal then says nothing about the object."""
CREATE_RIGHTS = "cannot create resource"
"""Part of the API server's message if the user lacks the right to create an object, such as a pod."""
_UNKNOWN = re.compile(r"(?<![^\s:])[^\s:.]*+\.([^\s:]++): field not declared in schema")
_EXPLAIN = "`kubectl explain` lists the existing fields"
NO_NAMESPACE = re.compile(r'namespaces "[^"]*" not found')
"""Part of the API server's message if the namespace of an object does not exist."""
_SOME = "default"
"""A namespace that exists in every cluster."""


async def find_refused_objects(client: Client, given: Iterable[Manifest], made: Collection[str]) -> Mapping[Ref, str]:
    """Return the objects that the API server would refuse, each with the reason. `made` names the namespaces that the same
    files create. Raises KubeError for errors that do not concern the object, such as a server that does not answer.
    """
    answers = {ref_of_body(body): await _tried(client, body, made) for body in given if ref_of_body(body).kind in WRITTEN}
    return {which: reason for which, reason in answers.items() if reason}


async def _tried(client: Client, body: Manifest, made: Collection[str], namespace: str = "") -> str:
    """Return the API server's refusal of a dry run of the object `body`; "" if the API server accepts the object, or if the
    user may not apply it. If `namespace` is not "", it replaces the object's own namespace. `made` names the namespaces that
    the same files create.
    """
    which, metadata = ref_of_body(body), body["metadata"]
    own = {name: metadata[name] for name in ("name", "namespace", "labels", "annotations") if metadata.get(name)}
    inside = {"namespace": namespace} if namespace else {}
    fields = {name: value for name, value in body.items() if name != "status"}
    try:
        await client.apply({**fields, "metadata": {**own, **inside}}, dry_run=True)
    except NotServed as error:
        if not NO_NAMESPACE.search(str(error)):
            return ""
        if which.namespace in made:
            return await _tried(client, body, (), _SOME)
        return f"namespace {which.namespace} does not exist: create it, or name another namespace"
    except Forbidden as error:
        return "" if RIGHTS in str(error) else str(error)
    except (Invalid, ServerError) as error:
        return _words(error, body)
    return ""


def _words(error: KubeError, body: Manifest) -> str:
    """Return the API server's message about an object, in which names of unknown fields are replaced by sentences about the
    mistakes. Raises `error` if it does not concern the object.
    """
    unknown = list(dict.fromkeys(_UNKNOWN.findall(str(error))))
    if unknown:
        kind = strict.kind_of(str(body.get("apiVersion")), str(body.get("kind")))
        known = {
            each.field: ": ".join(describe_mistake(each))
            for each in (strict.find_mistakes(kind, body) if kind is not None else ())
        }
        return "; ".join(known.get(field) or f"field {field} does not exist: {_EXPLAIN}" for field in unknown)
    if isinstance(error, ServerError):
        raise error
    return str(error)
