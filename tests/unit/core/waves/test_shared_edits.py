"""Tests of edits that several services share, and of what proves that an edit has reached a service."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator.core.observed.objects import Epoch, Ref
from ome_operator.core.reconcile.plan import EditStand, EditState
from ome_operator.core.waves.shared_edits import edit_states, pending_edits, reached_edits, shared_by, whole_before

RUNTIME, MODEL = Ref("ClusterServingRuntime", "", "rt"), Ref("BaseModel", "team", "m")
H200 = Ref("AcceleratorClass", "", "h200")
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def inputs(**other: Any) -> dict[str, Any]:
    model = {"kind": "BaseModel", "namespace": "team", "name": "m", "uri": "hf://a/b"}
    return {"chosen": RUNTIME._asdict(), "runtime": {"image": "1"}, "model": model, "engine": {"x": 1}, **other}


def on(name: str = "h200", **part: Any) -> dict[str, Any]:
    return {"engine": {"class": name, "nodeSelector": {"gpu": name}, **part}}


def edited(before: dict[str, Any], after: dict[str, Any]) -> tuple[Ref, ...]:
    return tuple(pending_edits("new", ["old", "new"], {"old": {"inputs": before}, "new": {"inputs": after}}))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (inputs(), inputs(engine={"x": 2}), ()),
        (inputs(), inputs(runtime={"image": "2"}), (RUNTIME,)),
        (inputs(), inputs(model=inputs()["model"] | {"uri": "hf://a/c"}), (MODEL,)),
        (inputs(), inputs(model=inputs()["model"] | {"uri": "hf://a/c"}, runtime={}), (RUNTIME, MODEL)),
        (inputs(accelerator=on()), inputs(accelerator=on(nodeSelector={"gpu": "h200", "zone": "a"})), (H200,)),
        (inputs(accelerator=on()), inputs(accelerator=on(args=["--tp=8"])), (RUNTIME,)),
        (inputs(), inputs(accelerator=on(asked={"policy": "BestFit", "by": "runtime"})), (RUNTIME,)),
        (inputs(accelerator=on(asked={"by": "runtime"})), inputs(), (RUNTIME,)),
        # An edit of the service itself, to another runtime, model or class, is not a shared edit.
        (inputs(), inputs(chosen=RUNTIME._replace(name="other")._asdict(), runtime={"image": "2"}), ()),
        (inputs(), inputs(model=inputs()["model"] | {"name": "other"}), ()),
        (inputs(accelerator=on("h100")), inputs(accelerator=on()), ()),
        (inputs(accelerator=on(asked={"by": "runtime"})), inputs(accelerator=on("h100")), ()),
    ],
)  # fmt: skip
def test_changed_object_of_an_edit_is_identified(
    before: dict[str, Any], after: dict[str, Any], found: tuple[Ref, ...]
) -> None:
    assert edited(before, after) == found


def test_object_whose_edits_are_not_followed_is_not_shared() -> None:
    """A service that does not follow edits of an object proves nothing about an edit of this object. The service uses a new
    version of the object only when its user requests this.
    """
    merged = {"kind": "FineTunedWeight", "namespace": "", "name": "w"}
    assert shared_by(inputs(accelerator=on())) == (RUNTIME, MODEL, H200)
    assert shared_by(inputs(accelerator=on()), ["runtime"]) == (MODEL, H200)
    assert shared_by(inputs(), ["runtime", "model"]) == ()
    tuned = inputs(model=merged, base=inputs()["model"])
    assert shared_by(tuned, ["model"]) == (RUNTIME, Ref("FineTunedWeight", "", "w"))


def test_pending_edits_between_revisions() -> None:
    data = {"old": {"inputs": inputs()}, "new": {"inputs": inputs(runtime={})}}
    assert pending_edits("new", [], data) == {}, "it is the first slice"
    assert pending_edits("new", ["new"], data) == {}, "the revision is complete already"
    assert tuple(pending_edits("new", ["forgotten"], data)) == (RUNTIME, MODEL), "the previous revision is unknown"
    assert pending_edits("", ["old"], data) == {}


def test_edit_for_one_accelerator_class_does_not_affect_other_services() -> None:
    """An edit that concerns one class of accelerators does not change services on other classes. They equal the runtime
    already, and prove nothing about the edit.
    """
    data = {"old": inputs(accelerator=on()), "new": inputs(accelerator=on(args=["--tp=8"]))}
    stored = {name: {"inputs": each} for name, each in data.items()}
    assert pending_edits("new", ["old"], stored) == {RUNTIME: True}
    stored["older"] = {"inputs": inputs(runtime={})}
    assert (
        pending_edits("new", ["old", "older"], stored) == pending_edits("new", ["older", "old"], stored) == {RUNTIME: False}
    )


def test_a_revision_of_an_older_operator_names_no_runtime() -> None:
    old = {key: value for key, value in inputs().items() if key != "chosen"}
    assert edited(old, inputs(runtime={})) == (RUNTIME,)
    assert shared_by(old) == (MODEL,) and shared_by({"model": {"name": "of no kind"}}) == ()


AT = {RUNTIME: Epoch("u", 3), MODEL: Epoch("m", 1)}
TIME = "2026-01-01T11:00:00+00:00"
ENTRY = {"kind": "ClusterServingRuntime", "name": "rt", "uid": "u", "generation": 3, "time": TIME}


def test_reached_edit_is_valid_for_one_generation_of_one_object() -> None:
    assert reached_edits([ENTRY], [], AT, NOW) == [ENTRY]
    assert reached_edits([ENTRY], [RUNTIME], AT, NOW) == [ENTRY | {"time": NOW.isoformat()}]
    assert [each["kind"] for each in reached_edits([ENTRY], [MODEL], AT, NOW)] == ["BaseModel", "ClusterServingRuntime"]
    assert reached_edits([ENTRY | {"generation": 2}], [], AT, NOW) == [], "the object was edited since"
    assert reached_edits([ENTRY | {"uid": "former"}], [], AT, NOW) == [], "the object was created again"
    assert reached_edits([ENTRY], [], {}, NOW) == [], "the service is pinned"
    assert reached_edits([], [RUNTIME], {RUNTIME: Epoch("", 0)}, NOW) == [], "the object is gone"


def stand(*reached: dict[str, Any], waits: tuple[Ref, ...] = (), failed: bool = False, **recovered: str) -> EditStand:
    said = {"reached": list(reached), "conditions": [{"type": "Recovered", **recovered}] if recovered else []}
    return edit_states(AT, dict.fromkeys(waits, False), failed=failed, current=True, status=said, now=NOW)[RUNTIME]


def equal(status: str, *more: dict[str, str], current: bool = True) -> EditStand:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T10:00:00Z"}
    complete = {"type": "RolledOut", "status": status, "lastTransitionTime": "2026-01-01T11:59:00Z"}
    said = {"conditions": [ready, complete, *more]}
    return edit_states(AT, {}, failed=False, current=current, status=said, now=NOW)[RUNTIME]


def test_complete_service_counts_as_up_to_date_since_it_is_ready() -> None:
    """A service that is complete with the present runtime counts as up to date from the time since which it is ready. It
    may have waited for an edit that was then reverted, so it needed no rollout.
    """
    lost = {"type": "Recovered", "status": "False", "lastTransitionTime": "2026-01-01T11:00:00Z"}
    assert equal("True") == EditStand(Epoch("u", 3), EditState.EQUAL, NOW - timedelta(hours=2))
    assert equal("False").state == equal("True", lost).state == EditState.IDLE
    short = {"type": "Scaled", "status": "True", "lastTransitionTime": "2026-01-01T11:30:00Z"}
    assert equal("True", short).since == NOW - timedelta(minutes=30), "until then it served with fewer groups"
    assert equal("True", current=False).state == EditState.IDLE, "its model is gone, so it keeps its previous revision"


def test_edit_state_depends_only_on_the_status_of_the_service() -> None:
    assert stand() == EditStand(Epoch("u", 3), EditState.IDLE)
    assert stand(ENTRY) == EditStand(Epoch("u", 3), EditState.DONE, NOW - timedelta(hours=1))
    assert stand(ENTRY | {"generation": 2}).state == EditState.IDLE
    assert stand(ENTRY, waits=(RUNTIME,)).state == EditState.PENDING
    assert stand(ENTRY, waits=(RUNTIME,), failed=True).state == EditState.FAILED
    assert stand(ENTRY, waits=(MODEL,), failed=True).state == EditState.DONE, "the failure was due to another edit"


def test_service_is_complete_again_from_the_time_its_lost_group_returned() -> None:
    assert stand(ENTRY, status="False", lastTransitionTime="2026-01-01T11:58:00Z").since is None
    assert stand(ENTRY, status="True", lastTransitionTime="2026-01-01T11:58:00Z").since == NOW - timedelta(minutes=2)
    assert stand(ENTRY, status="True", lastTransitionTime="2026-01-01T09:58:00Z").since == NOW - timedelta(hours=1)


@pytest.mark.parametrize("time", ["2026-01-01T12:00:05+00:00", "garbage", ""])
def test_invalid_time_counts_as_now(time: str) -> None:
    assert stand(ENTRY | {"time": time}).since == NOW


def test_last_complete_revisions_are_read_from_status() -> None:
    assert whole_before({"components": {"engine": {"latestReadyRevision": "a"}, "router": {}}}) == {"a"}
    assert whole_before({}) == frozenset()
