"""Lists the keys of data that the operator and the commands store, record, print or send: revisions, recordings, files on
the disks of nodes, messages between processes, and outputs.
"""

import ast
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import get_type_hints

from pydantic.alias_generators import to_camel

from ome_operator import keys
from ome_operator.agent import manifest, record
from ome_operator.api import InferenceService, Model
from ome_operator.core.observed.admission import GangAdmission
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.observed.validation import ValidationResult
from ome_operator.core.placement.claims import Claim
from ome_operator.describe.diagnosis import ServiceTrouble
from ome_operator.describe.preflight import PreflightReport
from ome_operator.describe.preview import Preview
from ome_operator.describe.top import TopRow
from ome_operator.describe.tree import Tree
from ome_operator.lint import report as lint_report
from ome_operator.lint.rules import RULES
from ome_operator.preflight import check, node
from ome_operator.recorder import recording, sections
from ome_operator.recorder.decision import Decision
from ome_operator.recorder.passes import Pass
from ome_operator.recorder.replay import ReplayedPass
from ome_operator.sizing import answer, report_text
from ome_operator.storage.hashes import Hash
from tests.support.names import walk
from tests.support.names.people import golden

_ENDPOINT = re.compile(r"/(healthz|readyz|metrics|workers|files|namespaces)(/[\w{}]+)*")


def revision_keys() -> Iterator[str]:
    """Yield the keys of ControllerRevisions, which later versions of the operator have to read."""
    for document in (document for case in golden("out.yaml") for document in case):
        if document["kind"] == "ControllerRevision":
            yield from (f"data.{name}" for name in document["data"])
            for name, value in document["data"]["inputs"].items():
                yield f"data.inputs.{name}"
                own = isinstance(value, dict) and name not in ("runtime", keys.ENGINE, keys.DECODER, keys.ROUTER)
                yield from (f"data.inputs.{name}.{key}" for key in value if own)
            for role, value in document["data"]["workloads"].items():
                yield from (f"data.workloads.{role}.{key}" for key in value)
    for _, item in walk.nodes("ome_operator.core"):
        read = item.value if isinstance(item, ast.Subscript) else item.func if isinstance(item, ast.Call) else None
        key: ast.expr | None = item.slice if isinstance(item, ast.Subscript) else None
        if isinstance(item, ast.Call):
            key = next(iter(item.args), None)
        if read is not None and ast.unparse(read) in ("inputs", "inputs.get") and isinstance(key, ast.Constant):
            yield f"data.inputs.{key.value}"


def recordings() -> Iterator[str]:
    """Yield the keys of a recording and of the facts in it, and names of files."""
    service = InferenceService.parse({"apiVersion": keys.API_VERSION, "kind": "InferenceService", "metadata": {"name": "a"}})
    assert isinstance(service, InferenceService)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    empty = Pass(now, service, Deps(), Observed(), Decision())
    data = recording.to_json({"a/a": [empty]}, "1", "", now)
    yield from data
    written = data["services"]["a/a"]
    yield from (f"services{{}}.{name}" for name in written)
    yield from (f"services{{}}.passes[].{name}" for name in written["passes"][0])
    at = "services{}.passes[].saw"
    for table, rows in sections.tables(empty).items():
        yield f"{at}.{table}"
        yield from (f"{at}.{table}.{name}" for name in rows)
    hints = get_type_hints(Deps) | get_type_hints(Observed)
    for name in ("nodes", "children", "pods", "refusals", "strangers", "drains", "silences"):
        yield from walk.field_paths(hints[name], f"{at}.{name}")
    yield from walk.field_paths(hints["policy"], f"{at}.settings")
    for name, fact in {"turn": GangAdmission, "turn.rivals[]": Claim, "judged[][]": ValidationResult}.items():
        yield from walk.field_paths(fact, f"{at}.told.{name}")
    yield from walk.field_paths(Decision, "services{}.passes[].decided")
    for _, item in walk.nodes("ome_operator"):
        if isinstance(item, ast.JoinedStr) and ".json.gz" in (text := ast.unparse(item)):
            yield f"file {text[2:-1].split('{')[0]}*.json.gz"


def disks() -> Iterator[str]:
    """Yield the keys of manifests and journals that agents keep on nodes, and the keys of their records."""
    proven = manifest.VerifiedFile("a", 1, Hash.parse("sha256:" + "0" * 64), (1,), ("b",))
    held = manifest.Manifest("hf://a/b", "1", (proven,), "now", ("a",), ("/a",), {"source": "a"})
    yield from (f"manifest {name}" for name in held.dump())
    yield from (f"journal {name}" for name in manifest.dump_file(proven))
    model = Model.parse({"apiVersion": keys.API_VERSION, "kind": "ClusterBaseModel", "metadata": {"name": "a"},
                         "spec": {"storage": {"storageUri": "hf://a/b", "path": "/models/a"}}})  # fmt: skip
    assert isinstance(model, Model)
    report = record.Report("Updating", "1", ("/a",), 1, 1, 1.0, "b", "now", {"modelSize": "1"})
    yield from (f"NodeModels status.models[].{name}" for name in record.entry(model, report))
    written = record.status([record.entry(model, report)], [{"directory": "/a/.ome/b"}], {"limit": 1})
    yield from (f"NodeModels status.{name}" for name in written)


def protocols() -> Iterator[str]:
    """Yield what processes send each other: messages of the preflight, HTTP paths, and JSON of the registry."""
    message = json.loads(check.message({"preflight": 1, "rank": 0, "seconds": 1.0}, [node.finding("a", "b", "c", 0)]))
    yield from (f"termination message {name}" for name in message)
    yield from (f"termination message findings[].{name}" for name in message["findings"][0])
    yield from (
        f"preflight {key}" for key in walk.json_keys("ome_operator.preflight") if re.fullmatch(r"(?!std)[a-z]+", key)
    )
    yield from (
        f"registry {key}" for key in walk.json_keys("ome_operator.registry") if re.fullmatch(r"[a-z][a-zA-Z_]*", key)
    )
    for package in ("registry", "agent", "machinery", "controllers", "app"):
        yield from (f"{package} GET {text}" for text in walk.texts(f"ome_operator.{package}") if _ENDPOINT.fullmatch(text))


def outputs() -> Iterator[str]:
    """Yield the keys of what commands print as JSON and YAML."""
    documents = {
        "diff": Preview,
        "explain": ServiceTrouble,
        "preflight": PreflightReport,
        "replay": ReplayedPass,
        "status": Tree,
        "top": TopRow,
    }
    for name, kind in documents.items():
        yield from walk.field_paths(kind, f"ome {name} ", to_camel)
    for command, module in {"lint": lint_report, "plan": report_text, "plan layouts": answer}.items():
        yield from (
            f"ome {command} {key}" for key in walk.json_keys(module.__name__) if re.fullmatch(r"[a-z$][a-zA-Z]*", key)
        )


def rules() -> Iterator[str]:
    """Yield the rules of `ome lint`, which the annotation `ome.io/lint-ignore` names."""
    yield from RULES
