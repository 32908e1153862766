"""What an agent knows, and when it tries again."""

import time
from pathlib import Path
from typing import Any

from ome_operator.agent import record
from ome_operator.agent.loop import Agent
from ome_operator.agent.work import Terms, Work
from tests.support import parts, yamls


class Api:
    """An API server on which a model is made between two lists."""

    def __init__(self) -> None:
        self.agent: Any = None

    async def get(self, *_: object) -> dict[str, Any]:
        return {"metadata": {"uid": "n", "labels": {}}}

    async def list_metadata(self, kind: str) -> list[dict[str, Any]]:
        if kind == "BaseModel":
            model = yamls.model()
            self.agent.seen("ClusterBaseModel", {**model, "metadata": {**model["metadata"], "uid": "new"}})
        return []


async def test_a_model_that_appears_during_an_audit_is_kept() -> None:
    api: Any = Api()
    api.agent = agent = Agent(Terms(node="n"), api)
    await agent._know()
    assert "new" in agent._models
    await agent._know()
    assert "new" in agent._models, "and no audit is due"


def test_an_edit_of_what_failed_is_tried_at_once(tmp_path: Path) -> None:
    def model(key: str) -> record.Held:
        return parts.model(storage={"storageUri": "hf://a/b", "path": str(tmp_path), "key": key})

    work = Work(model("wrong"), Terms(node="n"))
    for _ in range(7):
        work._fail("401")
    work.refresh(model("wrong"))
    assert work.due > time.monotonic()
    work.refresh(model("right"))
    assert work.due < time.monotonic()


def test_what_another_keeps_from_its_path_is_tried_when_it_goes(tmp_path: Path) -> None:
    work = Work(parts.model(storage={"storageUri": "hf://a/b", "path": str(tmp_path)}), Terms(node="n"))
    work.refuse("that is another's")
    assert (work.report().state, work.report().message) == (record.FAILED, "that is another's")
    assert work.due < time.monotonic()
