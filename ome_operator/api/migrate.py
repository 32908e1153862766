"""Convert the older form of a service (`predictor`) to the present form, in memory only. Nothing is written to the
cluster.
"""

from typing import Any

from ome_operator import keys
from ome_operator.api.predictor import Predictor, PredictorModel
from ome_operator.api.service import ServiceSpec


def migrate(spec: ServiceSpec) -> ServiceSpec:
    """Return the spec with `predictor` replaced by model, runtime and engine.

    The spec is returned unchanged if it has no predictor or an empty predictor, or if it already has an engine or a model,
    which then take precedence.
    """
    old = spec.predictor
    if old is None or (not old.model_fields_set and not old.pod) or spec.engine is not None or spec.model is not None:
        return spec
    written = spec.dump()
    del written["predictor"]
    written["engine"] = _engine(old)
    if old.model is not None and old.model.base_model is not None:
        written["model"] = _model(old.model, old.model.base_model)
    if old.model is not None and old.model.runtime is not None:
        written["runtime"] = {"name": old.model.runtime, "kind": "ClusterServingRuntime", "apiGroup": keys.GROUP}
    return ServiceSpec.read(written)


def _model(old: PredictorModel, name: str) -> dict[str, Any]:
    """Return the model reference. Its kind stays unset, so that it refers to a BaseModel of the namespace or to a
    ClusterBaseModel, whichever exists.
    """
    weights = old.fine_tuned_weights
    return {"name": name, **({} if weights is None else {"fineTunedWeights": list(weights)})}


def _engine(old: Predictor) -> dict[str, Any]:
    engine = {key: value for key, value in old.dump().items() if key not in ("model", "workerSpec", "containers")}
    runner, others = _runner(old)
    if runner:
        engine["runner"] = runner
    if others:
        engine["containers"] = others
    if old.worker_spec is not None:
        engine["worker"] = old.worker_spec.dump()
    return engine


def _runner(old: Predictor) -> tuple[dict[str, Any], list[Any]]:
    """Return the main container and the other containers.

    The main container is the first container whose name contains "ome". If there is none, it is the first container; if
    there are no containers, it is the container of `predictor.model`.
    """
    containers = list(old.pod.get("containers") or ())
    if not containers:
        own = dict(old.model.container) if old.model is not None else {}
        env = _env(old, [])
        if not own and not env:
            return {}, []
        return {"name": keys.RUNNER, **own, **({"env": [*(own.get("env") or ()), *env]} if env else {})}, []
    main = next((i for i, c in enumerate(containers) if "ome" in str(c.get("name", "")).lower()), 0)
    runner = dict(containers.pop(main))
    env = _env(old, list(old.model.container.get("env") or ()) if old.model is not None else [])
    if env:
        runner["env"] = [*(runner.get("env") or ()), *env]
    return runner, containers


def _env(old: Predictor, env: list[Any]) -> list[Any]:
    """Return the environment variables `env` with STORAGE_URI and PROTOCOL_VERSION of the older form added."""
    if old.model is not None and old.model.storage_uri is not None:
        env = [*env, {"name": "STORAGE_URI", "value": old.model.storage_uri}]
    if old.model is not None and old.model.protocol_version is not None:
        env = [*env, {"name": "PROTOCOL_VERSION", "value": old.model.protocol_version}]
    return env
