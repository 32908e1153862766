"""Give advice about settings that keep the operator or Prometheus from reading the load of a service (docs/telemetry.md).

The operator adds no argument to a revision, because a changed revision restarts its engines.
"""

from collections.abc import Iterator, Mapping

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render import registry_sidecar
from ome_operator.engines import routers, series
from ome_operator.engines.servers import server
from ome_operator.engines.telemetry import engine_series

SHOWN = "`ome top` and status.traffic"


def advice(
    engines: Mapping[str, Manifest], router: Manifest | None, annotations: Mapping[str, str], *, hears: bool, scrapes: bool
) -> Iterator[str]:
    """Yield a sentence for each setting that keeps the load of a service from being read. `engines` maps components to the
    containers of their engines, `router` is the Deployment of the router, and `annotations` are the annotations of the
    service. `hears` states whether routers have registries, and `scrapes` whether Prometheus scrapes engines.

    There is no advice about router programs that the operator does not know, because users have chosen them on purpose.
    """
    has_registry = hears and router is not None and _has_registry(router)
    if hears and router is not None and not has_registry and _may_have_one(router):
        own = router["spec"]["template"]["metadata"].get("annotations") or {}
        yield _without_registry(registry_sidecar.OFF in (annotations.get(keys.REGISTRY), own.get(keys.REGISTRY)))
    for component, container in engines.items():
        if flag := series.missing_flag(container):
            lacks = [f"{SHOWN} do not contain the tokens and latencies of this engine"] if has_registry else []
            lacks += ["metrics.engines.podMonitor of the chart lets Prometheus scrape an empty page"] if scrapes else []
            if lacks:
                yield (
                    f"{component}: the engine serves no metrics without {flag}, so {', and '.join(lacks)}: add the flag to "
                    "the args, which creates a new revision"
                )
        elif has_registry and (engine := server(container)) is not None and engine.name not in engine_series():
            known = " and ".join(sorted(engine_series()))
            yield (
                f"{component}: {SHOWN} do not contain the requests of {engine.name} engines, because the registry reads "
                f"only the engines {known}; a group that is removed therefore waits a fixed time for its requests "
                "(docs/telemetry.md)"
            )


def _has_registry(router: Manifest) -> bool:
    boxes = router["spec"]["template"]["spec"].get("initContainers") or ()
    return any(box["name"] == registry_sidecar.NAME for box in boxes)


def _may_have_one(router: Manifest) -> bool:
    """Return whether a Deployment runs a router program that is known to the operator. The operator adds a registry to such
    a router if the arguments of the router permit this.
    """
    container = router["spec"]["template"]["spec"]["containers"][0]
    return bool(routers.of_image(container)) or any(map(routers.is_program, routers.parts(container)))


def _without_registry(is_off: bool) -> str:
    lacks = f"so {SHOWN} have no numbers of this service, and a group that is removed waits a fixed time for its requests"
    if is_off:
        return (
            f'the annotation {keys.REGISTRY}: "{registry_sidecar.OFF}" disables the registry, {lacks}: remove the annotation'
        )
    return (
        f"the router has no registry, {lacks}: write --service-discovery or --pd-disaggregation into the arguments of the "
        "router, and remove --worker-urls, --prefill and --decode, so that the router discovers its workers "
        "(docs/telemetry.md)"
    )
