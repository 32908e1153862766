"""Decide which revision and which facts of a model are used, from the reports of the agents of several nodes.

An agent is trusted with its own node only, while all nodes share the revision and the facts of a model. A report of one
agent about them is therefore used for other nodes only if it is confirmed (docs/tenancy.md). Pure functions.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ome_operator import keys, quantity
from ome_operator.core.observed.objects import Manifest, Node, NodeHolding
from ome_operator.core.reasons import NODES_AGREE, Reason
from ome_operator.core.status import conditions as cond
from ome_operator.core.termination import replace_unprintable
from ome_operator.core.weights.mount import AnyModel, split_weights_uri
from ome_operator.core.weights.node_selection import UnreadableSelection, selects_node

LONE_WAIT = timedelta(minutes=5)
"""Time after which the report of a single node is used although no second node has confirmed the report, provided that no
other node reports anything else. Agents look up the revision of a new model within a minute, so other nodes have
reported by then. If the record of the only agent is at least this old, the operator assumes that no other agent is about
to start."""
NAMED = 5
"""Maximum number of nodes that a message names."""
_COMMIT = re.compile(r"hf://[^@]+@([0-9a-f]{40})|oci://.+@(sha256:[0-9a-f]{64})|(local)://.*")
"""Matches URIs that contain their revision: a commit or a digest. The revision of a `local://` URI is the word `local`."""


class Pin(NamedTuple):
    """The revision of a model that all nodes have to have."""

    uri: str
    revision: str


class ReportingNodes(NamedTuple):
    """The nodes whose reports about a model can be used for all nodes."""

    nodes: frozenset[str]
    """Nodes with an agent that the model selects, and whose kubelets report."""
    trusted: frozenset[str] = frozenset()
    """Nodes that an administrator named (`agent.pinFrom`)."""
    others: bool = False
    """Whether the model also selects nodes whose agents do not report now but may report later. These are the nodes whose
    agents have a record although their kubelets do not report. While the record of any agent is younger than `LONE_WAIT`,
    as in a new cluster, nodes without a record are counted, too."""

    def confirmed_report(self, words: Mapping[str, str], waited: timedelta) -> str | None:
        """Return the report that is used, or None if no report is confirmed yet. `words` maps nodes to their reports (a
        revision, or facts as JSON). `waited` is the time for which the report of a single node has waited for
        confirmation.

        If the model selects nodes that an administrator named, the report of one of these nodes suffices, and other nodes
        are ignored. Otherwise two nodes have to agree, and the most frequent report is used. The report of a single node is
        used if no other node can confirm it, or if no other node has reported anything else for `LONE_WAIT`.
        """
        named = self.trusted & self.nodes
        speakers = named or self.nodes
        votes = Counter(word for node, word in words.items() if node in speakers)
        if not votes:
            return None
        best = min(votes, key=lambda word: (-votes[word], word))
        enough = bool(named) or votes[best] > 1 or (len(speakers) == 1 and not self.others)
        return best if enough or (len(votes) == 1 and waited >= LONE_WAIT) else None


class AgreedReports(NamedTuple):
    """The reports that are used, and the condition about reports that are not used."""

    pin: Pin | None
    facts: Mapping[str, Any] | None
    condition: cond.Condition | None
    """The condition NodesAgree; None if nothing is wrong."""

    @property
    def unpinned_reason(self) -> str:
        """The reason why no revision is used although nodes report a revision; "" if a revision is used, or if no node
        reports a revision.
        """
        return self.condition.message if self.condition is not None and self.pin is None else ""


def find_reporting_nodes(
    model: AnyModel,
    nodes: Mapping[str, Node],
    agent_since: Callable[[str], str | None],
    trusted: AbstractSet[str],
    now: datetime,
) -> ReportingNodes:
    """Return the nodes whose reports about a model can be used for all nodes. `agent_since` returns the time at which the
    agent of a node made its record (NodeModels), in RFC 3339; None if the node has no record.
    """

    def selected(node: Node) -> bool:
        try:
            return selects_node(model, node.name, node.labels)
        except UnreadableSelection:
            return False

    chosen = [node for node in nodes.values() if selected(node)]
    since = {node.name: made for node in chosen if (made := agent_since(node.name)) is not None}
    speakers = frozenset(node.name for node in chosen if node.alive and node.name in since)
    young = any(_young(since[name], now) for name in speakers)
    others = len(since) > len(speakers) or (young and any(node.alive and node.name not in since for node in chosen))
    return ReportingNodes(speakers, frozenset(trusted), others)


def _young(made: str, now: datetime) -> bool:
    when = quantity.parse_instant(made)
    return when is None or now - when < LONE_WAIT


def agree_on_reports(
    uri: str, before: Mapping[str, Any], holdings: Mapping[str, NodeHolding], speakers: ReportingNodes, now: datetime
) -> AgreedReports:
    """Return the revision and the facts of a model that are used on all nodes. `before` is the stored status of the model.
    `holdings` maps nodes to what their agents report about the model, and `speakers` decides which report is used.

    A revision is used until the URI changes. Facts are used until other facts are confirmed or the URI changes.
    """
    since = _alone_since(before) or now
    waited = now - since
    revisions = {node: held.revision for node, held in holdings.items() if held.uri == uri and held.revision}
    stored = before.get("weights") or {}
    same_uri = stored.get("uri", uri) == uri
    revision = stored.get("revision") if stored.get("uri") == uri else None
    revision = revision or _named_by(uri, revisions) or speakers.confirmed_report(revisions, waited)
    facts = {node: _word(held.facts) for node, held in holdings.items() if held.facts and _complete(held, uri, revision)}
    fact = speakers.confirmed_report(facts, waited)
    kept = before.get("facts") if same_uri else None
    condition = _about("revision", revisions, revision, since) or _about(
        "facts", facts, fact or (_word(kept) if kept else None), since
    )
    return AgreedReports(Pin(uri, revision) if revision else None, json.loads(fact) if fact else kept, condition)


def wait_left(status: Mapping[str, Any], now: datetime) -> float | None:
    """Return the seconds until the unconfirmed report of a single node is used; None if no such report waits for
    confirmation.
    """
    since = _alone_since(status)
    left = 0.0 if since is None else (since + LONE_WAIT - now).total_seconds()
    return left if left > 0 else None


def _alone_since(status: Mapping[str, Any]) -> datetime | None:
    """Return since when the report of a single node has waited for confirmation, according to the stored condition
    NodesAgree; None if no report waits.
    """
    for condition in status.get("conditions") or ():
        if condition.get("type") == NODES_AGREE and condition.get("status") == "Unknown":
            return quantity.parse_instant(condition.get("lastTransitionTime"))
    return None


def _complete(node_holding: NodeHolding, uri: str, revision: str | None) -> bool:
    return node_holding.state == keys.MODEL_READY and (node_holding.uri, node_holding.revision) == (uri, revision)


def _named_by(uri: str, revisions: Mapping[str, str]) -> str | None:
    """Return the revision that the URI itself contains, such as a commit, once a node has reported this revision. Otherwise
    return None.
    """
    named = [match for part in split_weights_uri(uri) if part and (match := _COMMIT.fullmatch(part))]
    if len(named) != sum(map(bool, split_weights_uri(uri))):
        return None
    revision = "+".join(match[1] or match[2] or match[3] for match in named)
    return revision if revision in revisions.values() else None


def _word(facts: Mapping[str, Any] | Manifest | None) -> str:
    return json.dumps(facts, sort_keys=True)


def _about(topic: str, words: Mapping[str, str], counts: str | None, since: datetime) -> cond.Condition | None:
    """Return the condition about nodes whose reports differ. `words` maps nodes to their reports, and `topic` is "revision"
    or "facts". `counts` is the report that is used; None if no report is confirmed yet. Return None if no node reports
    anything other than `counts`.
    """
    holders = {word: sorted(node for node, other in words.items() if other == word) for word in set(words.values())}
    others = {word: nodes for word, nodes in holders.items() if word != counts}
    if not others:
        return None
    reports = "; ".join(_report(topic, *each) for each in sorted(others.items(), key=lambda item: item[1])[:NAMED])
    if counts is not None:
        shown = f"revision {_short(counts)}" if topic == "revision" else "the facts in the status"
        return cond.Condition(NODES_AGREE, False, Reason.NODES_DISAGREE, f"{reports}; all nodes use {shown}")
    if len(holders) > 1 or any(len(nodes) > 1 for nodes in holders.values()):
        message = (
            f"{reports}; no report is used until two nodes agree. To decide now, name a revision in the URI of the model, "
            "or name the nodes that decide in agent.pinFrom of the chart"
        )
        return cond.Condition(NODES_AGREE, False, Reason.NODES_DISAGREE, message)
    until = (since + LONE_WAIT).strftime("%H:%M:%S")
    message = (
        f"{reports}; this report is used when a second node confirms it, or at {until} UTC if no node reports anything else"
    )
    return cond.Condition(NODES_AGREE, None, Reason.UNCONFIRMED, message)


def _report(topic: str, word: str, nodes: Iterable[str]) -> str:
    names = [*nodes]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    verb = "reports" if len(names) == 1 else "report"
    subject = f"{'node' if len(names) == 1 else 'nodes'} {', '.join(names[:NAMED])}{more}"
    return f"{subject} {verb} {f'revision {_short(word)}' if topic == 'revision' else 'other facts than other nodes'}"


def _short(revision: str) -> str:
    return replace_unprintable(revision.removeprefix("sha256:"))[:40]
