"""Tests of which models an agent processes, and when it tries again."""

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator.agent import loop, record
from ome_operator.agent.loop import Agent
from ome_operator.agent.work import AgentSettings, Work
from ome_operator.kube.errors import KubeError, NotFound, ServerError, Transient
from ome_operator.settings.agent import AgentPolicy
from tests.support import parts, yamls
from tests.support.agent_node import settled
from tests.support.fake_api import Call, FakeApi


def server() -> FakeApi:
    """Return an API server with one Node. The Node's record does not exist before the agent creates it."""

    def created(_: Call) -> None:
        del api.answers["apply"]

    api = FakeApi({"get": node("n"), "apply": MISSING, "create": created, "list_metadata": []})
    return api


def node(uid: str) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "labels": {}}}


MISSING = NotFound("no such record", 404)


def model(uid: str, **spec: Any) -> dict[str, Any]:
    """Return a model that gives agents nothing to do, unless its spec says so."""
    made = yamls.model()
    return {**made, "metadata": {**made["metadata"], "uid": uid}, "spec": spec or {"storage": {"storageUri": "pvc://a/b"}}}


async def test_models_missing_from_a_list_are_removed_if_seen_before_it() -> None:
    def listed(_: Call) -> list[Any]:
        agent.handle_object("ClusterBaseModel", model("new"))  # created while the models are listed
        return []

    agent = Agent(AgentSettings(node="n"), FakeApi({"list_metadata": listed}))
    agent.handle_object("ClusterBaseModel", model("old"))
    agent.handle_object("ClusterBaseModel", model("unread", storage=3))
    agent.handle_object("BaseModel", model("of another kind"))
    await agent._audit.check("ClusterBaseModel")
    assert (agent._models.keys(), agent._unparsed.keys()) == ({"new", "of another kind"}, set())


IN_5 = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": 5}]}]}
BREAKING: dict[str, tuple[dict[str, Any], str]] = {
    "values": (
        {"path": "/models/x", "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": IN_5}},
        "nodeSelectorTerms[0].matchExpressions[0].values must be a list of strings",
    ),
    "a list": (
        {"path": "/models/x", "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [1]}},
        "requiredDuringSchedulingIgnoredDuringExecution must be a map with nodeSelectorTerms",
    ),
    "a long name": ({"path": f"/models/{'l' * 300}/x"}, "a name of more than 255 bytes"),
    "a long name of few letters": ({"path": f"/models/{'я' * 200}"}, "a name of more than 255 bytes"),
}


@pytest.mark.parametrize("case", BREAKING)
async def test_exception_for_one_model_makes_only_this_model_failed(case: str, tmp_path: Path) -> None:
    """An exception in the work on one model makes only this model Failed, and the agent continues with the others. Each of
    these BaseModels once ended the agents on all nodes, again after every restart.
    """
    storage, said = BREAKING[case]
    storage = {**storage, "path": storage["path"].replace("/models", str(tmp_path))}
    api, complete = server(), asyncio.Event()
    agent = Agent(AgentSettings(node="n", roots=(str(tmp_path),)), api)
    (tmp_path / "good").mkdir()
    (tmp_path / "good/config.json").write_text("{}")
    good = {"storageUri": f"local://{tmp_path}/good", "path": f"{tmp_path}/good"}
    agent.handle_object("BaseModel", model("bad", storage={"storageUri": "hf://a/b", **storage}))
    agent.handle_object("ClusterBaseModel", model("good", storage=good))
    complete.set()
    running = asyncio.create_task(agent.run(complete))
    try:
        async with asyncio.timeout(60):
            while not (told := api.bodies("apply")) or "1 Ready" not in told[-1]["status"]["summary"]:
                assert not running.done()
                await asyncio.sleep(0.05)
    finally:
        running.cancel()
    states = {one["kind"]: (one["state"], one.get("message", "")) for one in told[-1]["status"]["models"]}
    assert states["ClusterBaseModel"] == ("Ready", "")
    state, message = states["BaseModel"]
    assert (state, said in message) == ("Failed", True), message
    assert not agent._unused_directories.has_offer


@pytest.mark.parametrize(
    "body", [{}, {"metadata": 5}, {"metadata": {"uid": "u", "name": []}, "spec": 5}, {"metadata": None}]
)
def test_unparsable_model_does_not_stop_other_models(body: dict[str, Any]) -> None:
    """If the agent cannot parse a model, the agent continues with the other models. As long as the model cannot be parsed,
    the agent offers no directory for removal, because the model may refer to any directory.
    """
    agent = Agent(AgentSettings(node="n"), FakeApi({}))
    agent.handle_object("BaseModel", body)
    agent.handle_object("ClusterBaseModel", model("m"))
    assert (len(agent._unparsed), set(agent._models)) == (1, {"m"})
    agent.handle_deletion("BaseModel", body)
    assert not agent._unparsed


async def test_no_directory_is_offered_for_removal_while_a_model_is_unparsable(tmp_path: Path) -> None:
    """No directory is offered for removal while there is a model that cannot be parsed, because it may refer to the
    directory. Without that model, the same directory is offered at once.
    """
    (tmp_path / ".ome" / ("0" * 32)).mkdir(parents=True)
    agent = Agent(AgentSettings(node="n", roots=(str(tmp_path),), policy=AgentPolicy(remove_after=1e-9)), server())
    agent.handle_object("BaseModel", {"metadata": {"uid": "u"}, "spec": 5})
    assert agent._unparsed
    for _ in range(2):
        await agent._report()
        await asyncio.sleep(0.01)
        assert not agent._unused_directories.has_offer
    agent._broken = {"u": "the agent failed"}
    agent.handle_deletion("BaseModel", {"metadata": {"uid": "u"}})
    await agent._report()
    assert not agent._unused_directories.has_offer
    agent._broken = {}
    await agent._report()
    assert agent._unused_directories.has_offer


def test_models_above_the_namespace_limit_are_not_downloaded(tmp_path: Path) -> None:
    """An agent processes only the oldest models of a namespace, up to the limit. After a restart, the order in which the
    agent sees the models makes no difference.
    """
    agent = Agent(AgentSettings(node="n", roots=(str(tmp_path),), policy=AgentPolicy(models_per_namespace=2)), FakeApi({}))

    def seen(kind: str, namespace: str, name: str, day: int) -> dict[str, Any]:
        metadata = {"namespace": namespace, "name": name, "creationTimestamp": f"2026-01-0{day}T00:00:00Z"}
        one = model(f"{namespace}-{name}", storage={"storageUri": f"hf://a/{name}", "path": f"{tmp_path}/{name}"})
        body = {**one, "metadata": {**one["metadata"], **metadata}}
        agent.handle_object(kind, body)
        return body

    def wanted() -> set[str]:
        return {uid for uid, one in agent._models.items() if agent._wanted(one)}

    seen("BaseModel", "team", "third", 3)
    first, _ = seen("BaseModel", "team", "first", 1), seen("BaseModel", "team", "second", 2)
    seen("BaseModel", "quiet", "late", 9)
    for day in (7, 8, 9):
        seen("ClusterBaseModel", "", f"wide{day}", day)
    wide = {f"-wide{day}" for day in (7, 8, 9)}
    assert wanted() == {"team-first", "team-second", "quiet-late", *wide}
    agent.handle_deletion("BaseModel", first)
    assert wanted() == {"team-second", "team-third", "quiet-late", *wide}


async def test_failed_list_of_models_does_not_prevent_the_record() -> None:
    told, complete = asyncio.Event(), asyncio.Event()
    failing = {"get": node("n"), "list_metadata": Transient("etcdserver: request timed out", 500)}
    agent = Agent(AgentSettings(node="n", roots=()), FakeApi({**failing, "apply": lambda _: told.set()}))
    agent.handle_object("ClusterBaseModel", model("m"))
    agent.handle_relist("ClusterBaseModel")
    complete.set()
    running = asyncio.create_task(agent.run(complete))
    try:
        await asyncio.wait_for(told.wait(), 10)
    finally:
        running.cancel()


@pytest.mark.timeout(900)  # `settled` ends the test earlier if the agent gets nowhere
@pytest.mark.parametrize("place", ["/elsewhere", "ROOT/x"], ids=["outside of the roots", "below a root"])
async def test_record_of_300_models_with_maximum_lengths_is_accepted(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of a node with 300 models is accepted even if their authors used all permitted lengths. A review reported
    this with URIs of 2,000 characters and paths of 3,800: the record was refused, so no model became Ready, and each attempt
    wrote both into the log (S6 and S23 of the review). A path has at most 2,048 characters now.
    """
    monkeypatch.setattr(loop, "TICK", 0.05)
    api = server()
    # No second attempt, which would be reported too: a busy machine needs more than ten seconds for all models.
    agent = Agent(
        AgentSettings(node="n", roots=(str(tmp_path),), again=600.0, policy=AgentPolicy(models_per_namespace=0)), api
    )
    for number in range(300):
        path = (place.replace("ROOT", str(tmp_path)) + ("/" + "p" * 200) * 19)[:2048]
        nobody = {"endpoint": "http://127.0.0.1:9"}
        long = {"storageUri": f"hf://a/{'u' * 1980}{number:03}", "path": path, "parameters": nobody}
        made = model(f"u{number}", storage=long)
        agent.handle_object(
            "BaseModel", {**made, "metadata": {**made["metadata"], "name": f"m-{number}", "namespace": "team-a"}}
        )
    agent.handle_object("BaseModel", model("longer", storage={"storageUri": "hf://a/b", "path": "/p" * 1900}))
    assert "longer" in agent._unparsed
    (tmp_path / "good").mkdir()
    (tmp_path / "good/config.json").write_text("{}")
    good = {"storageUri": f"local://{tmp_path}/good", "path": f"{tmp_path}/good"}
    agent.handle_object("ClusterBaseModel", model("good", storage=good))

    # After about five minutes, the agent forgets the models that the API server does not list.
    stored = {"ClusterBaseModel": ["good"], "BaseModel": ["longer", *(f"u{number}" for number in range(300))]}
    api.answers["list_metadata"] = lambda call: [{"uid": uid} for uid in stored.get(call.kind, ())]

    def told() -> dict[str, Any]:
        return (api.bodies("apply") or [{"status": {}}])[-1]["status"]

    await settled(agent, lambda: "1 Ready, 300 Failed" in told().get("summary", ""), lambda: told().get("summary"))
    assert len(json.dumps(told())) < 1_100_000
    assert all(len(item.get("message", "")) <= record.MAX_MESSAGE for item in told()["models"])
    lines = [found.getMessage() for found in caplog.records]
    assert len(lines) <= 310 and max(map(len, lines)) < 1_000, "one line for each model, not repeated in every pass"


@pytest.mark.looptime
@pytest.mark.parametrize(
    "refusal",
    [Transient("etcdserver: request is too large", 500), ServerError("request entity too large", 413)],
    ids=["500", "413"],
)
async def test_refused_record_is_retried_with_growing_delay_and_work_continues(
    refusal: KubeError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the API server refuses the record of a node, the agent repeats the write less and less often, and continues its
    work. Reported: every node sent a refused record of 1.6 MB once a second.
    """
    monkeypatch.setattr(loop, "TICK", 0.01)
    api = server()
    api.answers["apply"] = refusal
    agent = Agent(AgentSettings(node="n", roots=(str(tmp_path),)), api, clock=asyncio.get_running_loop().time)
    for name in ("good", "later"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    agent.handle_object("ClusterBaseModel", model("good", storage={"storageUri": "local:///x", "path": f"{tmp_path}/good"}))
    began = asyncio.get_running_loop().time()

    def over() -> bool:
        if len(api.bodies("apply")) >= 2 and "later" not in agent._models:
            agent.handle_object(
                "ClusterBaseModel", model("later", storage={"storageUri": "local:///y", "path": f"{tmp_path}/later"})
            )
        return asyncio.get_running_loop().time() - began > 1.0

    await settled(agent, over)
    assert 3 <= len(api.bodies("apply")) <= 8, "about a hundred passes, but few requests"
    assert agent._works["later"].report().state == record.READY


def test_edited_failed_model_is_retried_immediately(tmp_path: Path) -> None:
    def model(key: str) -> record.AnyModel:
        return parts.model(storage={"storageUri": "hf://a/b", "path": str(tmp_path), "key": key})

    work = Work(model("wrong"), AgentSettings(node="n"))
    for _ in range(7):
        work._fail("401")
    work.refresh(model("wrong"))
    assert work.due > time.monotonic()
    work.refresh(model("right"))
    assert work.due < time.monotonic()


def test_model_with_a_path_conflict_is_retried_when_it_ends(tmp_path: Path) -> None:
    work = Work(parts.model(storage={"storageUri": "hf://a/b", "path": str(tmp_path)}), AgentSettings(node="n"))
    work.refuse("that is another's")
    assert (work.report().state, work.report().message) == (record.FAILED, "that is another's")
    assert work.due < time.monotonic()


async def test_deleted_record_is_recreated_within_half_a_minute() -> None:
    api, clock = server(), SimpleNamespace(now=1000.0)
    agent = Agent(AgentSettings(node="n", roots=()), api, clock=lambda: clock.now)
    for number in (1, 2):
        await agent._read_node()
        await agent._report()
        assert len(api.bodies("create")) == number
        assert api.bodies("apply")[-1]["status"] == {"summary": "none"}
        api.answers["apply"] = MISSING
        clock.now += 30


async def test_record_is_written_every_ten_seconds_only_with_prefetch_directories() -> None:
    """An agent whose operator lists directories to read ahead writes its record every ten seconds, and any other agent twice
    a minute. Reported: with `agent.prefetchGB`, every agent of a cluster wrote six times a minute.
    """
    api, clock = server(), SimpleNamespace(now=1000.0)
    agent = Agent(AgentSettings(node="n", roots=(), policy=AgentPolicy(prefetch_gb=1e-8)), api, clock=lambda: clock.now)

    async def writes(listed: list[str]) -> int:
        """Return the number of writes in a minute whose answers list these directories."""
        api.answers["apply"] = {"spec": {"prefetch": listed}} if listed else {}
        before = len(api.bodies("apply"))
        for _ in range(60):
            clock.now += 1
            await agent._report()
        return len(api.bodies("apply")) - before

    await agent._read_node()
    await writes([])
    assert await writes([]) == 2
    await writes(["/m/a"])
    assert await writes(["/m/a"]) == 6
    await writes([])
    assert await writes([]) == 2


async def test_new_record_is_owned_by_the_current_node() -> None:
    """A new record names the present Node as its owner. The old record was garbage-collected with the previous Node of
    this name, and a new record with that owner would be collected, too.
    """
    api = server()
    agent = Agent(AgentSettings(node="n", roots=()), api)
    await agent._read_node()
    api.answers["get"] = node("registered anew")
    await agent._report()
    (created,) = api.bodies("create")
    assert created["metadata"]["ownerReferences"][0]["uid"] == "registered anew"


@pytest.mark.parametrize("uri", ["hf://a/b", "local://PATH"])
def test_disabled_model_is_kept_but_not_downloaded(tmp_path: Path, uri: str) -> None:
    path = tmp_path / "m"
    uri = uri.replace("PATH", str(path))
    agent = Agent(AgentSettings(node="n", roots=(str(tmp_path),)), FakeApi({}))
    one = parts.model(storage={"storageUri": uri, "path": str(path)})
    off = parts.model(storage={"storageUri": uri, "path": str(path)}, disabled=True)
    assert agent._wanted(one) and not agent._wanted(off)
    store = agent._settings.locations.store(one)
    for folder in (store.root, path):
        folder.mkdir(parents=True)
    Path(f"{store.root}.json").write_text("{}")
    assert agent._wanted(off), "running services need the directory again"
