"""Whatever users write in a service, its model and its runtime, a lint rule never raises: it returns findings or none."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from ome_operator.cli import manifests
from ome_operator.errors import QuestionUnanswered
from ome_operator.lint import report
from tests.support.linting import found
from tests.support.odd_json import places
from tests.support.overlays import LINT, compose

Path = tuple[str | int, ...]
SERVICES = {
    name: compose(LINT / f"{name}.yaml")
    for name in (
        "second/no-ipc-lock",
        "second/liveness-on-workers",
        "second/host-network-same-port",
        "works/host-network-privileged",
        "works/shell-wrapper",
    )
}
WRONG = st.one_of(
    st.sampled_from([None, True, -1, 10**30, float("nan"), "", "💥\u202e\x00", "9" * 400, "1e999999999", "$(A)${B}{{C}}"]),
    st.sampled_from(
        [
            [],
            {},
            [None],
            [[]],
            [{}],
            [1],
            {"a": None},
            {"name": 1},
            [{"name": []}],
            {"x": {"y": []}},
            {"": ""},
            ["--tp-size"],
        ]
    ),
    st.text(max_size=20),
    st.integers(),
)


PLACES = [
    (name, number, at)
    for name, bodies in SERVICES.items()
    for number, body in enumerate(bodies)
    if body["apiVersion"].startswith("ome.io")
    for at in places(body)
]


def replaced(value: Any, at: Path, new: Any) -> Any:
    """Return a copy with another value at this path."""
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = replaced(value[at[0]], at[1:], new)
    return copy


@given(st.sampled_from(PLACES), WRONG)
@example(("second/liveness-on-workers", 1, ("spec", "engineConfig", "tolerations", 0, "operator")), [None])
def test_lint_rules_never_raise_for_broken_objects(place: tuple[str, int, Path], wrong: Any) -> None:
    name, number, at = place
    bodies = list(SERVICES[name])
    bodies[number] = replaced(bodies[number], at, wrong)
    try:
        objects = [each for body in bodies for each in manifests._objects("file", body, "default")]
    except QuestionUnanswered as refused:
        assert "file" in str(refused)
        return
    findings = found(objects)
    assert report.text_report(findings) and report.json_report(findings, {}) and report.sarif_report(findings, {}, "1")
