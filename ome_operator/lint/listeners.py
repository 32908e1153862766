"""Rules about ports of a pod: whether several listeners would share a port."""

from collections.abc import Iterator
from typing import NamedTuple

from ome_operator.engines.servers import known_servers
from ome_operator.lint import locations
from ome_operator.lint.finding import Location, Rule, RuleHit, Severity, rule
from ome_operator.lint.launch import ROUTERS, Launch, number, read_launch
from ome_operator.lint.subject import Manifest, Role, Subject, items

_EVERYWHERE = frozenset({"", "0.0.0.0", "::", "[::]"})
"""Addresses with which a program listens on all addresses of the pod."""
_BOOTSTRAP, _RENDEZVOUS = "--disaggregation-bootstrap-port", "--dist-init-addr"


class Listener(NamedTuple):
    """A port of a pod on which a program listens."""

    name: str
    """The flag that sets the port."""
    port: int
    host: str = ""
    """The address on which the program listens, exactly as its command line states it."""


@rule(
    "port-twice",
    Severity.ERROR,
    "Two listeners of a pod use the same port",
    ignored="The second listener exits with `address already in use`, and the group is recycled.",
    evidence="A port can be bound once in a pod, because its containers share a network. Rank 0 of SGLang listens on "
    "--port, on --nccl-port or the port of --dist-init-addr, and in prefill on --disaggregation-bootstrap-port.",
)
def port_twice(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        # Ranks above 0 of SGLang serve a health page on the same port as rank 0. Those of vLLM do not listen.
        others = role.others if role.others is not None and role.others.engine == "sglang" else None
        for pod, start in ((role.leader, role.launch), (role.worker, others)):
            if pod is None or start is None:
                continue
            ports: dict[int, Listener] = {}
            for each in _listening(role, start, leads=start is role.launch):
                other = ports.setdefault(each.port, each)
                if other != each and _collide(other, each):
                    message = f"{other.name} and {each.name} are both port {each.port}"
                    yield RuleHit(_place(role, start, each), message, "use another port for one of the two listeners")
            for box in _others(pod):
                yield from _beside(subject, role, start, ports, box)


def _place(role: Role, start: Launch, listener: Listener) -> Location:
    given = start.last_argument(listener.name)
    return locations.argument(role, given) if given is not None else locations.arguments(role)


def _beside(subject: Subject, role: Role, start: Launch, ports: dict[int, Listener], box: Manifest) -> Iterator[RuleHit]:
    """Yield a violation for each port that the container `box` uses although the main container listens on it. `ports`
    contains the listeners of the main container by port.
    """
    for declared in _declared(box):
        if (taken := ports.get(declared)) is not None:
            message = f"container {box.get('name')} declares port {declared}, on which {start.engine} listens ({taken.name})"
            yield RuleHit(locations.component_location(role), message, "use another port for one of the two")
    other = read_launch(box, role.annotations, subject.versions).launch
    for each in _listening(role, other, leads=False) if other is not None else ():
        taken = ports.get(each.port)
        if taken is not None and each.port not in _declared(box) and _collide(taken, each):
            message = (
                f"{each.name} of {other.engine if other else ''} in container {box.get('name')} is {each.port}, on which "
                f"{start.engine} listens ({taken.name})"
            )
            yield RuleHit(locations.component_location(role), message, "use another port for one of the two")


def _collide(one: Listener, other: Listener) -> bool:
    """Return whether two listeners on the same port certainly collide: their addresses are the same, or one of them listens
    on all addresses.
    """
    return one.host == other.host or one.host in _EVERYWHERE or other.host in _EVERYWHERE


def _listening(role: Role, start: Launch, *, leads: bool) -> Iterator[Listener]:
    """Yield the ports on which a program listens, as far as they are known. `leads` states whether it is rank 0 of its
    group. The defaults of the program's version are used.
    """
    default = next((each.port for each in known_servers() if each.name == start.engine), 0)
    port = number(start.raw_text("--port") or str(default))
    if port:
        yield Listener("--port", port, start.raw_text("--host"))
    metrics = number(start.raw_text("--prometheus-port")) if start.engine in ROUTERS else None
    if metrics and start.last_argument("--prometheus-port") is not None:
        yield Listener("--prometheus-port", metrics, start.raw_text("--prometheus-host"))
    if start.engine != "sglang" or not leads:
        return
    for name in ("--nccl-port", _BOOTSTRAP):
        listens = (
            start.raw_text("--disaggregation-mode") == "prefill"
            if name == _BOOTSTRAP
            else start.last_argument(name) is not None
        )
        if listens and (port := number(start.raw_text(name))):
            yield Listener(name, port)
    grpc = (
        not start.is_on("--grpc-mode")
        and not start.is_on("--smg-grpc-mode")
        and start.last_argument("--grpc-port") is not None
    )
    if grpc and (port := number(start.raw_text("--grpc-port"))):
        yield Listener("--grpc-port", port)
    address = start.raw_text(_RENDEZVOUS)
    # The host may refer to variables whose values only the kubelet knows; the port is known if it is a number.
    if role.size > 1 and start.last_argument(_RENDEZVOUS) is not None and (port := number(address.rpartition(":")[2])):
        yield Listener(_RENDEZVOUS, port)


@rule(
    "port-declared-twice",
    Severity.WARNING,
    "Two containers beside the engine declare the same port",
    ignored="If both containers listen on the port, the second exits with `address already in use` and is restarted "
    "repeatedly.",
    evidence="A port can be bound once in a pod, because its containers share a network. A container does not necessarily "
    "listen on the ports that it declares.",
)
def port_declared_twice(subject: Subject) -> Iterator[RuleHit]:
    for role in subject.roles:
        for pod in role.pods:
            seen: dict[int, str] = {}
            for box in _others(pod):
                for port in dict.fromkeys(_declared(box)):
                    name = str(box.get("name"))
                    if (other := seen.setdefault(port, name)) != name:
                        message = f"{role.title}: containers {other} and {name} both declare port {port}"
                        yield RuleHit(locations.component_location(role), message, "use another port for one of the two")


def _declared(box: Manifest) -> tuple[int, ...]:
    """Return the TCP ports that a container declares."""
    ports = (port for port in items(box, "ports") if str(port.get("protocol", "TCP")) == "TCP")
    return tuple(port["containerPort"] for port in ports if isinstance(port.get("containerPort"), int))


def _others(pod: Manifest) -> Iterator[Manifest]:
    """Yield the containers of a pod that run beside the main container."""
    yield from items(pod["spec"], "containers")[1:]
    yield from (box for box in items(pod["spec"], "initContainers") if box.get("restartPolicy") == "Always")


RULES: tuple[Rule, ...] = (port_twice, port_declared_twice)
