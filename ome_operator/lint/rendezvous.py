"""Rules about the rendezvous of the ranks of a group in SGLang."""

import re
from collections.abc import Iterator

from ome_operator.lint.division import engines, locate_flag
from ome_operator.lint.finding import Rule, RuleHit, Severity, rule
from ome_operator.lint.subject import Subject

_OWN = re.compile(r"(127\.0\.0\.1|localhost|0\.0\.0\.0|\[?::1\]?|\$[({]?(POD_IP|POD_NAME|HOSTNAME|HOST_IP)[)}]?)(:\d+)?")
"""Pattern of the addresses with which each pod reaches only itself."""

_PORTLESS = re.compile(r"(?:\$\((?:LWS_\w+|POD_NAME|POD_IP|HOSTNAME|NAMESPACE)\)|[\w.-])+")
"""Pattern of addresses without a port. The addresses may contain references to variables, whose values contain no port."""


@rule(
    "address-own",
    Severity.ERROR,
    "Ranks above 0 connect to their own address instead of the address of rank 0",
    ignored="The ranks wait until a time-out ends them, and the group is recycled repeatedly.",
    evidence="The ranks of SGLang meet at --dist-init-addr, which is 127.0.0.1 by default; "
    "https://github.com/sgl-project/sglang/issues/836",
)
def address_own(subject: Subject) -> Iterator[RuleHit]:
    for role, start, _ in engines(subject):
        others = role.others
        if (
            others is None
            or others.last_argument("--nnodes") is None
            or others.engine != start.engine
            or others.is_on("--use-ray")
        ):
            continue
        address = others.raw_text("--dist-init-addr")
        if not address or _OWN.fullmatch(address):
            message = f"--dist-init-addr is {address or 'not given'} in a group of {role.size} pods"
            remedy = "write --dist-init-addr=$(LWS_LEADER_ADDRESS):5757"
            yield RuleHit(locate_flag(role, start, "--dist-init-addr", "--nnodes"), message, remedy)


@rule(
    "rank-fixed",
    Severity.ERROR,
    "Several pods of a group have the same rank",
    ignored="The ranks never connect to each other, because one rank exists twice and another rank is missing.",
    evidence="SGLang requires each of the --nnodes ranks exactly once; "
    "https://github.com/modelplaneai/modelplane/issues/377",
)
def rank_fixed(subject: Subject) -> Iterator[RuleHit]:
    for role, start, _ in engines(subject):
        others = role.others
        if (
            others is None
            or others.last_argument("--nnodes") is None
            or others.engine != start.engine
            or others.is_on("--use-ray")
        ):
            continue
        rank = others.whole_number("--node-rank")
        if rank is not None and (rank == 0 or role.size > 2):
            message = f"all pods but rank 0 have --node-rank {rank} in a group of {role.size} pods"
            yield RuleHit(
                locate_flag(role, others, "--node-rank", "--nnodes"), message, "write --node-rank=$(LWS_WORKER_INDEX)"
            )


@rule(
    "address-portless",
    Severity.ERROR,
    "The address of rank 0 has no port",
    ignored="The engine exits while it starts, because it needs an address of the form HOST:PORT.",
    evidence="SGLang 0.5.23 splits --dist-init-addr into host and port.",
)
def address_portless(subject: Subject) -> Iterator[RuleHit]:
    for role, start, _ in engines(subject):
        address = start.raw_text("--dist-init-addr")
        if start.last_argument("--dist-init-addr") is not None and _PORTLESS.fullmatch(address):
            message = f"--dist-init-addr is {address}, which has no port"
            yield RuleHit(locate_flag(role, start, "--dist-init-addr"), message, f"write --dist-init-addr={address}:5757")


@rule(
    "rank-of-name",
    Severity.WARNING,
    "The rank is derived from the name of the pod",
    ignored="The rank is wrong for leaders: the last number in the name of a leader is 0 in every group, and only in the "
    "name of a worker it is the rank. Names of pods may change with the version of the operator.",
    evidence="docs/migrate.md describes the names of pods. A LeaderWorkerSet names its pods in another way.",
)
def rank_of_name(subject: Subject) -> Iterator[RuleHit]:
    for role, start, _ in engines(subject):
        text = start.raw_text("--node-rank")
        if re.search(r"\b(POD_NAME|HOSTNAME)\b", text):
            message = f"--node-rank is {text}"
            yield RuleHit(locate_flag(role, start, "--node-rank"), message, "write --node-rank=$(LWS_WORKER_INDEX)")


RULES: tuple[Rule, ...] = (address_own, address_portless, rank_fixed, rank_of_name)
