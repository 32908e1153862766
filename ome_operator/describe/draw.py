"""Draws trees and previews as rich text for a terminal. The console decides whether to use colors."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree as Drawn

from ome_operator.core.catalog.node_models import duration
from ome_operator.describe.changes import ADDED, CHANGED, REMOVED, Change
from ome_operator.describe.text import combine_names, numbers
from ome_operator.describe.tree import WHEN_TRUE, GroupView, Rank, RoleView, Tree
from ome_operator.describe.words import MISSING, OUTDATED
from ome_operator.quantity import moment
from ome_operator.util.wording import count

if TYPE_CHECKING:  # load the reconciliation, which `ome status` does not need
    from ome_operator.describe.diagnosis import ServiceTrouble
    from ome_operator.describe.preview import Preview

MANY = 4
"""Minimum number of consecutive ready groups that are drawn as one line."""
_COLOURS = {ADDED: "green", CHANGED: "yellow", REMOVED: "red"}


def service(tree: Tree, *, every: bool = False) -> Drawn:
    """Return the tree of a service for a terminal. If `every` is true, the tree contains every rank. Otherwise it contains
    only the ranks that are not ready, have restarted or are draining.
    """
    head = Text.assemble(_mark(tree.ready), " ", (tree.name, "bold"), (f"  in {tree.namespace}", "dim"))
    drawn = Drawn(head, guide_style="dim")
    reasons = {rank.reason for _, _, group in tree.groups() for rank in group.ranks}
    if tree.ready:
        drawn.add(Text(tree.url))
    lacks = (tree.missing.reason, tree.missing.message) if tree.missing is not None else ("", "")
    reason, message = lacks if tree.ready else (tree.reason, tree.message)
    if reason:  # the messages of pods are drawn at the ranks below
        drawn.add(Text.assemble((reason, "yellow"), "" if reason in reasons else f": {message}"))
    drawn.add(Text(f"model {tree.model or '-'}, runtime {tree.runtime or '-'}"))
    if tree.pin:
        drawn.add(_pinned(tree.pin, tree.name, tree.namespace))
    above = f"{tree.message}; {lacks[1]}"
    for condition in tree.conditions:
        if condition.message not in above:
            name = f"{condition.type} " if condition.type != condition.reason else ""
            drawn.add(Text.assemble((name, "yellow"), f"{condition.reason}: {condition.message}"))
    for item in tree.slices:
        state = f"  {item.state}" if len(tree.slices) > 1 else ""
        branch = drawn.add(Text.assemble("revision ", (item.revision, "bold"), (state, "dim")))
        for role in item.roles:
            _role(branch, role, max(len(role.role) for role in item.roles), every, above)
    return drawn


def _role(branch: Drawn, role: RoleView, width: int, every: bool, said_above: str) -> None:
    whole = role.ready >= role.wanted and role.ready_pods == role.pods
    messages = [] if role.component == "router" else [f"{role.ready}/{count(role.wanted, 'group')}"]
    messages.append(f"{role.ready_pods}/{count(role.pods, 'pod')}")
    if role.gpus:
        messages.append(count(role.gpus, "GPU"))
    below = branch.add(Text.assemble(_mark(whole), " ", f"{role.role:{width}}  ", ", ".join(messages)))
    if role.why not in said_above:
        below.add(Text(role.why, style="yellow"))
    if role.component == "router":
        _ranks(below, role.groups[0].ranks, every, "pod")
        return
    for groups in [[item] for item in role.groups] if every else _runs(role.groups):
        _groups(below, groups, every)


def _runs(groups: Sequence[GroupView]) -> Iterator[list[GroupView]]:
    """Yield the groups in their order. At least MANY consecutive ready groups are yielded as one list; every other group is
    yielded as a list with this group only.
    """
    run: list[GroupView] = []
    for item in (*groups, None):
        if (
            item is not None
            and item.ready
            and not item.note
            and not any(rank.restarts or rank.draining for rank in item.ranks)
        ):
            run.append(item)
            continue
        yield from [run] if len(run) >= MANY else [[each] for each in run]
        run = []
        if item is not None:
            yield [item]


def _groups(below: Drawn, groups: Sequence[GroupView], every: bool) -> None:
    first = groups[0]
    ranks = [rank for item in groups for rank in item.ranks]
    ready = sum(rank.ready for rank in ranks)
    name = f"group {first.group}" if len(groups) == 1 else f"groups {numbers(item.group for item in groups)}"
    many = count(len(ranks), "rank") if ready == len(ranks) else f"{ready}/{count(len(ranks), 'rank')}"
    nodes = combine_names(rank.node for rank in ranks if rank.node)
    text = Text.assemble(_mark(all(item.ready for item in groups)), f" {name}  {many}", f" on {nodes}" if nodes else "")
    if len(groups) == 1 and first.note:
        text.append(f"  {first.note}", "yellow")
    if every and len(groups) == 1 and first.start:
        text.append(f"  {first.start}", "dim")
    _ranks(below.add(text), [rank for rank in ranks if len(groups) == 1], every, "rank")


def _ranks(below: Drawn, ranks: Sequence[Rank], every: bool, noun: str) -> None:
    """Add lines for ranks below a group. `noun` is what the lines call a rank: "rank", or "pod" for a router. If `every` is
    true, each rank has a line; otherwise only ranks that are not ready, have restarted or are draining have lines, and ranks
    in the same state share a line.
    """
    if every:
        width = max((len(str(rank.rank)) for rank in ranks), default=0)
        for rank in ranks:
            name = f"{noun} {rank.rank:>{width}}  {rank.pod or '-'}" + (f" on {rank.node}" if rank.node else "")
            below.add(Text.assemble(_mark(rank.ready), f" {name}", _how([rank])))
        return
    alike: dict[tuple[str, str, int, bool], list[Rank]] = {}
    for rank in ranks:
        if not rank.ready or rank.restarts or rank.draining:
            alike.setdefault((rank.reason, rank.message, rank.restarts, rank.draining), []).append(rank)
    for found in alike.values():
        name = f"{noun}{'s' if len(found) > 1 else ''} {numbers(item.rank for item in found)}"
        below.add(Text.assemble(_mark(found[0].ready), f" {name}", _how(found)))


def _how(ranks: Sequence[Rank]) -> Text:
    """Return a text that describes the state which several ranks have in common."""
    item, text = ranks[0], Text()
    if item.restarts:
        text.append(f"  {count(item.restarts, 'restart')}{' each' if len(ranks) > 1 else ''}", "yellow")
    if item.draining:
        text.append("  draining", "yellow")
    if not item.ready:
        text.append(f"  {_reason(item.reason)}", "red" if item.message else "yellow")
        text.append(f": {item.message}" if item.message else "")
    return text


def _reason(reason: str) -> str:
    return "not created yet" if reason == MISSING else reason


def _mark(ready: bool) -> Text:
    return Text("✓", style="green") if ready else Text("✗", style="red")


def preview(found: "Preview", brief: bool) -> Iterator[RenderableType]:
    """Yield the text that `ome diff` prints. If `brief` is true, the changes of the individual objects of a service are left
    out.
    """
    for item in found.objects:
        mark = ADDED if item.new else CHANGED
        where = f" in {item.object.namespace}" if item.object.namespace else ""
        yield Text(f"{mark} {item.object.kind} {item.object.name}{where}", style=_COLOURS[mark])
        yield from (Padding(Text(edit), (0, 0, 0, 4), expand=False) for edit in item.edits)
    if found.waves:
        yield Text()
        yield from (Text(f"{sentence}.") for sentence in found.waves)
    for service in found.services:
        yield Text()
        yield Text(f"{service.service.namespace}/{service.service.name}", style="bold")
        yield _indented(Text(service.sentence))
        if not brief:
            yield from _changes(service.changes)
    if found.objects and not found.services:
        yield Text("No service changes.")


def _changes(found: Sequence[Change]) -> Iterator[RenderableType]:
    renamed = [item for item in found if item.mark == CHANGED and not item.lines]
    for item in found:
        if item not in renamed:
            yield Text(f"  {item.mark} {item.title}", style=_COLOURS[item.mark])
            yield from (Text(f"    {line}", style=_COLOURS.get(line[:1], "dim")) for line in item.lines)
    if renamed:
        message = "renamed for the new revision, otherwise unchanged: " + ", ".join(
            f"{item.kind} {item.before[0]}" for item in renamed
        )
        yield _indented(Text(f"{CHANGED} {message}", style=_COLOURS[CHANGED]))


def draw_trouble(service_trouble: "ServiceTrouble", now: datetime) -> Iterator[RenderableType]:
    """Yield the text that `ome explain SERVICE` prints."""
    state = "is Ready" if service_trouble.ready else f"is not Ready: {service_trouble.reason}"
    if service_trouble.ready and service_trouble.missing:
        state += f", and groups are missing: {service_trouble.missing}"
    yield Text.assemble(
        _mark(service_trouble.ready),
        " ",
        (service_trouble.name, "bold"),
        f" in namespace {service_trouble.namespace} {state}",
    )
    if not service_trouble.ready and (
        service_trouble.reason == OUTDATED or not (service_trouble.findings or service_trouble.pods)
    ):
        yield _indented(Text(service_trouble.message))
    if service_trouble.late:
        yield _indented(Text(service_trouble.late, style="yellow"))
    yield from _next(service_trouble.next)
    if service_trouble.pin:
        yield _indented(_pinned(service_trouble.pin, service_trouble.name, service_trouble.namespace))
    for item in service_trouble.findings:
        ago = _ago(item.since, now)
        status = "True" if item.condition in WHEN_TRUE else "not True"  # the age of the reason is unknown
        yield Text()
        yield Text.assemble((item.condition, "bold"), f"  {item.reason}", (f"  {status} for {ago}" if ago else "", "dim"))
        yield _indented(Text(item.message))
        yield from _next(item.next)
    for stuck in service_trouble.pods:
        yield Text()
        yield Text.assemble((stuck.role, "bold"), f"  {count(len(stuck.pods), 'pod')} {_reason(stuck.reason)}")
        reasons = stuck.lacks or ((stuck.message,) if stuck.message else ())
        yield from (_indented(Text(line)) for line in reasons)
        if names := combine_names((name for name in stuck.pods if name), shown=4):
            yield _indented(Text(names, style="dim"))
        yield from _next(stuck.next)
    if service_trouble.back:
        yield Text()
        yield from _next(service_trouble.back)
    if service_trouble.events:
        yield Text()
        yield Text("events", style="bold")
    for event in service_trouble.events:
        times = f" ({event.count} times)" if event.count > 1 else ""
        ago = f"{duration((now - event.when).total_seconds())} ago"
        yield _indented(Text.assemble((f"{ago:>10}  ", "dim"), f"{event.reason} of {event.about}{times}: {event.message}"))


def _pinned(revision: str, name: str, namespace: str) -> Text:
    message = f"{revision} by spec.rollout.revision: edits wait (ome undo {name} -n {namespace} --off ends that)"
    return Text.assemble(("pinned to ", "yellow"), message)


def _next(step: str) -> Iterator[RenderableType]:
    if step:
        yield _indented(Text.assemble(("→ ", "green"), step))


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2), expand=False)


def _ago(since: str, now: datetime) -> str:
    when = moment(since, now)
    return duration((now - when).total_seconds()) if when is not None else ""
