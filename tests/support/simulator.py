"""A small cluster in memory, for tests of pure code only: it carries out the plans of `sync`.

It is not an API server (tests/controlplane has a real one). It simulates the controllers with random, seeded timing: pods
are created and become ready in any order, leaders and routers end at any time, workers ignore SIGTERM until their grace
period is over, and the pods of a deleted StatefulSet are deleted after it. Each action of a plan is executed as the
executor does it, with UIDs, and with guards that read the current pods. Meanwhile it checks the laws of `invariants.py`.
"""

import copy
import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.freeze.hold import active_hold
from ome_operator.core.observed.admission import NO_ADMISSION
from ome_operator.core.observed.objects import Deps, Manifest, Observed, Pod, Refusal
from ome_operator.core.placement.fit import Needs
from ome_operator.core.reconcile.plan import Apply, Delete, GroupRecycle, Guard, NodeLost, Patch, Plan, fingerprint
from ome_operator.core.reconcile.sync import sync
from ome_operator.names import digest
from tests.support import invariants, routing
from tests.support.effects import effects
from tests.support.live import Key, Live, LivePod
from tests.support.selectors import matches

START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = 10
"""Seconds of a grace period that pass in one step."""


class World:
    """A simulated namespace with one service, its objects and its pods."""

    def __init__(self, service: InferenceService, deps: Deps, seed: int) -> None:
        self.service, self.deps, self.chance = service, deps, random.Random(seed)
        self.children, self.pods = dict[Key, Live](), dict[str, LivePod]()
        self.refusals, self.checks, self.avoided = dict[Key, Refusal](), dict[str, str](), dict[str, str]()
        self.may_roll, self.turn, self.now, self.empty = True, NO_ADMISSION, START, frozenset[str]()
        self.healthy: Callable[[LivePod], bool] = lambda _: True
        self.verdict: Callable[[str], str] = lambda _: ""  # revision → answer of the dry run
        self.room: Callable[[Needs], str] = lambda _: ""  # what is found about capacity on nodes
        self.beside = lambda _: "not read"  # the same next to the service's own pods
        self.scheduled, self.strict = False, False
        """Whether the test schedules pods, and whether every pass is checked to be pure and deterministic, which is slow."""
        self.watcher: Callable[[Plan], None] = lambda _: None
        """Receives every plan before it is carried out."""
        self.lag = 0
        """Maximum number of steps by which the pods that `sync` sees may be outdated."""
        self.unusable: set[str] = set()  # revisions that were restored from another namespace: deleted in a single step
        self.log, self._seen = list[str](), list[tuple[Pod, ...]]()
        self._numbers = itertools.count(1)

    # --- what sync sees -----------------------------------------------------------------------------------------------

    def observed(self) -> Observed:
        """Return the facts that a reconciliation observes. Its pods may be outdated by some steps."""
        pods = tuple(one.facts(self.service) for one in self.pods.values())
        self._seen = [*self._seen[-self.lag :], pods] if self.lag else [pods]
        children, may_roll = {key: one.facts(self.service) for key, one in self.children.items()}, self.may_roll
        return Observed(
            children=children,
            pods=self.chance.choice(self._seen),
            refusals=dict(self.refusals),
            checks=dict(self.checks),
            ahead=lambda _: "" if may_roll else "the service waits for wave 2 of 4",
            turn=self.turn,
            avoided=dict(self.avoided),
        )

    # --- carrying out a plan ------------------------------------------------------------------------------------------

    def sync(self) -> Plan:
        """Run one reconciliation, and carry out its plan."""
        observed = self.observed()
        before = copy.deepcopy((self.service, observed)) if self.strict else None
        plan = sync(self.service, self.deps, observed, self.now)
        if before is not None:
            again = sync(self.service, self.deps, observed, self.now)
            invariants.a_pass_changes_no_input_and_decides_the_same_again(before, (self.service, observed), plan, again)
        return plan

    def carry_out(self, plan: Plan) -> None:
        """Execute every action of a plan as the executor does."""
        self.watcher(plan)
        invariants.a_service_that_is_held_is_only_told_of(self.service, self.deps, plan)
        for check in plan.check:
            self.checks[check.revision] = self.verdict(check.revision.partition(".")[0])
        for look in plan.look:
            self.checks[look.key] = (self.beside if look.second_copy else self.room)(look.needs)
        led, self._before = routing.led(self.children), tuple(self.children.values())
        stored = [self._apply(one) for one in plan.first]
        if all(stored) and not plan.look:  # the answers to `look` decide about all other writes
            for one in plan.apply:
                self._apply(one)
            for create in plan.create:
                self._create(create.manifest)
            for status in plan.apply_status:
                self.children["RoleScale", status.manifest["metadata"]["name"]].status = status.manifest["status"]
            for patch in plan.patch:
                self._patch(patch)
            if not self.lag:
                routing.a_route_leads_away_before_a_router_goes(self.children, self.pods.values(), plan.delete, self.now)
            for scale in plan.scale:
                self.children[scale.kind, scale.name].woken_by(scale.body)
            for delete in plan.delete:
                self._delete(delete)
            if not self.lag:
                routing.a_route_leads_to_what_serves(self.children, self.pods.values())
                routing.requests_move_to_what_has_settled(self.children, self.pods.values(), led, self.now)
            for recycle in plan.recycle:
                self._recycle(recycle)
        if not plan.look:
            self.service = replace(self.service, status=plan.status)

    def _apply(self, one: Apply) -> bool:
        key = one.manifest["kind"], one.manifest["metadata"]["name"]
        if self._blocked(one.guard) or (one.after and not self._stored(one.after)):
            return True
        found = self.children.get(key)
        self.refusals.pop(key, None)
        invariants.a_change_meets_the_object_that_is_meant(key, found, one.uid)
        if found is None:
            self._born(one.manifest)
        elif one.uid:
            self._changed(found, one.manifest)
        elif found.owner not in ("", self.service.uid) or not found.owned:
            self.refusals[key] = Refusal("NameTaken", f"{key[1]} belongs to somebody else")
            return False
        else:
            self.log.append(f"adopt {key}")
            self._changed(found, one.manifest)
        return True

    def _stored(self, key: tuple[str, str]) -> bool:
        """Return whether an object of this kind and name is stored."""
        return key in self.children and self.children[key].owner == self.service.uid

    def _born(self, manifest: Manifest) -> None:
        if not self.lag:
            invariants.a_number_is_given_again_only_when_nothing_of_its_group_is_left(
                self._before, self.children.values(), self.pods.values(), manifest
            )
        self._store(manifest, self.service.uid, *2 * [manifest["metadata"]["annotations"][keys.HASH]])

    def _store(self, manifest: Manifest, owner: str, hash_: str, owned: str) -> Live:
        number = next(self._numbers)
        live = Live(copy.deepcopy(manifest), f"uid-{number}", number, owner, hash_, owned, changed=self.now.isoformat())
        self.children[live.key] = live
        self.log.append(f"create {live.key}")
        return live

    def _changed(self, found: Live, manifest: Manifest) -> None:
        new = copy.deepcopy(manifest)
        invariants.nothing_is_written_while_it_goes(found)
        invariants.a_stored_revision_never_changes(found, new)
        invariants.nothing_of_a_stateful_set_changes(found, new)
        invariants.the_selector_of_a_deployment_never_changes(found, new)
        found.manifest, found.owner, found.version = new, self.service.uid, next(self._numbers)
        found.hash = found.owned = manifest["metadata"]["annotations"][keys.HASH]
        found.changed = self.now.isoformat()
        self.log.append(f"change {found.key}")

    def _create(self, manifest: Manifest) -> None:
        key = manifest["kind"], manifest["metadata"]["name"]
        if key not in self.children:
            self._store(manifest, self.service.uid, "", "")
        elif not self.children[key].owner:
            self.children[key].owner, self.children[key].version = self.service.uid, next(self._numbers)
        elif self.children[key].owner != self.service.uid:
            self.refusals[key] = Refusal("NameTaken", f"{key[1]} belongs to somebody else")

    def _delete(self, one: Delete) -> None:
        if self._blocked(one.guard):
            return
        self.log.append(f"delete {one.kind} {one.name}")
        if one.kind == "Pod":
            pod = self.pods.get(one.name)
            if pod is not None and pod.uid == one.uid:
                self._terminate(pod, pod.grace if one.grace is None else one.grace)
            return
        found = self.children.get((one.kind, one.name))
        if found is None or found.uid != one.uid:
            return
        invariants.nothing_of_somebody_else_is_deleted(self.service, found)
        del self.children[found.key]
        if found.labels.get(keys.REVISION) in self.unusable:
            return
        roles = self._roles(found.labels[keys.REVISION]) if self.deps.policy.gang_timeout else ()
        invariants.leaders_go_before_their_workers(pods := self.pods.values(), found, roles)
        if not self.lag:
            invariants.a_leader_that_routers_know_is_drained_before_it_stops(pods, found, self.now, roles, self.empty)

    def _roles(self, revision: str) -> tuple[str, ...]:
        """Return the roles of a stored revision."""
        stored = (child for child in self.children.values() if child.key[0] == "ControllerRevision")
        kept = [child.manifest["data"]["workloads"] for child in stored if child.labels[keys.REVISION] == revision]
        return tuple(kept[0]) if kept else ()

    def _recycle(self, one: GroupRecycle) -> None:
        mine = [pod for pod in self.pods.values() if matches(one.selector, pod.labels)]
        if {fingerprint(pod.facts(self.service)) for pod in mine} == one.pods:
            for delete in one.delete:
                self._delete(delete)

    def _patch(self, one: Patch) -> None:
        pod = self.pods.get(one.name)
        if pod is not None and pod.uid == one.uid:
            pod.annotate(one.body["metadata"]["annotations"])
            self.log.append(f"mark {one.name} {pod.draining}")

    def _blocked(self, guard: Guard | NodeLost | None) -> bool:
        return isinstance(guard, Guard) and any(
            matches(guard.selector, pod.labels) and guard.name in ("", pod.name) for pod in self.pods.values()
        )

    # --- controllers --------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Carry out some of the work of controllers and kubelets. Return whether any work was left."""
        self.now += timedelta(seconds=TICK)
        todo = [*self._workloads(), *self._collect(), *self._kubelets()]
        for act in todo:
            if self.chance.random() < 0.6:
                act()
        return bool(todo)

    def _workloads(self) -> Iterable[Callable[[], None]]:
        for one in self.children.values():
            kind, name = one.key
            if "template" not in one.manifest.get("spec", {}):
                continue  # a foreign object, which is ignored
            if kind == "StatefulSet":
                yield from self._stateful_set(one, name)
            elif kind == "Deployment":
                yield from self._deployment(one, name)

    def _stateful_set(self, one: Live, name: str) -> Iterable[Callable[[], None]]:
        spec = one.manifest["spec"]
        start = (spec.get("ordinals") or {}).get("start", 0)
        wanted = {f"{name}-{number}": number for number in range(start, start + spec["replicas"])}
        for pod_name, number in wanted.items():
            if pod_name not in self.pods:
                yield lambda pod_name=pod_name, number=number: self._start(one, pod_name, number, name)
        for pod in self.pods.values():
            if pod.workload == name and pod.name not in wanted and not pod.deleting:
                yield lambda pod=pod: self._terminate(pod, pod.grace)

    def _deployment(self, one: Live, name: str) -> Iterable[Callable[[], None]]:
        spec = one.manifest["spec"]
        newest = f"{name}-{digest(spec['template'])[:6]}"
        mine = [pod for pod in self.pods.values() if pod.workload.rpartition("-")[0] == name and not pod.deleting]
        new = [pod for pod in mine if pod.workload == newest]
        new.sort(key=lambda pod: (not pod.ready, keys.DELETION_COST in pod.notes))
        for _ in range(spec["replicas"] - len(new)):
            yield lambda: self._start(one, f"{newest}-{next(self._numbers)}", None, newest)
        surplus = new[spec["replicas"] :]
        if sum(pod.ready for pod in new) >= spec["replicas"]:
            surplus += [pod for pod in mine if pod.workload != newest]
        for pod in surplus:
            yield lambda pod=pod: self._terminate(pod, pod.grace)

    def _start(self, one: Live, name: str, number: int | None, workload: str) -> None:
        template = one.manifest["spec"]["template"]
        labels = dict(template["metadata"]["labels"])
        if number is not None:
            labels[keys.POD_INDEX] = str(number)
            # While the service is frozen, a lost pod is created again, whatever number of replicas is requested meanwhile.
            held = active_hold(self.deps, self.service.namespace, self.service.name, self.service.annotations) is not None
            invariants.a_group_starts_beside_another_revision_only_within_the_surge(
                self.service, self.children.values(), self.pods.values(), labels, current=not self.lag and not held
            )
        grace = template["spec"].get("terminationGracePeriodSeconds", 30)
        uid, created = f"pod-{next(self._numbers)}", self.now.isoformat()
        self.pods[name] = LivePod(name, uid, labels, workload, one.uid, grace, created=created, scheduled=self.scheduled)

    def _collect(self) -> Iterable[Callable[[], None]]:
        """Yield the deletions by the garbage collector: of pods whose workload was deleted."""
        uids = {one.uid for one in self.children.values()}
        for pod in self.pods.values():
            if pod.workload_uid not in uids and not pod.deleting:
                yield lambda pod=pod: self._terminate(pod, pod.grace)

    def _kubelets(self) -> Iterable[Callable[[], None]]:
        for pod in self.pods.values():
            if pod.deleting:
                yield lambda pod=pod: self._end(pod)
            elif not pod.ready and self.healthy(pod):
                yield lambda pod=pod: pod.serves(self.now)

    def _terminate(self, pod: LivePod, grace: int) -> None:
        if not pod.deleting or grace < pod.grace:
            pod.deleting, pod.grace, pod.left = True, grace, grace

    def _end(self, pod: LivePod) -> None:
        pod.left -= TICK
        polite = pod.rank == 0 and self.chance.random() < 0.5
        if pod.left <= 0 or polite:
            self.pods.pop(pod.name, None)

    def lose(self, name: str) -> None:
        """Delete a pod as a user does, not as the operator."""
        self._terminate(self.pods[name], self.pods[name].grace)

    def restart(self) -> None:
        """Restart the operator: everything that reconciliations kept in memory is lost."""
        self.checks, self.refusals = {}, {}

    # --- whole stories ------------------------------------------------------------------------------------------------

    def edit(self, service: InferenceService | None = None, deps: Deps | None = None) -> None:
        """Change the service or the objects to which it refers, as a user does; None changes nothing. The status stays."""
        if service is not None:
            status, uid = self.service.status, self.service.uid
            self.service = replace(service, status=status, uid=uid, generation=self.service.generation + 1)
        self.deps = deps or self.deps

    def run(self, passes: int) -> None:
        """Run this number of reconciliations, and let the simulated cluster act between them."""
        for _ in range(passes):
            self.carry_out(self.sync())
            self.step()

    def settle(self, passes: int = 400) -> Plan:
        """Run reconciliations until nothing changes any more. Return the last plan, after a check that it is empty."""
        for _ in range(passes):
            plan, before = self.sync(), self.service.status
            self.carry_out(plan)
            idle = not self.step()
            quiet = effects(plan) == () and plan.status == before and plan.requeue_after is None
            if not idle or len({*self._seen}) > 1:
                continue
            if quiet:
                return plan
            if plan.requeue_after:
                self.now += timedelta(seconds=plan.requeue_after)
        raise AssertionError(f"not quiet after {passes} passes: {effects(plan)}\n{self.log[-20:]}")

    def living_pods(self, component: str = "") -> dict[str, str]:
        """Return name and UID of the pods that exist and are not terminating."""
        there = (pod for pod in self.pods.values() if not pod.deleting)
        return {pod.name: pod.uid for pod in there if component in ("", pod.labels[keys.COMPONENT])}

    def condition(self, type_: str) -> Mapping[str, Any]:
        """Return a condition of the service; {} if it does not exist."""
        return next((one for one in self.service.status.get("conditions", ()) if one["type"] == type_), {})
