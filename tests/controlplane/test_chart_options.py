"""Tests of the arguments of operator and agent in the chart: every value of the chart that stands for an option takes effect
in the settings.
"""

import json
import shlex
from typing import Any

import pytest

from ome_operator.settings import Settings
from tests.support import agent_options
from tests.support.agent_options import AGENT_OPTIONS
from tests.support.chart import AGENT, notes, pod, rendered
from tests.support.operator_options import OPTIONS, SAMPLES, caught, field, start, words

OF_CHART = {key: declared for key, declared in OPTIONS.items() if declared.option.value or declared.option.part_of}
PARTS: dict[str, dict[str, Any]] = {
    "sidecar-image": {"registry_image": "r.example.com/op:1"},
    "router-keys": {"rbac_createSecrets": False},
    "model-agent": {"agent_enabled": True},
    "compile-caches": {"agent_enabled": True, "agent_compileCacheGB": 50},
    "agent-root": {"agent_enabled": True, "agent_roots": ["/raid", "/mnt/other"]},
    "network-policies": {"networkPolicy_services": True},
    "keda": {"keda_enabled": True},
    "scrapes-engines": {"metrics_engines_podMonitor": True},
    "expose": {"exposure_kind": "Ingress"},
    "router-watch": {"registry_enabled": True},
    "router-proxy": {"registry_podsProxy": True},
    "well-known-models": {"wellKnownModels_enabled": False},
    "tools-image": {"benchmark_toolsImage": "r.example.com/agent:1"},
}
"""Option -> values of the chart that set it and also have another effect."""
SETS: dict[str, Any] = {"router-watch": 5.0, "model-agent": True}
"""Options that the chart sets itself, with their values. Users cannot change them."""
NEEDS: dict[str, dict[str, Any]] = {
    "cluster-wide-kinds": {"watchNamespaces": ["team-a"]},
    "expose-domain": {"exposure_kind": "Ingress"},
    "ingress-class": {"exposure_kind": "Ingress"},
    "gateway": {"exposure_kind": "HTTPRoute"},
    "pin-from": {"agent_enabled": True},
    "expose-other-domain": {"exposure_kind": "Ingress"},
    "expose-annotation": {"exposure_kind": "Ingress"},
}
"""Option -> other values of the chart without which the option has no effect."""
IN_CLUSTER = {"router-watch", "log-format"}
"""Options that the chart sets only for a pod: only there are routers reachable, and a process logs to a terminal."""
OUTSIDE_ONLY = {"router-proxy"}
"""Options that the chart sets only for a process outside the cluster: only there is the permission needed."""
PLAIN = "ome operator --kubeconfig ome-operator.kubeconfig --namespace-of-lease ome"
OUTSIDE: dict[str, Any] = {"operator_external": True, "agent_image_repository": "r/agent"}
FLAGS = {"cluster-wide-kinds": ["--watch-namespace=team-a"]}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    return caught(monkeypatch)


def arguments(**values: Any) -> list[str]:
    (operator,) = pod(rendered(**values))["containers"]
    command, *words = operator["args"]
    assert command == "operator"
    return ["--well-known-models=package" if "/etc/" in word else word for word in words]


def test_options_that_are_part_of_another_are_listed() -> None:
    assert PARTS.keys() == {key for key, declared in OPTIONS.items() if declared.option.part_of}


@pytest.mark.parametrize("key", sorted(OF_CHART.keys() - OUTSIDE_ONLY))
def test_chart_value_sets_the_operator_option(key: str, started: list[Settings]) -> None:
    declared = OF_CHART[key]
    given = PARTS.get(key) or {declared.option.value.replace(".", "_"): SAMPLES[key][0]}
    start(arguments(**given, **NEEDS.get(key, {})))
    start([*words(key, SAMPLES[key][0]), *FLAGS.get(key, [])])
    by_chart, by_flag = started
    assert field(by_chart, declared) == SETS.get(key, field(by_flag, declared))
    assert field(by_chart, declared) != declared.default


def test_chart_defaults_equal_operator_defaults(started: list[Settings]) -> None:
    start(arguments())
    start([])
    by_chart, by_default = started
    other = {key for key, one in OPTIONS.items() if field(by_chart, one) != field(by_default, one)}
    assert other == {"log-format", "sidecar-image", "tools-image", "router-watch"}


def test_disabled_gang_placement_sets_timeout_to_zero(started: list[Settings]) -> None:
    start(arguments(placement_gangs=False))
    assert started[0].policy.gang_timeout == 0


def command(**values: Any) -> str:
    """Return the command of a process outside the cluster that the chart's notes contain."""
    (found,) = [line.strip() for line in notes(**values).splitlines() if line.startswith("  ome operator ")]
    return found


def test_notes_command_contains_no_default_values() -> None:
    """The command in the chart's notes contains no option with its default value. The README states the same command. A
    default that differs from the one in the chart's helper would be added to the command.
    """
    assert command(operator_external=True) == PLAIN


@pytest.mark.parametrize("key", sorted(OF_CHART.keys() - IN_CLUSTER))
def test_notes_command_contains_every_value_that_is_set(key: str, started: list[Settings]) -> None:
    """The command in the chart's notes contains every value that is set, because a process outside the cluster gets no
    value of the chart by itself.
    """
    declared = OF_CHART[key]
    given = PARTS.get(key) or {declared.option.value.replace(".", "_"): SAMPLES[key][0]}
    _, called, *line = shlex.split(command(**OUTSIDE, **given, **NEEDS.get(key, {})))
    assert called == "operator"
    start(line)
    start([*words(key, SAMPLES[key][0]), *FLAGS.get(key, [])])
    by_notes, by_flag = started
    assert field(by_notes, declared) == SETS.get(key, field(by_flag, declared))
    assert field(by_notes, declared) != declared.default


def test_arguments_in_the_notes_are_quoted_for_the_shell() -> None:
    more = ["--identity=it's me", "--context=$HOME"]
    assert shlex.split(command(operator_external=True, operator_extraArgs=more))[-2:] == more


def test_notes_mention_observe_mode_only_for_the_operator_of_the_chart() -> None:
    inside = notes(operator_observe=True, image_repository="r/op")
    outside = notes(operator_observe=True, operator_external=True)
    assert "The operator is in observe mode" in inside and "The operator is in observe mode" not in outside
    assert "start it again with the options" in outside and " --observe" in command(
        operator_observe=True, operator_external=True
    )


AGENT_PARTS: dict[str, dict[str, Any]] = {
    "root": {"roots": ["/tmp"]},
    "secret": {"secrets": [{"name": "a", "hosts": ["huggingface.co"]}, {"name": "b", "hosts": ["example.com"]}]},
    "identity-host": {"identity": {"hosts": ["s3.example.com"]}},
    "identity-namespace": {"identity": {"namespaces": ["team-a", "team-b"]}},
    "models-per-namespace": {},
    "peers": {"peers": True},
    "log-format": {},
    "log-level": {},
}
"""Values below `agent` of the chart that set an option and also have another effect."""
OUTSIDE_OF_AGENT: dict[str, dict[str, Any]] = {
    "models-per-namespace": {"modelsPerNamespace": 9},
    "log-format": {"operator_logFormat": "console"},
    "log-level": {"operator_logLevel": "DEBUG"},
}
"""Values of the chart for the operator that set an option of the agent, too."""
OF_AGENT = [key for key, declared in AGENT_OPTIONS.items() if declared.option.value or declared.option.part_of]


def agent_started(below_agent: dict[str, Any], **values: Any) -> Any:
    """Return the options with which the agent of the chart starts with these values."""
    (container,) = pod(rendered(agent={**AGENT, "roots": ["/tmp"], **below_agent}, **values), "DaemonSet")["containers"]
    command, *line = container["args"]
    assert command == "agent"
    variables = {item["name"]: item.get("value", "from-the-pod") for item in container["env"]}
    return agent_options.started(line, **variables)[1]


def test_agent_options_that_are_part_of_another_are_listed() -> None:
    assert AGENT_PARTS.keys() == {key for key, declared in AGENT_OPTIONS.items() if declared.option.part_of}


@pytest.mark.parametrize("key", OF_AGENT)
def test_chart_value_sets_the_agent_option(key: str) -> None:
    declared = AGENT_OPTIONS[key]
    sample = agent_options.SAMPLES[key]
    given = AGENT_PARTS.get(key, {declared.option.value.removeprefix("agent."): sample})
    found = agent_options.value(agent_started(given, **OUTSIDE_OF_AGENT.get(key, {})), declared)
    if key == "secret":
        found, sample = ([json.dumps(json.loads(text), sort_keys=True) for text in texts] for texts in (found, sample))
    if key == "peers":
        sample = "ome-agent-peers.ome.svc"
    assert (sorted(found) if isinstance(sample, list) else found) == (sorted(sample) if isinstance(sample, list) else sample)


def test_chart_defaults_equal_agent_defaults() -> None:
    by_chart, (_, by_default) = agent_started({}), agent_options.started(["--node=from-the-pod", "--root=/tmp"])
    other = {
        key
        for key, one in AGENT_OPTIONS.items()
        if agent_options.value(by_chart, one) != agent_options.value(by_default, one)
    }
    assert other == {"own-address"}
