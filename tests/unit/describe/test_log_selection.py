"""Tests of which pods' logs are shown, and of the names before the lines."""

import pytest

from ome_operator.core.observed.objects import Pod
from ome_operator.describe.log_selection import PodChoice, explain_no_pods, parse_seconds, pod_labels, sort_key
from tests.support import parts
from tests.support.simulator import World


def pods(runtime_size: int = 2, **spec: object) -> tuple[Pod, ...]:
    """Return the pods of a service that is complete."""
    world = World(parts.service(**spec), parts.deps(parts.model(), parts.simple(runtime_size, decoder=True)), seed=1)
    for _ in range(12):
        world.carry_out(world.sync())
        world.step()
    return world.observed().pods


def test_logs_are_ordered_by_role_group_and_rank() -> None:
    found = list(pod_labels(pods(engine={"minReplicas": 2}, decoder={}, router={}), PodChoice()).values())
    assert found[:-1] == ["prefill/0/0", "prefill/0/1", "prefill/1/0", "prefill/1/1", "decode/0/0", "decode/0/1"]
    assert found[-1].startswith("router/")


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (PodChoice(role="decode"), ["decode/0/0", "decode/0/1"]),
        (PodChoice(role="decoder", rank=1), ["decode/0/1"]),
        (PodChoice(group=1), ["prefill/1/0", "prefill/1/1"]),
        (PodChoice(role="engine", group=0, rank=0), ["prefill/0/0"]),
        (PodChoice(group=7), []),
    ],
)
def test_log_choice_selects_pods(choice: PodChoice, said: list[str]) -> None:
    assert list(pod_labels(pods(engine={"minReplicas": 2}, decoder={}, router={}), choice).values()) == said


def test_revision_is_shown_if_pods_of_two_revisions_exist() -> None:
    one, two = pods(engine={})
    found = pod_labels([one, two._replace(revision="other")], PodChoice())
    assert set(found.values()) == {f"engine/0/0@{one.revision}", "engine/0/1@other"}


def test_empty_log_choice_lists_existing_pods() -> None:
    said = explain_no_pods(pods(engine={"minReplicas": 2}, decoder={}, router={}), PodChoice(group=7))
    assert "prefill (groups 0–1, ranks 0–1)" in said and "decode (groups 0, ranks 0–1)" in said and "router" in said
    assert explain_no_pods((), PodChoice()) == "it has no pods"


@pytest.mark.parametrize(
    ("text", "number"), [("90", 90), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("x", None), ("5 m", None)]
)
def test_log_duration_is_parsed(text: str, number: int | None) -> None:
    assert parse_seconds(text) == number


def test_times_are_ordered_to_the_nanosecond() -> None:
    times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000001Z", "2026-01-01T00:00:00.1Z", "2026-01-01T00:00:01.05Z"]
    assert sorted([times[2], times[0], times[3], times[1]], key=sort_key) == times
    assert sort_key("") == ("", "")
