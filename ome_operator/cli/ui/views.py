"""The data of each section of a page, from the objects that were read from the cluster. Pure functions: they take data and
return data for the templates.

All text passes through `make_all_visible`, which makes control and bidirectional characters visible. The templates escape
markup.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.api import InferenceService, Invalid
from ome_operator.cli.live.board import ClusterState, Key, node_rows
from ome_operator.cli.live.details import Details
from ome_operator.cli.live.traffic import TrafficSamples
from ome_operator.core.freeze.hold import freeze_text
from ome_operator.core.observed.slices import stored_revisions
from ome_operator.core.reasons import READY, SCALED, State
from ome_operator.core.rollout import target
from ome_operator.describe import cluster, demand_plots, history, overview, plots, rollout, scaling, states, top, top_table
from ome_operator.describe.actions import CommandBuilder, of_rank, of_service
from ome_operator.describe.causes import SHOWN, Cause, causes
from ome_operator.describe.top import ServiceWithNumbers
from ome_operator.describe.tree import GroupView, Rank, Tree
from ome_operator.util.visible import make_all_visible, make_visible

Data = dict[str, Any]


class Section(NamedTuple):
    """A part of a page that is replaced as a unit if something in it changes."""

    name: str
    """Name of its template, and its HTML id."""
    data: Data


# --- all services ------------------------------------------------------------------------------------------------------


def services(board: ClusterState, shell: CommandBuilder) -> Iterator[Section]:
    """Yield the sections of the page of all services."""
    rows = overview.sort_rows(overview.row(tree, board.bodies[key]) for key, tree in board.trees.items())
    rows = make_all_visible(rows)
    gpus = sum(row.gpus for row in rows)
    idle = sum(row.idle for row in rows)
    yield from _operator(board.late_operator_sentences)
    yield Section("summary", {"counted": overview.count_states(rows), "services": len(rows), "gpus": gpus, "idle": idle})
    yield Section("waves", {"waves": make_all_visible(overview.active_waves(board.shared, shell))})
    words = {"broken": "act", "waiting": "on others"}
    yield Section("services", {"rows": rows, "words": words, "where": board.namespace, "loads": _loads(board)})
    yield _rights(board)


def _loads(board: ClusterState) -> dict[Key, tuple[str, str]]:
    """Map namespace and name of each service with `status.traffic` to its metrics as text, and to their time."""
    seen = [ServiceWithNumbers(board.bodies[key], tree, (), None) for key, tree in board.trees.items()]
    rows = zip(seen, make_all_visible(top.service_rows(seen, board.at)), strict=True)
    return {
        (row.namespace, row.name): (top_table.summarize_row(row), make_visible(str(heard.body["status"]["traffic"]["time"])))
        for heard, row in rows
        if row.source
    }


def _operator(late: Iterable[str]) -> Iterator[Section]:
    """Yield a section with the sentences `late`, each of which states that no operator works on some services. Yield nothing
    if there are no sentences.
    """
    if sentences := make_all_visible([*late]):
        yield Section("operator", {"late": sentences})


def _rights(board: ClusterState) -> Section:
    return Section("rights", {"denied": make_all_visible(dict(board.denied)), "namespace": make_visible(board.namespace)})


# --- a service ---------------------------------------------------------------------------------------------------------


def service(
    board: ClusterState, key: Key, details: Details | None, traffic: TrafficSamples | None, shell: CommandBuilder
) -> Iterator[Section]:
    """Yield the sections of the page of one service, or one section that states that the service does not exist. `details`
    and `traffic` are None until they have been read.
    """
    if key not in board.trees:
        names = [name for where, name in board.trees if where == key[0]]
        yield Section("missing", make_all_visible({"namespace": key[0], "name": key[1], "names": sorted(names)[:20]}))
        return
    tree, body = board.trees[key], board.bodies[key]
    conditions = (body.get("status") or {}).get("conditions") or ()
    found = causes(tree, conditions, shell)
    safe: Tree = make_all_visible(tree)
    yield from _operator(filter(None, [tree.late]))
    yield Section("head", _head(safe, body, states.service_state(tree, conditions)))
    plotted = _plots(traffic)
    if not plotted.data["why"]:
        yield plotted
    yield from _demand(body, traffic)
    yield Section("left", _left(safe, found, details, shell))
    yield Section("right", _right(board, key, shell))
    if plotted.data["why"]:  # an explanation of missing plots is shown after the data that exists
        yield plotted
    yield _rights(board)


def _plots(traffic: TrafficSamples | None) -> Section:
    if traffic is None:
        return Section("plots", {"why": "reading", "plots": []})
    return Section("plots", {"why": make_visible(traffic.why), "plots": plots.plots([*traffic.samples])})


def _demand(body: Mapping[str, Any], traffic: TrafficSamples | None) -> Iterator[Section]:
    """Yield the section of a service that is scaled with its demand. `traffic` is None until it has been read."""
    found = scaling.view(body, {})
    if drawn := demand_plots.demand_plots(found, [*traffic.scaling] if traffic is not None else []):
        held = f"{found.hold}: {found.meaning}" if found.meaning else ""
        yield Section(
            "demand", make_all_visible({"plots": drawn, "why": " ".join(filter(None, (held, scaling.own_why(found))))})
        )


def _left(safe: Tree, found: list[Cause], details: Details | None, shell: CommandBuilder) -> Data:
    """Return the data of the left column: the causes why the service is not ready, its groups and its events. `details` is
    None until the details have been read.
    """
    shown = [_cause_data(cause, details) for cause in found[:SHOWN]]
    causes_ = {"causes": shown, "more": len(found[SHOWN:]), "serves": safe.ready}
    return {**causes_, "tree": safe, "roles": list(_roles(safe, shell)), **_events(details)}


def _right(board: ClusterState, key: Key, shell: CommandBuilder) -> Data:
    """Return the data of the right column: the rollout, the earlier revisions and the possible actions."""
    tree, body, known = board.trees[key], board.bodies[key], _history(board, key)
    return {
        "steps": make_all_visible(rollout.steps(body, tree)),
        "shares": make_all_visible(list(rollout.shares(tree))),
        "rejected": make_all_visible(list(rollout.rejected_revisions(body))),
        "lines": make_all_visible(known),
        "undo": _undo(tree, known, shell),
        "actions": list(_actions(board, key, shell)),
    }


def _head(tree: Tree, body: Mapping[str, Any], state: State) -> Data:
    metadata = body.get("metadata") or {}
    groups = [group for _, _, group in tree.groups()]
    return {
        "tree": tree,
        "state": state,
        "created": make_visible(metadata.get("creationTimestamp") or ""),
        "gpus": sum(group.gpus for group in groups),
        "ready_gpus": sum(group.gpus for group in groups if group.ready),
        "paused": _paused(body),
        "frozen": make_visible(freeze_text(metadata.get("annotations") or {})),
        "deleting": bool(metadata.get("deletionTimestamp")),
        "since": make_visible(_since(body)),
    }


def _since(body: Mapping[str, Any]) -> str:
    """Return the time since which groups of a ready service are missing, or else the time since which the condition Ready
    has its status; "" if unknown.
    """
    conditions = (body.get("status") or {}).get("conditions") or ()
    told = {said.get("type"): said for said in conditions}
    ready, scaled = told.get(READY) or {}, told.get(SCALED) or {}
    said = scaled if ready.get("status") == "True" and scaled.get("status") == "False" else ready
    return str(said.get("lastTransitionTime") or "")


def _paused(body: Mapping[str, Any]) -> bool:
    return bool(((body.get("spec") or {}).get("rollout") or {}).get("paused"))


def _cause_data(cause: Cause, details: Details | None) -> Data:
    logs = (details.logs if details is not None else None) or {}
    found = next((logs[name] for name in cause.pods if name in logs), None)
    return {
        "cause": make_all_visible(cause),
        "log": make_all_visible(found),
        "reading": details is None and bool(cause.pods),
    }


class RankView(NamedTuple):
    """A rank with its display state, the word for that state, and the command that shows its log."""

    rank: Rank
    state: State
    word: str
    log: str


def _roles(tree: Tree, shell: CommandBuilder) -> Iterator[Data]:
    for part in tree.slices:
        for role in part.roles:
            groups = [
                {
                    "group": group,
                    "state": _of_group(group),
                    "ready": sum(rank.ready for rank in group.ranks),
                    "ranks": [_rank(tree, role.role, group, rank, shell) for rank in group.ranks],
                }
                for group in role.groups
            ]
            yield {"part": part, "role": role, "groups": groups, "router": role.component == keys.ROUTER}


def _of_group(group: GroupView) -> State:
    found = [_of_rank(rank) for rank in group.ranks]
    return min(found, key=lambda state: state.sort_position, default=State.OFF)


def _of_rank(rank: Rank) -> State:
    if rank.draining:
        return State.ROLLING
    return State.READY if rank.ready else states.for_reason(rank.reason)


def _rank(tree: Tree, role: str, group: GroupView, rank: Rank, shell: CommandBuilder) -> RankView:
    word = "draining" if rank.draining else "ready" if rank.ready else rank.reason
    log = of_rank(tree, role, group.group, rank.rank, shell, previous=rank.restarts > 0 and not rank.ready)
    return RankView(rank, _of_rank(rank), word, log if rank.pod else "")


def _parsed(board: ClusterState, key: Key) -> InferenceService | None:
    body = board.bodies[key]
    parsed = InferenceService.parse(body) if body.get("kind", "InferenceService") == "InferenceService" else None
    return None if isinstance(parsed, Invalid) else parsed


class StoredRevision(NamedTuple):
    """A stored revision with the time of its storage."""

    line: history.HistoryEntry
    stored: str
    """Time at which the revision was stored, in RFC 3339; "" if unknown."""


def _history(board: ClusterState, key: Key) -> list[StoredRevision]:
    parsed = _parsed(board, key)
    if parsed is None:
        return []
    known = stored_revisions(board.observed[key].children.values(), parsed.uid)
    aim = target.find_target(parsed, {revision.name: revision.number for revision in known})
    made = {revision.name: board.stored.get(f"{key[0]}/{revision.child.name}", "") for revision in known}
    lines = history.history_entries(known, aim, parsed.status.get("slices") or ())
    return [StoredRevision(line, made[line.revision]) for line in reversed(lines)]


def _undo(tree: Tree, known: list[StoredRevision], shell: CommandBuilder) -> dict[int, str]:
    """Map the number of each stored revision to the command that makes the service use this revision again. The current
    target revision is left out.
    """
    where = "-n", tree.namespace
    return {
        kept.line.number: shell("ome", "undo", tree.name, *where, "--to", str(kept.line.number))
        for kept in known
        if kept.line.revision != tree.revision
    }


def _events(details: Details | None) -> Data:
    if details is None:
        return {"events": (), "denied": "", "reading": True}
    return {"events": make_all_visible(details.events), "denied": make_visible(details.denied), "reading": False}


def _actions(board: ClusterState, key: Key, shell: CommandBuilder) -> Iterator[Any]:
    tree, body, parsed = board.trees[key], board.bodies[key], _parsed(board, key)
    back = ""
    if parsed is not None:
        known = stored_revisions(board.observed[key].children.values(), parsed.uid)
        back = history.undo_target(known, target.find_target(parsed, {revision.name: revision.number for revision in known}))
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    rejected = bool((body.get("status") or {}).get("rejected"))
    yield from make_all_visible(
        list(
            of_service(
                tree, shell, paused=_paused(body), frozen=bool(freeze_text(annotations)), rejected=rejected, back=back
            )
        )
    )


# --- nodes and weights -------------------------------------------------------------------------------------------------


def nodes(board: ClusterState, shell: CommandBuilder) -> Iterator[Section]:
    """Yield the sections of the page of nodes and weights."""
    rows = make_all_visible(node_rows(board))
    yield from _operator(board.late_operator_sentences)
    yield Section(
        "capacity",
        {
            "totals": cluster.totals(rows),
            "rows": rows,
            "denied": make_visible(board.denied.get("nodes", "")),
            "free": cluster.FREE,
        },
    )
    seen = [(tree, board.bodies[key]) for key, tree in board.trees.items()]
    yield Section("waits", {"waits": make_all_visible(list(cluster.external_waits(seen, shell)))})
    yield Section("models", {"models": make_all_visible(cluster.models(board.records)), "records": len(board.records)})
    describe = {row.name: shell("kubectl", "describe", "node", row.name) for row in rows}
    yield Section("nodes", {"rows": rows, "describe": describe})
    yield _rights(board)
