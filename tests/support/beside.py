"""Fields that have an effect only together with other fields, and those other fields. `test_silent_fields` checks that each
field of a spec changes something, and sets the other fields as well.
"""

from collections.abc import Callable

from tests.support.fields import Body

_SCALABLE = "engine|decoder|router|predictor"
_SCALES = r"(scale|autoscaler)"
_SCALED = {"minReplicas": 1, "maxReplicas": 3}
_BY_CPU = {**_SCALED, "scaleMetric": "cpu"}
_FROM_ZERO = {part: {"minReplicas": 0, "maxReplicas": 3} for part in ("engine", "decoder")}
_TRIGGER = {"type": "prometheus", "metadata": {"query": "load"}}
_KEDA = {**_SCALED, "autoscaler": {"class": "KEDA", "keda": {"triggers": [_TRIGGER]}}}
_PROMETHEUS = {
    "enableKeda": True, "promServerAddress": "http://prom", "customPromQuery": "load", "scalingThreshold": "8",
    "authenticationRef": {"name": "login"},
}  # fmt: skip
_OLD_KEDA = {**_SCALED, "kedaConfig": _PROMETHEUS}
_FOLLOWED = {part: {**_SCALED, "autoscaler": {"class": "Demand"}} for part in ("engine", "decoder")}
_PEAKS = {"schedule": [{"start": "08:00", "end": "09:00", "minimum": {"engine": 2}}]}
_DEMAND = {"demand": {"timeToFirstToken": "3s", "timeBetweenTokens": "40ms", **_PEAKS}}
_BOTH = {"spec": {"decoderConfig": {"runner": {"image": "engine:1"}}}}
_CHEAPEST = {"spec": {"acceleratorSelector": {"policy": "Cheapest"}}}
_PLAIN_FORMAT = {"spec": {"supportedModelFormats": [{"name": "safetensors", "autoSelect": True}]}}
_TENSOR = {"acceleratorConfig": {"gpu": {"tensorParallelismOverride": {"tensorParallelSize": 2}}}}
_SERVED = {"spec": {"endpoint": {"inferenceService": {"name": "svc", "namespace": "team"}, "endpoint": None}}}
BESIDE: tuple[tuple[str, str, Callable[[str], Body]], ...] = (
    ("service", r"(spec)\.scalingPolicy\.wake", lambda part: {"service": {part: _FROM_ZERO}}),
    ("service", r"spec\.(runtime|model)\.revision", lambda part: {"service": {"spec": {part: {"autoSync": False}}}}),
    ("service", rf"spec\.({_SCALABLE})\.{_SCALES}", lambda part: {"service": {"spec": {part: _SCALED}}}),
    ("service", rf"spec\.({_SCALABLE})\.scaleTarget", lambda part: {"service": {"spec": {part: _BY_CPU}}}),
    ("service", rf"spec\.({_SCALABLE})\.autoscaler\.keda", lambda part: {"service": {"spec": {part: _KEDA}}}),
    ("service", rf"spec\.({_SCALABLE})\.kedaConfig", lambda part: {"service": {"spec": {part: _OLD_KEDA}}}),
    ("service", r"spec\.(kedaConfig)", lambda part: {"service": {"spec": {part: _PROMETHEUS, "engine": _SCALED}}}),
    ("runtime", r"spec\.(\w+Config)\.kedaConfig", lambda part: {"runtime": {"spec": {part: _OLD_KEDA}}}),
    ("service", r"spec\.(scalingPolicy)\.demand", lambda part: {
        "service": {"spec": {**_FOLLOWED, part: _DEMAND}}, "runtime": _BOTH,
    }),
    ("runtime", rf"spec\.(\w+Config)\.{_SCALES}", lambda part: {"runtime": {"spec": {part: _SCALED}}}),
    ("runtime", r"spec\.(\w+Config)\.scaleTarget", lambda part: {"runtime": {"spec": {part: _BY_CPU}}}),
    ("runtime", r"spec\.(\w+Config)\.autoscaler\.keda", lambda part: {"runtime": {"spec": {part: _KEDA}}}),
    ("runtime", r"spec\.(workers)\.(?!size)", lambda part: {"runtime": {"spec": {part: {"size": 1}}}}),
    ("runtime", r"spec\.(supportedModelFormats)\[\]\.name", lambda _: {"runtime": _PLAIN_FORMAT}),
    ("runtime", r"spec\.(\w+)\[\]\..*\.pipelineParallel", lambda part: {"runtime": {"spec": {part: [_TENSOR]}}}),
    ("gpu", r"spec\.(cost)\.perHour", lambda part: {"service": _CHEAPEST, "rival": {"spec": {part: {"perHour": 5}}}}),
    ("gpu", r"spec\.(cost)\.perM", lambda part: {"service": _CHEAPEST, "rival": {"spec": {part: {"perMillionTokens": 5}}}}),
    ("gpu", r"spec\.(capabilities)\.memoryB", lambda part: {
        "service": {"spec": {"acceleratorSelector": {"policy": "MostCapable"}}},
        "rival": {"spec": {part: {"memoryGB": 80, "memoryBandwidthGBps": 100}}},
    }),
    ("gpu", r"(spec)\.resources", lambda part: {"gpu": {part: {"model": "h", "vendor": "v"}}}),
    ("lora", r"(spec)", lambda part: {"service": {part: {"model": {"fineTunedWeights": ["lora"]}}}}),
    ("short", r"(spec)\.source\.storageUri", lambda part: {"short": {part: {"source": {"huggingface": None}}}}),
    ("benchmark", r"(spec)\.endpoint\.inferenceService", lambda _: {"benchmark": _SERVED}),
)  # fmt: skip
"""(kind of the object, pattern of a field's path, function). The function returns the bodies with the other fields that have
to be set for the field to have an effect; its argument is the first group of the pattern.
"""
