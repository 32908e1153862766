"""Tests of what recipes need besides pods: the SSH keys of a service, and a load balancer that receives its workers as
arguments.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps
from ome_operator.core.reconcile.plan import Plan
from tests.support import parts
from tests.support.simulator import World


def world(sample: str, **engine: Any) -> World:
    """Return the world of a sample whose groups are ready. `engine` is as in `with_engine`."""
    service, deps = with_engine(sample, **engine)
    out = World(service, deps, 7)
    out.settle()
    return out


def with_engine(sample: str, **engine: Any) -> tuple[InferenceService, Deps]:
    """Return a shipped sample and its dependencies. `engine` contains fields that replace fields of the sample's engine."""
    service, deps = parts.shipped_service(sample)
    assert service.spec.engine is not None
    changed = service.spec.engine.model_copy(update=engine)
    return replace(service, spec=service.spec.model_copy(update={"engine": changed})), deps


def secrets(plan: Plan) -> list[str]:
    return [one.manifest["metadata"]["name"] for one in plan.ensure_secret]


def test_ssh_secret_is_created_before_pods_and_again_only_if_a_pod_is_unready() -> None:
    sample = "moonshotai/kimi-k2-trtllm.yaml"
    one = World(*parts.shipped_service(sample), 7)
    first = one.sync()
    assert secrets(first) == ["kimi-k2-trtllm-ssh"]
    one.settle()
    assert one.condition("Ready")["status"] == "True"
    assert secrets(one.sync()) == []
    next(iter(one.pods.values())).ready = False
    assert secrets(one.sync()) == ["kimi-k2-trtllm-ssh"], "it may wait for a Secret that somebody deleted"


def told(one: World) -> list[str]:
    """Return the numbers of the prefill leaders in the arguments of the load balancer."""
    (router,) = [live.manifest for key, live in one.children.items() if key[0] == "Deployment"]
    args = router["spec"]["template"]["spec"]["containers"][0]["args"]
    urls = [after for flag, after in pairwise(args) if flag == "--prefill"]
    return [url.removeprefix("http://").partition(".")[0].split("-")[-2] for url in urls]


def templates(one: World) -> dict[str, Any]:
    """Return the pod templates of the engines."""
    return {key[1]: live.manifest["spec"]["template"] for key, live in one.children.items() if key[0] == "StatefulSet"}


def test_load_balancer_gets_a_group_only_when_it_serves_and_engines_stay() -> None:
    sample = "moonshotai/kimi-k2-pd-lb.yaml"
    one = world(sample)
    before = templates(one)
    assert told(one) == ["0"]
    one.edit(*with_engine(sample, min_replicas=2, max_replicas=2))
    one.carry_out(one.sync())
    assert told(one) == ["0"], "a leader that loads for half an hour would get half of the requests"
    one.settle()
    assert told(one) == ["0", "1"]
    after = templates(one)
    assert before.items() <= after.items()


def test_load_balancer_loses_a_group_before_its_leader_is_stopped() -> None:
    sample = "moonshotai/kimi-k2-pd-lb.yaml"
    one = world(sample, min_replicas=2, max_replicas=2)
    assert told(one) == ["0", "1"]
    one.edit(*with_engine(sample, min_replicas=1, max_replicas=1))
    one.carry_out(one.sync())
    leaders = [pod for pod in one.pods.values() if pod.labels.get(keys.WORKER_INDEX) == "0"]
    assert told(one) == ["0"] and sum(pod.labels[keys.COMPONENT] == keys.ENGINE for pod in leaders) == 2
    one.settle()
    assert told(one) == ["0"] and sum(key[0] == "StatefulSet" for key in one.children) == 4
