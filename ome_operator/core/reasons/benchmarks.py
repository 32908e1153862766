"""Reasons of BenchmarkJobs."""

from ome_operator.core.reasons.conditions import ADVICE, COMPLETE
from ome_operator.core.reasons.record import Kstatus, ReasonRecord, State


class BenchmarkReasons:
    """Reasons in the conditions of a BenchmarkJob."""

    SERVICE_NOT_FOUND = ReasonRecord(
        "ServiceNotFound", of=(COMPLETE,), kstatus=Kstatus.IN_PROGRESS, state=State.WAITING,
        meaning="the service that the job measures does not exist, or does not allow jobs of this namespace; the job "
        "waits",
        remedy="apply the service. A service of another namespace must name the namespace of the job in its annotation "
               "`ome.io/benchmark-namespaces`",
    )  # fmt: skip
    SERVICE_NOT_READY = ReasonRecord(
        "ServiceNotReady", of=(COMPLETE,), kstatus=Kstatus.IN_PROGRESS, state=State.WAITING,
        meaning="the service that the job measures is not Ready, or serves with fewer groups than it should have; the job "
        "waits for it",
        remedy="`kubectl describe isvc` shows what the service waits for",
    )  # fmt: skip
    TRAFFIC_NOT_SERVED = ReasonRecord(
        "TrafficNotServed", of=(COMPLETE,), kstatus=Kstatus.FAILED,
        meaning="a task, a scenario or a limit is not supported",
        remedy="correct the field that the message names; [benchmarks](benchmarks.md) lists what is supported",
    )  # fmt: skip
    FORMAT_NOT_SERVED = ReasonRecord(
        "FormatNotServed", of=(COMPLETE,), kstatus=Kstatus.FAILED,
        meaning="requests cannot be made in this format",
        remedy="write `apiFormat: openai` or `sglang`",
    )  # fmt: skip
    PLACE_NOT_SERVED = ReasonRecord(
        "PlaceNotServed", of=(COMPLETE,), kstatus=Kstatus.FAILED,
        meaning="the benchmark cannot read its data set from the given location, or cannot write its results there",
        remedy="correct the field that the message names",
    )  # fmt: skip
    NO_TOOLS_IMAGE = ReasonRecord(
        "NoToolsImage", of=(COMPLETE,), kstatus=Kstatus.IN_PROGRESS,
        meaning="the operator runs outside of its chart and has no image for data sets and reports",
        remedy="start the operator with `--tools-image=REGISTRY/ome-agent:TAG` ([images/agent](../images/agent))",
    )  # fmt: skip
    NO_TOKENIZER = ReasonRecord(
        "NoTokenizer", of=(COMPLETE,), kstatus=Kstatus.IN_PROGRESS,
        meaning="no tokenizer is named, so tokens cannot be counted",
        remedy="set `spec.tokenizer`",
    )  # fmt: skip
    RUNNING = ReasonRecord(
        "Running", of=(COMPLETE,), kstatus=Kstatus.IN_PROGRESS, state=State.STARTING,
        meaning="the benchmark runs: requests are being sent",
        remedy="wait",
    )  # fmt: skip
    REQUESTS_FAILED = ReasonRecord(
        "RequestsFailed", of=(COMPLETE,), kstatus=Kstatus.FAILED,
        meaning="the benchmark ran, but some requests failed",
        remedy="the message contains the first error, `report.html` all errors",
    )  # fmt: skip
    JOB_DELETED = ReasonRecord(
        "JobDeleted", of=(COMPLETE,), kstatus=Kstatus.FAILED,
        meaning="the Job was deleted while it ran",
        remedy="delete the BenchmarkJob and apply it again",
    )  # fmt: skip
    FAILED = ReasonRecord(
        "Failed", of=(COMPLETE,), kstatus=Kstatus.FAILED,
        meaning="the Job failed, and Kubernetes gave no other reason",
        remedy="the message states how the pod of the Job ended; delete the BenchmarkJob and apply it again",
    )  # fmt: skip
    EDITED_AFTER_START = ReasonRecord(
        "EditedAfterStart", of=(ADVICE,), kstatus=Kstatus.CURRENT,
        meaning="the BenchmarkJob was edited after its start, so the edit has no effect",
        remedy="delete the BenchmarkJob and apply it again",
    )  # fmt: skip
