"""Fields that nothing acts on are named, each with where it stands."""

from ome_operator.core.resolve.ignored_fields import idle
from tests.support import parts


def test_what_has_no_effect_is_told() -> None:
    engine = {
        "topologyKey": "rack", "topologySpread": "Preferred", "topologySpreadKey": "zone", "containerConcurrency": 4,
        "lifecycle": {"readyPolicy": "None", "minReadySeconds": 3, "hangTimeout": "5s"},
    }  # fmt: skip
    written = parts.service(engine=engine, router={"canaryTrafficPercent": 5}, deploymentMode="MultiNode")
    runtime = parts.runtime(engineConfig={"topologyKey": "rack"}, decoderConfig={"topologyKey": "rack"})
    assert idle(written, runtime) == (
        "spec.deploymentMode has no effect",
        "spec.engine.containerConcurrency has no effect",
        "spec.engine.topologyKey has no effect",
        "spec.engine.topologySpread has no effect",
        "spec.engine.topologySpreadKey has no effect",
        "spec.engine.lifecycle.minReadySeconds has no effect",
        "spec.engine.lifecycle.readyPolicy has no effect",
        "runtime rt: spec.engineConfig.topologyKey has no effect",
        "spec.router.canaryTrafficPercent has no effect",
    )


def test_what_says_nothing_is_not_told() -> None:
    written = parts.service(engine={"containerConcurrency": 0, "minReplicas": 2, "lifecycle": {"hangTimeout": "5s"}})
    assert idle(written, None) == ()
