"""Golden test cases: a directory has the objects that users apply (`in.yaml`) and all objects that the first
reconciliation writes for them (`out.yaml`).

A ControllerRevision stores the templates from which StatefulSets are created. Therefore `out.yaml` has each template once,
in the ControllerRevision, and of a StatefulSet only what its template does not contain: its name, owner, replicas and group.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from ome_operator.compile_cache import code as compile_cache_code
from ome_operator.core.observed.objects import Manifest, Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.preflight import code
from ome_operator.settings import Policy
from tests.support import parts
from tests.support.simulator import START

HERE = Path(__file__).parent
POLICIES = {"compile-cache": Policy(model_agent=True, compile_caches=True, router_keys=False, gang_timeout=0.0)}
"""Settings of the operator for cases that need others than `NO_POLICY`."""
CASES = sorted(path.parent.name for path in HERE.glob("*/in.yaml"))


def read(case: str, file: str) -> list[Manifest]:
    """Return the documents of a file without any change."""
    return parts.read_documents(HERE / case / file)


def rendered(case: str) -> list[Manifest]:
    """Return all objects that the first reconciliation writes, in the order of writing, as JSON data."""
    service, deps = parts.apply_bodies(read(case, "in.yaml"))
    deps = replace(deps, policy=POLICIES.get(case, deps.policy))
    # The compressed form depends on the version of zlib.
    preflight = mock.patch.object(code, "packed", lambda: "(ome_operator/preflight)")
    caches = mock.patch.object(compile_cache_code, "packed", lambda: "(ome_operator/compile_cache)")
    with preflight, caches:
        plan = sync(service, deps, Observed(), START)
    found = [one.manifest for one in (*plan.first, *plan.ensure_secret, *plan.apply, *plan.create)]
    out: list[Manifest] = json.loads(json.dumps(found))
    return out


def short(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the manifests with StatefulSets reduced to what their templates do not contain."""
    everything = list(manifests)
    return [_beyond(one, _template(one, everything)) for one in everything]


def whole(documents: Iterable[Manifest]) -> list[Manifest]:
    """Return the complete manifests from documents that `short` has reduced."""
    everything = list(documents)
    return [_merged(_template(one, everything), one) for one in everything]


def _template(one: Manifest, everything: list[Manifest]) -> Manifest:
    """Return the template of a StatefulSet that the ControllerRevision stores, without the name; an empty mapping for any
    other object.
    """
    if one["kind"] != "StatefulSet":
        return {}
    name: str = one["metadata"]["name"]
    (revision,) = [other for other in everything if other["kind"] == "ControllerRevision"]
    for role in revision["data"]["workloads"].values():
        stem, leads = name.removesuffix("-w").rpartition("-")[0], not name.endswith("-w")
        for stored, suits in ((role["leader"], leads), (role["worker"], not leads)):
            if stored and suits and stored["metadata"]["name"] == stem:
                return {**stored, "metadata": {"labels": stored["metadata"]["labels"]}}
    raise AssertionError(f"no template of {name} is stored")


def _beyond(value: Manifest, base: Manifest) -> Manifest:
    """Return the part of `value` that is missing in `base`, or different there."""
    more = {key: inner for key, inner in value.items() if key not in base or base[key] != inner}
    return {key: _beyond(inner, base[key]) if _both(inner, base.get(key)) else inner for key, inner in more.items()}


def _merged(base: Manifest, more: Manifest) -> Manifest:
    """Return `base` with all fields of `more` added or replaced."""
    return {**base, **{key: _merged(base[key], one) if _both(one, base.get(key)) else one for key, one in more.items()}}


def _both(*values: Any) -> bool:
    return all(isinstance(one, dict) for one in values)


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes scripts as block text, line by line."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def dumped(documents: Iterable[Manifest]) -> str:
    """Return the text of a golden file."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
