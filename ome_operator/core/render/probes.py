"""Add a shared process namespace, environment variables and probes to the pods of known engines. With these additions, a
container ends soon after its engine has died, and an engine that starts slowly is not killed.
"""

from ome_operator.core.observed.objects import Manifest
from ome_operator.engines.servers import probes, probes_dummy_page, server, with_variables


def with_probes(pod: Manifest, port: int | None) -> Manifest:
    """Return the pod spec with the engine's environment variables, with probes, and with a shared process namespace, so that
    the engine is not PID 1. The probes request `port`, the port on which rank 0 serves HTTP.

    `port` is None for ranks above 0, which get no probes. Values from the user are kept. An engine consists of many
    processes, and as PID 1 it would have to reap orphans. If SGLang is PID 1 and dies during start-up, its container runs
    on for minutes and then exits with code 0.
    """
    main = pod["containers"][0]
    engine = server(main)
    if engine is None:
        return pod
    out = pod if "shareProcessNamespace" in pod or pod.get("hostPID") else {**pod, "shareProcessNamespace": True}
    main = with_variables(engine, main)
    if port is not None:
        main |= {name: probe for name, probe in probes(engine, port).items() if name not in main}
    return {**out, "containers": [main, *pod["containers"][1:]]}


def advice(worker: Manifest) -> tuple[str, ...]:
    """Return sentences about unsuitable probes in `worker`, the pod spec of the ranks above 0."""
    main = worker["containers"][0]
    engine = server(main)
    if engine is None or not probes_dummy_page(engine, main):
        return ()
    return (
        f"a probe of the workers requests {engine.health}, but ranks above 0 always respond to this path with 200, so the "
        "probe finds no failure: move the probe from runner to leader.runner",
    )
