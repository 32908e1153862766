"""Lists every module that decodes external data, with the test that gives arbitrary input to it.

`test_every_decoding_module_is_listed` fails if a module decodes data and is not listed.
"""

import ast
import json
import math
import socket
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ome_operator.benchmark_pod import inside, inside_genai, steps
from ome_operator.benchmark_pod.results import has_failed, results, summary
from ome_operator.core.observed.nodes import node_record
from ome_operator.core.preflight import results as checks
from ome_operator.preflight import messages
from ome_operator.preflight.findings import clocks, failed_copies, links, slow_ranks, unreachable
from ome_operator.preflight.group import Line, Meeting
from ome_operator.preflight.node import CommandLine
from ome_operator.preflight.ports import Ports
from ome_operator.util import json_limits
from ome_operator.util.json_pages import members
from tests.support.deep import MOST
from tests.support.odd_json import ANY, Deep, broken_objects, dumped, real, typed, with_declared
from tests.support.parts import ROOT

PARSERS, HERE = "tests/property/test_parsers.py", "tests/property/test_readers.py"
INFORMER = "tests/unit/watch/test_informer.py"
DECODES = frozenset({"loads", "raw_decode", json_limits.decode_to_depth.__name__, "json", "load_all", "get_data"})
UNTRUSTED = json_limits.parse_untrusted.__name__
"""Names of functions that convert text or bytes to data."""
ARCHIVES = "tests/unit/compile_cache/test_archive.py"
READERS = {
    "agent/compile_server.py": "tests/unit/agent/test_compile_server.py::test_malformed_request_is_refused_with_a_reason",
    "compile_cache/archive.py": f"{ARCHIVES}::test_invalid_index_with_a_valid_hash_is_refused",
    "compile_cache/pod.py": "tests/unit/compile_cache/test_pod.py::test_an_unexpected_error_is_a_reason",
    "agent/manifest.py": f"{PARSERS}::test_manifest_reader_accepts_any_bytes",
    "core/observed/nodes.py": "tests/property/test_decoders.py::test_node_facts_do_not_depend_on_skipped_fields",
    "core/observed/telemetry.py": "tests/unit/controllers/test_telemetry.py::test_malformed_summary_changes_nothing",
    "benchmark_pod/inside.py": f"{HERE}::test_undecodable_benchmark_run_counts_as_failed",
    "benchmark_pod/inside_genai.py": f"{HERE}::test_undecodable_benchmark_run_counts_as_failed",
    "benchmark_pod/steps.py": f"{HERE}::test_benchmark_results_accept_any_file_content",
    "core/benchmarkjob/traffic.py": f"{PARSERS}::test_user_objects_are_parsed_or_invalid_with_reason",
    "core/observed/managed_fields.py": f"{PARSERS}::test_facts_from_any_api_object_are_parsed_without_exception",
    "core/preflight/results.py": f"{HERE}::test_preflight_findings_from_any_message_are_short_and_printable",
    "kube/client.py": "tests/unit/kube/test_client.py::test_deepest_accepted_object_can_be_read",
    "modelinfo/extract.py": f"{PARSERS}::test_invalid_model_file_gives_no_facts_and_no_exception",
    "preflight/group.py": f"{HERE}::test_rank_report_of_any_bytes_is_value_or_expected_error",
    "registry/pages.py": f"{PARSERS}::test_router_and_engine_responses_are_parsed_without_exception",
    "registry/clients.py": f"{PARSERS}::test_router_and_engine_responses_are_parsed_without_exception",
    "storage/hub.py": f"{PARSERS}::test_hub_description_parser_raises_only_declared_errors",
    "storage/oci_artifact.py": f"{PARSERS}::test_registry_credentials_parser_raises_only_declared_errors",
    "storage/oci_registry.py": f"{PARSERS}::test_oci_manifest_parser_raises_only_declared_errors",
    "util/json_limits.py": "tests/unit/util/test_json_limits.py::test_json_of_any_depth_is_decoded",
    "util/json_pages.py": f"{HERE}::test_list_page_parser_raises_only_declared_errors",
    "util/kubeyaml.py": f"{PARSERS}::test_yaml_parser_raises_only_yaml_errors",
    "watch/informer.py": f"{INFORMER}::test_undecodable_event_is_dropped_alone",
}
"""Path of a module below ome_operator/ → ID of the test that gives arbitrary input to the module."""
OWN = {
    "cli": "a command reads what its user names, and ends with a sentence or a traceback for the user alone",
    "api/pod_fields.py": "what the repository ships",
    "core/catalog/agreement.py": "text that this module has written itself",
    "engines/flags.py": "what the repository ships; of a flag's value only whether it is JSON",
    "kube/podlogs.py": "in a command",
    "lint/model_flags.py": "what the repository ships",
    "kube/podproxy.py": "in a command",
    "sizing": "figures that the repository ships; to decode is a phase of serving there",
    "preflight/check.py": "what the operator put into the pod, and its own child process",
    "preflight/node.py": "files of the rank's own pod; a check that fails says so, and the others go on",
    "recorder/writer.py": "what the operator sends to its own child process",
    "recorder/recording.py": "in a command",
}
"""Module or folder -> why it needs no test: it decodes no external data in a process on which others depend."""


def decoding() -> set[str]:
    """Return the modules of the operator that call decoding functions."""
    found = set()
    for file in (ROOT / "ome_operator").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else node
            limited = isinstance(node, ast.ImportFrom) and node.module == json_limits.__name__
            if (limited and UNTRUSTED in [alias.name for alias in node.names]) or (
                isinstance(called, ast.Attribute) and ast.unparse(called) == f"json_limits.{UNTRUSTED}"
            ):
                found.add(file.relative_to(ROOT / "ome_operator").as_posix())
            if (isinstance(called, ast.Attribute) and called.attr in DECODES - {"json"}) or (
                isinstance(node, ast.Call) and getattr(called, "attr", getattr(called, "id", "")) in DECODES
            ):
                found.add(file.relative_to(ROOT / "ome_operator").as_posix())
    return found


def test_every_decoding_module_is_listed() -> None:
    found = {module for module in decoding() if module not in OWN and module.split("/")[0] not in OWN}
    assert found == READERS.keys(), "write a test with arbitrary input for each, and add it to READERS"


@pytest.mark.parametrize("test", sorted({*READERS.values()}))
def test_every_listed_reader_has_a_test(test: str) -> None:
    path, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


# --- data of other users that the API server stores
# ---------------------------------------------------------------------------------

RECORD = {
    "metadata": {"name": "n", "uid": "u", "resourceVersion": "7"},
    "spec": {"remove": [{"directory": "/m/x", "offer": "o"}]},
    "status": {
        "models": [
            {"kind": "BaseModel", "namespace": "n", "name": "m", "uri": "hf://a/b", "revision": "r", "state": "Ready",
             "directories": ["/m/x"], "bytes": 1, "total": 2, "speed": 3, "message": "m", "verifiedAt": "", "facts": {}},
        ],
        "unused": [{"directory": "/m/x", "models": ["m"], "paths": ["/m/y"], "offer": "o"}],
    },
}  # fmt: skip


@given(typed(RECORD))
def test_node_record_accepts_any_value_of_the_crd(body: Any) -> None:
    """Any record that an agent can write, that is, any value that the types of the CRD permit, is read without
    an exception.
    """
    node_record(body)


FOUND = {"check": "reach", "rank": 1, "said": "x", "fix": "y"}
MESSAGE = {"preflight": 1, "rank": 0, "findings": [FOUND, FOUND], "failed": "", "more": 0}
MESSAGES = (
    st.text()
    | (broken_objects([MESSAGE]) | ANY).map(lambda body: dumped(body).decode(errors="replace"))
    | st.tuples(broken_objects([MESSAGE]), st.integers(0, 200)).map(lambda cut: dumped(cut[0]).decode()[: cut[1]])
)


@given(MESSAGES, st.none() | st.integers(-(2**31), 2**31), st.booleans())
def test_preflight_findings_from_any_message_are_short_and_printable(message: str, code: int | None, before: bool) -> None:
    ended = {"terminated": {"message": message, "exitCode": code}}
    box = {"name": "ome-preflight", **({"lastState": ended} if before else {"state": ended})}
    found = checks.parse_result({"initContainerStatuses": [box]})
    if found is not None:
        assert len(found.findings) <= checks.MANY + 2
        assert all(each.check and each.said and len(each.said) < 500 for each in found.findings)
        assert found.sentence.replace("\ufffd", "").isprintable()


@given(st.lists(ANY.map(dumped) | st.binary(max_size=40), max_size=3).map(b",".join))
def test_list_page_parser_raises_only_declared_errors(items: bytes) -> None:
    for page in (b'{"metadata":{},"items":[' + items + b"]}", items):
        # the list begins again, or the whole page is decoded
        with_declared(lambda page=page: list(members(page)), ValueError, TypeError, KeyError, RecursionError)


# --- messages of the ranks of a group
# -------------------------------------------------------------------------------------------

HELLO = {"rank": 1, "ports": [30000, 41000], "clock": 5.0, "left": 60.0, "link": 400.0}
ANSWER = {
    "failed": [[0, 30000, "refused"]], "to": 0, "rate": 1e9, "why": "no answer", "ready": True, "rates": {"0": 1e9},
    "error": "x", "findings": [FOUND],
}  # fmt: skip
ORDERS = [
    {"do": "reach", "ports": {"0": [30000, 41000]}},
    {"do": "copy", "shift": 1, "ports": {"0": [30000], "1": [41000]}},
    {"do": "torch", "host": "h", "seconds": 5.0},
    {"do": "end", "findings": [FOUND]},
    {"do": "tell"},
]
SAID = (broken_objects([HELLO, ANSWER, *ORDERS]) | ANY).map(dumped) | st.binary(max_size=60)


@given(SAID)
def test_rank_report_of_any_bytes_is_value_or_expected_error(raw: bytes) -> None:
    """Arbitrary bytes arrive at the port at which ranks report to rank 0. The result is a value that the check can use, or
    an error that the check expects.
    """
    here, there = socket.socketpair()
    with here, there:
        there.sendall(raw.replace(b"\n", b" ")[:60_000] + b"\n")
        there.shutdown(socket.SHUT_WR)
        try:
            heard = Line(here).read(time.monotonic() + 5)
        except (OSError, ValueError):
            return
    for read in (messages.parse_hello, messages.parse_answer, messages.parse_order):
        try:
            found = read(heard, 5.0) if read is messages.parse_hello else read(heard)
        except ValueError:
            continue
        _used(found if read is messages.parse_hello else {}, found if read is messages.parse_answer else {})
        if read is messages.parse_order:
            ports = [port for some in (found.get("ports") or {}).values() for port in some]
            assert all(0 < port < 65536 for port in ports), "connecting raises OverflowError"
            json.dumps(found)


@given(SAID)
@example(dumped({**HELLO, "ports": [70_000]}))
@example(dumped({**HELLO, "link": "fast"}))
@example(dumped({**HELLO, "rank": math.inf}))
def test_client_that_is_no_rank_does_not_stop_rank_0(raw: bytes) -> None:
    """A client that is no rank of the group connects to rank 0 and sends anything. Rank 0 continues with the other ranks."""
    meeting = Meeting({"rank": 0, "size": 3}, CommandLine([]), cast(Ports, None), {}, time.monotonic() + 60)
    here, there = socket.socketpair()
    hellos: dict[int, Any] = {0: {**HELLO, "skew": 0.0}}
    with here, there:
        there.sendall(raw.replace(b"\n", b" ")[:60_000] + b"\n")
        there.shutdown(socket.SHUT_WR)
        meeting._greet(here, hellos, {})
    assert hellos.keys() <= {0, 1, 2}
    list(clocks(hellos)), list(links(hellos))
    assert all(0 < port < 65536 for hello in hellos.values() for port in hello["ports"]), "connecting raises OverflowError"


def _used(hello: Any, answer: Any) -> None:
    """Use the values that a rank has sent in the same way as rank 0 does."""
    hellos = {0: {**HELLO, "skew": 0.0}, 1: {**HELLO, "skew": 0.0, **hello}, 2: {**HELLO, "skew": 0.0}}
    list(clocks(hellos)), list(links(hellos))
    list(unreachable({0: {}, 1: answer, 2: {}}, str))
    list(failed_copies({(1, int(answer.get("to") or 0)): str(answer.get("why"))}, {1: answer}))
    rates = {(1, int(answer.get("to") or 0)): float(answer.get("rate") or 0.0), (0, 1): 1e9, (2, 0): 1e9}
    list(slow_ranks(rates)), list(slow_ranks({(1, taker): rate for taker, rate in (answer.get("rates") or {}).items()}))
    for each in answer.get("findings") or ():
        assert {*each} == {"check", "rank", "said", "fix"}


# --- results of a benchmark
# -----------------------------------------------------------------------------------------------------

PLAN: Any = {
    "name": "b", "target": "t", "service": "s",
    "runs": [{"scenario": "D(1,1)", "concurrency": 1, "program": "serving"},
             {"scenario": "gsm8k", "concurrency": 1, "program": "gsm8k"}],
}  # fmt: skip
GENAI = {
    "aggregated_metrics": {
        "num_completed_requests": 3, "requests_per_second": 1.0, "run_duration": 2.0,
        "stats": {"ttft": {"mean": 1.0, "p50": 1.0, "p99": 2.0}, "tpot": {}, "e2e_latency": {"p90": 1.0}},
    },
    "individual_request_metrics": [{"error_code": 500, "error_message": "x"}, {"error_code": None}],
    "_time_unit": "s",
}  # fmt: skip
SGLANG = {"completed": 3, "errors": ["", "x"], "median_ttft_ms": 1.0, "output_throughput": 2.0}
LEFT = broken_objects([{"result": SGLANG}, {"result": {"questions": 3, "accuracy": 0.5}}, {"error": "x"}]) | ANY


@given(broken_objects([GENAI]) | ANY, LEFT)
@example(GENAI, {"error": Deep(MOST)})
def test_undecodable_benchmark_run_counts_as_failed(told: Any, left: Any) -> None:
    """A run of a benchmark whose result cannot be decoded counts as failed, and the results of the other runs are kept."""

    def program(*_: Any) -> Any:
        return inside_genai.result(real(told))

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(inside.PROGRAMS, "serving", program)
        patched.setattr(inside.traceback, "print_exc", lambda: None)
        made = inside.outcome(PLAN, PLAN["runs"][0], Path("x"))
    assert made.keys() in ({"result"}, {"error"})
    for raw in ({0: made, 1: real(left)}, {0: real(left)}):
        found = results(PLAN, raw)
        assert len(found["runs"]) == 2 and isinstance(has_failed(found), bool)
        assert len(summary(found, "place").encode()) <= 4096 or "error" in summary(found, "place")


@given(st.dictionaries(st.sampled_from(["0", "1", "x", "-1"]), ANY.map(dumped) | st.binary(max_size=40)))
def test_benchmark_results_accept_any_file_content(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / f"{name}.json").write_bytes(data)
        results(PLAN, steps._raw(Path(folder)))
