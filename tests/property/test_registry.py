"""For all pods and all states of a router, the synchronization of the router converges, then stops writing, and never acts
on incomplete information.
"""

from hypothesis import given
from hypothesis import strategies as st

from ome_operator.registry.reconcile import LeaderSigns, reconcile
from ome_operator.registry.records import Pod, RegistrySettings, RoleSpec, Worker, WorkerChanges, WorkerMemory

ROLES = (RoleSpec("engine", "prefill", 30000, 2, "p"), RoleSpec("decoder", "decode", 30001, 3, "d"))
TERMS = RegistrySettings(ROLES)
NOW = 1000.0
IPS = [f"10.0.0.{number}" for number in range(4)]

pods = st.lists(
    st.builds(
        Pod,
        name=st.sampled_from("abcdef"),
        uid=st.sampled_from("123456"),
        ip=st.sampled_from(["", *IPS]),
        component=st.sampled_from(["engine", "decoder", "router"]),
        group=st.sampled_from("01"),
        rank=st.integers(0, 2),
        running=st.booleans() | st.just(True),
        started=st.sampled_from([0.0, 500.0, 990.0]),
        ready=st.booleans() | st.just(True),
        ready_since=st.sampled_from([0.0, 600.0, 995.0]),
        deleting=st.sampled_from([False, False, True]),
        draining=st.sampled_from([False, False, True]),
        bootstrap_port=st.sampled_from([None, 9000]),
        health_port=st.sampled_from([None, 30000, 30001]),
    ),
    max_size=10,
    unique_by=(lambda pod: pod.uid, lambda pod: pod.name),
)
workers = st.lists(
    st.builds(
        Worker,
        id=st.uuids().map(str),
        url=st.builds("http://{}:3000{}".format, st.sampled_from(IPS), st.sampled_from(["0", "1", "0@0", "1@0"])),
        worker_type=st.sampled_from(["prefill", "decode"]),
        bootstrap_port=st.sampled_from([None, 8998, 9000]),
        running=st.integers(0, 2),
    ),
    max_size=6,
    unique_by=lambda worker: worker.url,
)
memories = st.builds(
    WorkerMemory,
    pods=st.dictionaries(st.sampled_from([f"http://{ip}:30000" for ip in IPS]), st.sampled_from("123456"), max_size=3),
    unready=st.dictionaries(st.sampled_from("123456"), st.sampled_from([900.0, 999.0]), max_size=3),
)

healthy = st.dictionaries(st.sampled_from("123456"), st.sampled_from([400.0, 960.0, 980.0, 995.0]), max_size=6)
"""UID of a leader that starts -> time at which its engine called itself healthy."""


def carried_out(before: list[Worker], step: WorkerChanges) -> list[Worker]:
    """Return the list of the router after it has carried out the registry's changes."""
    gone = {one.worker.id for one in step.remove}
    new = [Worker(f"new-{one.url}", one.url, one.worker_type, one.bootstrap_port, 0) for one in step.add]
    return [*(one for one in before if one.id not in gone), *new]


@given(pods, workers, memories, healthy)
def test_router_synchronization_converges_and_then_writes_nothing(
    some: list[Pod], listed: list[Worker], memory: WorkerMemory, early: dict[str, float]
) -> None:
    for _ in range(2):
        step = reconcile(some, listed, memory, TERMS, NOW, signs=LeaderSigns(healthy=early))
        listed, memory = carried_out(listed, step), step.memory
    rest = reconcile(some, listed, memory, TERMS, NOW, signs=LeaderSigns(healthy=early))
    assert not rest.add and not rest.remove
    assert reconcile(some, listed, rest.memory, TERMS, NOW, signs=LeaderSigns(healthy=early)) == rest


@given(pods, workers, memories)
def test_outdated_pod_list_removes_no_worker(some: list[Pod], listed: list[Worker], memory: WorkerMemory) -> None:
    step = reconcile(some, listed, memory, TERMS, NOW, fresh=False)
    assert not step.remove
    assert not listed or {one.url for one in step.add} <= memory.refill
    assert step.memory.refill == memory.refill | {one.url for one in step.add}


@given(pods, workers, memories, healthy)
def test_only_complete_groups_are_added_to_the_router(
    some: list[Pod], listed: list[Worker], memory: WorkerMemory, early: dict[str, float]
) -> None:
    """A leader is added to a router only if it is ready, or if its engine is healthy, all ranks run and only the kubelet's
    probes are missing.
    """
    sizes = {role.component: role.pods for role in ROLES}
    ports = {role.component: role.port for role in ROLES}
    for target in reconcile(some, listed, memory, TERMS, NOW, signs=LeaderSigns(healthy=early)).add:
        (leader,) = [pod for pod in some if pod.uid == target.uid]
        assert leader.rank == 0 and leader.running and not leader.deleting and not leader.draining
        ranks = [pod for pod in some if (pod.component, pod.group) == (leader.component, leader.group)]
        if not leader.ready:
            since = early[leader.uid]
            assert leader.health_port == ports[leader.component] and leader.ready_since <= leader.started
            assert NOW - TERMS.early <= since
            assert all(pod.started <= since for pod in (leader, *(pod for pod in ranks if pod.rank)))
        for wanted in range(1, sizes[leader.component]):
            assert any(pod.rank == wanted and pod.running and not pod.deleting for pod in ranks)


@given(pods, workers, memories)
def test_worker_of_a_serving_leader_is_removed_at_most_once(
    some: list[Pod], listed: list[Worker], memory: WorkerMemory
) -> None:
    """The worker of a leader that can serve is removed from a router at most once. This happens only if the worker has to
    be added again with corrected properties. Afterwards it stays.
    """
    first = reconcile(some, listed, memory, TERMS, NOW)
    after = carried_out(listed, first)
    second = reconcile(some, after, first.memory, TERMS, NOW)
    assert not second.remove


@given(pods, workers, memories, st.frozensets(st.sampled_from("123456")))
def test_silent_leaders_empty_no_role(
    some: list[Pod], listed: list[Worker], memory: WorkerMemory, silent: frozenset[str]
) -> None:
    """If leaders do not answer, the router's list still converges, and no role loses its last worker because of that."""
    spared, plain = listed, memory
    for _ in range(4):
        step = reconcile(some, listed, memory, TERMS, NOW, signs=LeaderSigns(silent=silent))
        listed, memory = carried_out(listed, step), step.memory
        other = reconcile(some, spared, plain, TERMS, NOW)
        spared, plain = carried_out(spared, other), other.memory
    rest = reconcile(some, listed, memory, TERMS, NOW, signs=LeaderSigns(silent=silent))
    assert not rest.add and not rest.remove
    assert {worker.worker_type for worker in listed} == {worker.worker_type for worker in spared}
    heard = {worker.base for worker in listed}
    out = {worker.base for worker in spared} - heard
    assert all(leader.state == "silent" and leader.uid in silent for leader in rest.leaders if leader.url in out)
