"""For any input, a parser returns its value or raises the error that it declares, and never another error.

There are two kinds of inputs: any JSON, and valid objects with some changed places. With OME_SOAK=1 there are many more.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.agent import manifest, model_facts, store
from ome_operator.agent.locations import AgentRoots
from ome_operator.api import Invalid, Model
from ome_operator.cache.resources import _PARSE as PARSE
from ome_operator.cache.resources import parse_or_keep
from ome_operator.core.observed import from_api, managed_fields
from ome_operator.core.observed import nodes as node_facts
from ome_operator.core.weights.node_selection import UnreadableSelection, needs_agent, selects_node
from ome_operator.modelinfo.extract import FILES, facts
from ome_operator.registry import clients, pages, pods
from ome_operator.storage import hub, oci_artifact, sha256sums
from ome_operator.storage.listing import RequestRefused, SourceError, make_listing
from ome_operator.util import kubeyaml
from ome_operator.util.untrusted_json import PARSE_ERRORS
from tests.support.deep import MOST
from tests.support.odd_json import ANY, VALUES, Deep, broken_objects, dumped, real, typed, with_declared
from tests.support.parts import catalog


def _documents() -> dict[str, list[Any]]:
    """Return the shipped objects of each kind."""
    found: dict[str, list[Any]] = {kind: [] for kind in PARSE}
    for body in catalog():
        kind = {"Model": "SglangModel"}.get(body["kind"], body["kind"])
        if kind in found and len(found[kind]) < 8:
            found[kind].append(body)
    spec = {"storage": {"storageUri": "hf://a/b", "path": "/m/x", "nodeSelector": {"a": "b"}, "nodeAffinity": AFFINITY}}
    metadata = {"name": "n", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 1}
    for kind, some in found.items():
        some.append({"apiVersion": keys.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec, "status": {}})
    return found


TERM = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}], "matchFields": [{"key": "metadata.name"}]}
AFFINITY = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}
SHIPPED = _documents()
FIELDS = {"manager": keys.MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {"f:a": {}, 'k:{"name":"x"}': {".": {}}}}}
STATE = {"exitCode": 1, "reason": "Error", "message": "Error: x", "finishedAt": "2026-01-01T00:00:00Z"}
BOX = {
    "name": "c",
    "ready": False,
    "restartCount": 2,
    "state": {"waiting": {"reason": "CrashLoopBackOff"}, "terminated": STATE},
}
POD = {
    "kind": "Pod",
    "metadata": {
        "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "managedFields": [FIELDS],
        "labels": {keys.GROUP_INDEX: "0", keys.POD_INDEX: "0", keys.WORKER_INDEX: "0", keys.COMPONENT: "engine"},
        "annotations": {keys.BOOTSTRAP_PORT: "8998"}, "ownerReferences": [{"controller": True, "uid": "o", "name": "s"}],
    },
    "spec": {"nodeName": "n", "containers": [{"name": "c", "readinessProbe": {}}]},
    "status": {
        "phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{**BOX, "lastState": {"terminated": STATE}}],
        "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
        ],
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(PARSE))
@given(st.data())
def test_user_objects_are_parsed_or_invalid_with_reason(kind: str, data: st.DataObject) -> None:
    """Parsing any object of a user returns the parsed object, or Invalid with a reason. It never raises."""
    for body in (
        data.draw(broken_objects(SHIPPED[kind])),
        {"metadata": {"name": "x"}, "spec": data.draw(ANY)},
        data.draw(VALUES),
    ):
        found = PARSE[kind](real(body))
        if isinstance(found, Invalid):
            assert found.why
        else:
            found.dump()


@given(broken_objects(SHIPPED["BaseModel"], VALUES), st.text(max_size=3))
def test_agent_handles_any_parsed_model_without_unexpected_errors(body: Any, node: str) -> None:
    model = Model.parse(body)
    if isinstance(model, Invalid):
        return
    needs_agent(model)
    AgentRoots(("/m",)).misplaced_message(model)
    try:
        selects_node(model, node, {"a": "b"})
    except UnreadableSelection as error:
        assert str(error).startswith("spec.storage.nodeAffinity")


@given(typed(POD))
def test_facts_from_any_api_object_are_parsed_without_exception(body: Any) -> None:
    from_api.pod(body)
    node_facts.node({**body, "status": {"allocatable": {"nvidia.com/gpu": body["kind"]}}})
    from_api.status_writers(body)
    managed_fields.owned_digest(body)
    for kind in ("StatefulSet", "Deployment", "HorizontalPodAutoscaler", "ControllerRevision", "RoleScale", "Job"):
        from_api.child(kind, body)


@given(broken_objects([{"kind": "PodList", "metadata": {}, "items": [POD, POD]}]))
@example({"kind": "PodList", "items": [{"metadata": {"labels": {**POD["metadata"]["labels"], keys.COMPONENT: Deep(MOST)}}}]})
def test_pod_list_parser_raises_only_unexpected_answer(body: Any) -> None:
    try:
        pods.parse_pods(real(body), {})
    except pods.UnexpectedAnswer as error:
        assert str(error)


LOADS = {"loads": [{"num_running_reqs": 1, "num_waiting_reqs": 2}]}


@given(
    broken_objects([LOADS, [{"num_reqs": 1}], {"workers": [{"id": "a", "url": "u", "worker_type": "regular", "load": 3}]}])
    | ANY
)
@example({"workers": [{"id": Deep(MOST), "url": "u", "worker_type": "regular", "load": 3}]})
def test_router_and_engine_responses_are_parsed_without_exception(body: Any) -> None:
    body = real(body)
    with_declared(lambda: pages.parse_engine_load(dumped(body)), *PARSE_ERRORS)
    with_declared(lambda: clients.parse_workers(body), *PARSE_ERRORS)


LAYER = {
    "mediaType": "application/vnd.oci.image.layer.v1.tar",
    "digest": f"sha256:{'0' * 64}",
    "size": 5,
    "annotations": {"org.opencontainers.image.title": "model.safetensors"},
}
MANIFEST = {"mediaType": oci_artifact.MANIFESTS[0], "layers": [LAYER, LAYER]}


@given(broken_objects([MANIFEST]))
def test_oci_manifest_parser_raises_only_declared_errors(body: Any) -> None:
    with_declared(lambda: make_listing(oci_artifact.artifact_files(real(body))), RequestRefused)


@given(st.text(max_size=60) | st.from_regex(r"[a-z.]{1,9}/[a-z/._-]{1,9}(:[a-z]{1,5})?(@sha256:[0-9a-f]{64})?"))
def test_oci_reference_parser_never_raises(text: str) -> None:
    oci_artifact.parse_reference(text)


@given(broken_objects([json.loads('{"auths": {"r.example": {"auth": "YTpi"}, "https://x/v1": {"username": "a"}}}')], VALUES))
def test_registry_credentials_parser_raises_only_declared_errors(body: Any) -> None:
    text = json.dumps(body)
    with_declared(lambda: oci_artifact.registry_credentials({".dockerconfigjson": text}, "r.example"), RequestRefused)


FILE = st.fixed_dictionaries({"rfilename": VALUES, "size": VALUES, "blobId": VALUES, "lfs": st.none() | VALUES})


@given(st.fixed_dictionaries({"sha": VALUES, "siblings": st.lists(FILE) | VALUES}).map(dumped) | ANY.map(dumped))
def test_hub_description_parser_raises_only_declared_errors(raw: bytes) -> None:
    with_declared(lambda: hub.Hub("org/model", "").read_description(raw), SourceError)


SUMS = st.binary(max_size=200) | st.from_regex(rb"(\\?[0-9a-fA-F]{62,65} [ *][^\n]{0,9}\r?\n){0,3}", fullmatch=True)


@given(SUMS)
def test_checksum_file_parser_raises_only_declared_errors(data: bytes) -> None:
    with_declared(lambda: sha256sums.parse_sums(data), RequestRefused)
    with_declared(lambda: sha256sums.with_hashes([], data), RequestRefused)


PROVEN = {"name": "a", "size": 3, "hash": "sha256:00", "blocks": [1, 2], "members": ["b"]}
HELD = {
    "uri": "hf://a/b", "revision": "c", "files": [PROVEN, PROVEN], "verifiedAt": "2026-01-01T00:00:00+00:00",
    "models": ["m"], "paths": ["/m/x"], "identity": {"kind": "BaseModel", "uri": "hf://a/b"},
}  # fmt: skip


@given(broken_objects([HELD]).map(dumped) | ANY.map(dumped) | st.binary(max_size=60))
def test_manifest_reader_accepts_any_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "manifest.json"
        path.write_bytes(data)
        found = manifest.read_manifest(path)
    if found is not None:
        assert isinstance(found.size, int) and all(isinstance(one, str) for one in (found.uri, *found.models, *found.paths))


@given(st.lists(broken_objects([PROVEN]).map(dumped) | ANY.map(dumped) | st.binary(max_size=60), max_size=4))
def test_journal_parser_accepts_any_bytes(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = store.Store(Path(folder) / "m", "d")
        made.parts.mkdir(parents=True)
        (made.parts.parent / "journal").write_bytes(b"\n".join(lines))
        made.verified_files()


TENSOR = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}
CONFIGS: list[Any] = [
    {"model_type": "kimi_k2", "architectures": ["A"], "num_hidden_layers": 3, "hidden_size": 8, "n_routed_experts": 4,
     "num_attention_heads": 2, "vocab_size": 9, "quantization_config": {"quant_method": "fp8", "weight_block_size": [1, 2]},
     "text_config": {"torch_dtype": "bfloat16", "max_position_embeddings": 10}, "rope_scaling": {"factor": 2.0}},
    {"__metadata__": {"a": "b"}, "x.weight_packed": TENSOR, "y": TENSOR},
    {"metadata": {"total_size": 5}, "weight_map": {"x": "model-1.safetensors"}},
    {"_class_name": "FluxPipeline", "transformer": ["diffusers", "T"]},
    {"quantization": {"quant_algo": "NVFP4", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float"}}}}},
]  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from([*FILES, "model.safetensors"]), broken_objects(CONFIGS).map(dumped) | st.binary(max_size=40)
    )
)
def test_invalid_model_file_gives_no_facts_and_no_exception(found: dict[str, bytes]) -> None:
    """An invalid file of a model has the same effect as a missing file: no exception, and no facts."""
    headers = {name: data for name, data in found.items() if name.endswith(".safetensors")}
    facts({name: data for name, data in found.items() if name not in headers}, headers, ["x-Q4_K_M.gguf"]).dump()
    with tempfile.TemporaryDirectory() as folder:
        for name, data in found.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(len(data).to_bytes(8, "little") + data if name in headers else data)
        model_facts.read_facts(Path(folder))


@given(st.text(max_size=80) | st.text(alphabet="[]{}:,-&*!|>\n \"'#a1~?%@", max_size=60) | VALUES.map(yaml.safe_dump))
def test_yaml_parser_raises_only_yaml_errors(text: str) -> None:
    with_declared(lambda: list(kubeyaml.documents(text)), yaml.YAMLError)
    kubeyaml.plain_scalar(text)


@given(st.data())
def test_stored_objects_are_read_without_exception(data: st.DataObject) -> None:
    """Objects that an API server has stored are read without an exception. Their metadata is valid, so only open parts of
    the spec may have any value.
    """
    kind = data.draw(st.sampled_from(sorted(PARSE)))
    body = {
        "metadata": SHIPPED[kind][-1]["metadata"],
        "spec": real(data.draw(broken_objects(SHIPPED[kind]))).get("spec"),
        "status": {},
    }
    known = parse_or_keep(kind, body, None)
    parse_or_keep(kind, {**body, "status": {"conditions": []}}, known)
