"""A newer operator as a program: it renders every engine pod differently."""

from typing import Any

from ome_operator.__main__ import main
from ome_operator.core.render import pod_template, statefulsets

MARK = "RENDERED_BY_A_NEWER_OPERATOR"


def _marked(pod: dict[str, Any], _: pod_template.RankContext) -> dict[str, Any]:
    box, *more = pod["containers"]
    env = [*(box.get("env") or ()), {"name": MARK, "value": "1"}]
    return {**pod, "containers": [{**box, "env": env}, *more]}


if __name__ == "__main__":
    statefulsets.RENDER += 1
    pod_template.FEATURES = (*pod_template.FEATURES, _marked)
    main()
