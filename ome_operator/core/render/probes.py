"""What the pods of a known engine get so that a dead process ends its pod, and a slow start is not taken for death."""

from ome_operator.core.observed.objects import Manifest
from ome_operator.engines.servers import probes, server, trusts_dummy


def watched(pod: Manifest, port: int | None) -> Manifest:
    """The pod spec with a PID 1 that is not the engine, and with probes on the `port` where rank 0 serves (None above it).

    What the user says stays. An engine is many processes: as PID 1 it would have to collect those that others leave behind,
    and SGLang as PID 1 leaves the container running for minutes when it dies during start-up, and then it ends with code 0.
    """
    main = pod["containers"][0]
    found = server(main)
    if found is None:
        return pod
    out = pod if "shareProcessNamespace" in pod or pod.get("hostPID") else {**pod, "shareProcessNamespace": True}
    if port is None:
        return out
    missing = {name: probe for name, probe in probes(found, port).items() if name not in main}
    return {**out, "containers": [{**main, **missing}, *pod["containers"][1:]]}


def advice(worker: Manifest) -> tuple[str, ...]:
    """What is wrong with the probes of the pods above rank 0, given their spec."""
    main = worker["containers"][0]
    found = server(main)
    if found is None or not trusts_dummy(found, main):
        return ()
    return (
        f"a probe of the workers asks {found.health}, which ranks above 0 answer with 200 whatever happens: move it from "
        "runner to leader.runner",
    )
