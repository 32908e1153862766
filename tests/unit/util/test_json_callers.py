"""Tests that every place that decodes JSON either uses `json_limits.parse_untrusted`, or is listed with the reason why its
text cannot fill the memory.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from ome_operator.util import json_limits, json_pages

ROOT = Path(__file__).parents[3] / "ome_operator"

UNTRUSTED = {
    "agent/compile_server.py:_request": "the request of a pod, of at most 2 KiB",
    "agent/manifest.py:read_journal": "names and sizes that a source chose",
    "agent/manifest.py:read_manifest": "names and sizes that a source chose",
    "cli/generate_from.py:_object": "files of a model, given to `ome generate --from`",
    "cli/weight_files.py:_of_index": "the index of a model, given to `ome plan` or `ome generate`",
    "cli/planfiles.py:_json_object": "config.json of a model, given to `ome plan`",
    "core/observed/telemetry.py:parse_report": "the summary of a router's registry",
    "kube/podproxy.py:content": "an error that a pod sends through the API server",
    "modelinfo/extract.py:_read": "config files, indexes and headers of a model repository",
    "registry/pages.py:parse_engine_load": "an engine's report of its load",
    "storage/hub.py:read_description": "a hub's description of a model",
    "storage/oci_artifact.py:registry_credentials": "an image pull Secret",
    "storage/oci_registry.py:_authorize": "the response of a token server",
    "storage/oci_registry.py:listing": "a manifest of a registry",
}
"""File and function -> what it decodes by `parse_untrusted`."""
SERVER = (
    "text of the API server: objects of at most 1.5 MiB, and pages that are decoded object by object, have at most 25 "
    "objects, or are requested again with fewer if they have more than 32 MiB (util/bounded.py)"
)
OBJECT = "a part of an object of the API server, of at most 1.5 MiB"
MESSAGE = f"{OBJECT}: a termination message, which the kubelet cuts to 12 KiB"
OWN_POD = "runs in a pod of the tenant whose files or results it decodes; at worst this pod ends"
OWN_MACHINE = "a file that the user of a command names, on the user's own machine"
OURS = "written by this project"
TRUSTED = {
    "api/pod_fields.py:_types": OURS,
    "benchmark_pod/inside.py:as_sharegpt": OWN_POD,
    "benchmark_pod/inside.py:main": OWN_POD,
    "benchmark_pod/inside.py:run_benchmark": OWN_POD,
    "benchmark_pod/inside_genai.py:_parameters": OWN_POD,
    "benchmark_pod/inside_genai.py:serving": OWN_POD,
    "benchmark_pod/steps.py:_raw": OWN_POD,
    "cli/benchmark.py:_parse_plan": OWN_POD,
    "compile_cache/archive.py:_parsed": OWN_POD,
    "compile_cache/pod.py:_answer": OWN_POD,
    "compile_cache/pod.py:main": OWN_POD,
    "core/benchmarkjob/status.py:_report": MESSAGE,
    "core/catalog/agreement.py:agree_on_reports": f"{OURS}: text that the same module has encoded",
    "core/benchmarkjob/traffic.py:_value": f"{OBJECT}: a parameter of a BenchmarkJob",
    "cache/owned_fields.py:": f"{OBJECT}: the replicas of a workload",
    "cache/owned_fields.py:child": f"{OBJECT}: the replicas of a workload",
    "core/observed/managed_fields.py:_owned_pods": f"{OBJECT}: texts that the operator has just written itself",
    "core/observed/managed_fields.py:_key": f"{OBJECT}: a key that the API server itself writes",
    "core/observed/nodes.py:_labels_in_text": f"{OBJECT}: its managed fields",
    "core/preflight/results.py:_json": MESSAGE,
    "core/preflight/results.py:_whole": MESSAGE,
    "engines/flags.py:is_json": f"{OBJECT}: an argument of a container",
    "engines/flags.py:_parsed": f"{OURS}: the flags of engines, or a file that the user of `ome lint` names",
    "kube/client.py:_decoded": SERVER,
    "kube/podlogs.py:lines": f"{SERVER}: the status of a failed request",
    "lint/model_flags.py:_types": OURS,
    "preflight/check.py:_collective": OWN_POD,
    "preflight/check.py:_parse_line": OWN_POD,
    "preflight/check.py:main": OWN_POD,
    "preflight/code.py:": OWN_POD,
    "preflight/group.py:read": OWN_POD,
    "preflight/node.py:_damage": OWN_POD,
    "preflight/node.py:_devices": OWN_POD,
    "preflight/node.py:weights": OWN_POD,
    "recorder/recording.py:_json": f"{OWN_MACHINE}: `ome replay FILE`, which has a limit of its bytes",
    "recorder/writer.py:_entry": f"{OURS}: recordings that the operator sends to its child, which has a limit of memory",
    "registry/clients.py:_read_json": f"{SERVER}; and the router in the same pod",
    "sizing/shapes.py:_configs": f"{OURS}: a file of the package",
    "storage/grants.py:parse_grant": "a flag of the agent, which an administrator writes",
    "util/json_limits.py:": SERVER,
    "util/json_limits.py:decode_to_depth": SERVER,
    "util/json_limits.py:decode_json": SERVER,
    "util/json_limits.py:parse_untrusted": "counts before it decodes",
    "util/json_limits.py:truncate_depth": SERVER,
    "util/json_limits.py:build_decoders": SERVER,
    "util/json_pages.py:": SERVER,
    "util/json_pages.py:members": SERVER,
    "util/large_objects.py:reduce_large_objects": SERVER,
    "watch/handlers.py:iter_chunked": SERVER,
    "watch/handlers.py:read": SERVER,
    "watch/informer.py:_deliver_event": SERVER,
    "watch/informer.py:_deliver_page": SERVER,
    "watch/informer.py:_refusal": SERVER,
}
"""File and function -> why it may use another decoder."""
_DECODERS = {
    "json": {"loads", "load", "JSONDecoder"},
    json_limits.__name__: {
        each.__name__
        for each in (
            json_limits.parse_untrusted,
            json_limits.decode_to_depth,
            json_limits.truncate_depth,
            json_limits.decode_json,
        )
    },
    json_pages.__name__: {json_pages.members.__name__},
}
"""Module -> its decoders of JSON."""
_UNTRUSTED = json_limits.parse_untrusted.__name__
_METHODS = {"raw_decode", "model_validate_json", "validate_json"}


def decoders(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (function, decoder) for every decoder of JSON that a module mentions. The function is "" outside functions."""
    local = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in _DECODERS.get(node.module or "", ())
    }
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        function, node = pending.pop()
        name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not function else function
        pending += [(name, inner) for inner in ast.iter_child_nodes(node)]
        if isinstance(node, ast.Name) and node.id in local:
            yield function, local[node.id]
        elif isinstance(node, ast.Attribute):
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            fast = node.attr in ("Decoder", "decode") and ast.unparse(node.value) == "msgspec.json"
            if fast or (of == "json" and node.attr in _DECODERS["json"]) or node.attr in _METHODS:
                yield function, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "json":
            yield function, "json"  # of a response of aiohttp
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "json.loads(" in node.value:
            yield function, "loads"  # a program that another interpreter runs


def found() -> set[tuple[str, str]]:
    """Return (file:function, decoder) of the whole package."""
    files = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in sorted(ROOT.rglob("*.py"))}
    return {
        (f"{name}:{function}", decoder) for name, text in files.items() for function, decoder in decoders(ast.parse(text))
    }


def test_every_decoder_of_untrusted_text_has_a_limit_of_memory() -> None:
    every = found()
    assert {place for place, decoder in every if decoder == _UNTRUSTED} == UNTRUSTED.keys()
    others = {place for place, decoder in every if decoder != _UNTRUSTED}
    assert others == TRUSTED.keys(), f"decode untrusted text by json_limits.{_UNTRUSTED}, or name the reason here"
    assert all(TRUSTED.values()) and all(UNTRUSTED.values())


def test_every_form_of_a_decoder_call_is_found() -> None:
    for text in (
        "json.loads(x)", "map(json.load, x)", "from json import loads as read\nread(x)", "json.JSONDecoder()",
        "d.raw_decode(x)", "Model.model_validate_json(x)", "async def f(): await answer.json()",
        "from ome_operator.util.json_limits import decode_to_depth\nx = decode_to_depth",
        "code = 'import json; json.loads(input())'",
        "from ome_operator.util.json_pages import members\nlist(members(x))",
    ):  # fmt: skip
        assert list(decoders(ast.parse(text))), text
    assert not list(decoders(ast.parse("json.dumps(x); yaml.load(x); web.json_response(x)")))
