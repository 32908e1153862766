"""Tests of the demo's view, from statuses at every stage."""

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ome_local.demo import live_view, services
from ome_local.demo.view import view

if TYPE_CHECKING:
    from ome_local.cluster import Cluster

TYPES = ("ModelReady", "RuntimeReady", "EngineReady", "DecoderReady", "RouterReady", "Ready")
GOOD = dict.fromkeys(TYPES, "True")


def service(conditions: Mapping[str, str] = MappingProxyType({}), **ready: str) -> dict[str, Any]:
    """Return Kimi K2 with these conditions (type → status) and these counts of groups."""
    return {
        "metadata": {"name": "kimi", "generation": 2},
        "spec": {"model": {"name": "k2"}, "runtime": {"name": "rt"}, "engine": {}, "decoder": {}, "router": {}},
        "status": {
            "url": "http://kimi",
            "components": {name: {"ready": count} for name, count in ready.items()},
            "conditions": [
                {"type": kind, "status": status, "message": f"why {kind}", "observedGeneration": 2}
                for kind, status in conditions.items()
            ],
        },
    }


def test_view_without_status_shows_missing_parts() -> None:
    """Without a status, the view shows all parts of the service as missing."""
    seen = view({"metadata": {"name": "kimi"}, "spec": service()["spec"]})
    assert not seen.ready
    assert [str(line) for line in seen.lines] == [
        "… model    k2",
        "… runtime  rt",
        "… prefill  -",
        "… decode   -",
        "… router   -",
        "… URL      -",
    ]


def test_view_shows_counts_while_service_starts() -> None:
    """While the service starts, the view shows counts, and the message of each component that is not ready."""
    conditions = dict.fromkeys(TYPES, "False") | {"ModelReady": "True"}
    seen = view(service(conditions, engine="2/4", decoder="0/12"))
    lines = [str(line) for line in seen.lines]
    assert lines[0] == "✓ model    k2"
    assert lines[2] == "… prefill  2/4  why EngineReady"
    assert seen.why == "why Ready"
    assert seen.missing_items() == ["runtime rt", "prefill 2/4", "decode 0/12", "router -"]


def test_view_line_does_not_repeat_component_and_count() -> None:
    """A line of the view does not repeat the component and the count with which the operator's messages begin."""
    body = service({"EngineReady": "False"}, engine="2/4")
    body["status"]["conditions"][0]["message"] = "prefill 2/4: 2 pods starting"
    assert str(view(body).lines[2]) == "… prefill  2/4  2 pods starting"


def test_view_of_ready_service_ticks_all_lines() -> None:
    """If the service is ready, all lines have a tick, and nothing is shown as missing."""
    seen = view(service(GOOD, engine="4/4", decoder="12/12", router="1/1"))
    assert seen.ready
    assert seen.missing_items() == []
    assert str(seen.lines[3]) == "✓ decode   12/12"


def test_ready_condition_of_an_older_generation_is_ignored() -> None:
    """Conditions of an older generation of the spec do not count as ready: they were observed for generation 1, which is not
    the present one.
    """
    old = service(GOOD)
    for condition in old["status"]["conditions"]:
        condition["observedGeneration"] = 1
    assert not view(old).ready


def test_service_without_a_decoder_shows_only_its_components() -> None:
    """For a service without a decoder, only the components that it has are shown."""
    small = service(GOOD)
    small["spec"] = {"model": {"name": "k2"}, "engine": {}}
    assert [line.what for line in view(small).lines] == ["model", "runtime", "engine", "URL"]


@pytest.mark.parametrize("body", [{}, {"spec": None, "status": None}, {"status": {"conditions": None}}])
def test_view_of_incomplete_object_does_not_raise(body: dict[str, Any]) -> None:
    """An incomplete object must not raise an exception in the middle of a demo."""
    assert not view(body).ready


def test_plain_output_prints_each_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, no line is printed twice, and the output ends when the service is ready."""
    steps = iter([service(), service(), service(GOOD, engine="4/4")])
    seen = live_view.until_ready(lambda: view(next(steps)), 5.0, lambda: True)
    said = capsys.readouterr().out.splitlines()
    assert seen.ready
    assert said.count("  kimi: … model    k2") == 1
    assert "  kimi: ✓ prefill  4/4" in said


def test_service_is_summarized_in_one_line() -> None:
    """On a terminal, the line about a service contains counts where there is something to count, and marks for the rest."""
    assert view(service({"ModelReady": "True"}, engine="2/4", decoder="0/12")).counts() == (
        "model ✓  runtime …  prefill 2/4  decode 0/12  router …"
    )


def test_view_ends_at_time_limit_or_when_operator_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """The view ends at the time limit, or when the operator has ended."""
    assert not live_view.until_ready(lambda: view(service()), 0.0, lambda: True).ready
    assert not live_view.until_ready(lambda: view(service()), 60.0, lambda: False).ready


@pytest.mark.parametrize("ended", [True, False])
def test_late_service_can_be_awaited_again_with_a_longer_limit(ended: bool) -> None:
    """If the demo has reached its limit, the message names a command that waits for longer, because a busy machine needs
    more time. If the operator has ended, waiting is useless, so the command is left out.
    """
    cluster = SimpleNamespace(name="mine", process=lambda _: None if ended else object())
    told = services._trouble(cast("Cluster", cluster), services.TINY, view(service()), 180.0)
    assert ("demo --name mine --timeout 540" in told) is not ended
    assert told.startswith("The operator ended." if ended else "Not ready after 180 s: ")
