"""The operator of the future, as a program: it renders every pod of an engine in another way."""

from typing import Any

from ome_operator.__main__ import main
from ome_operator.core.render import pod_template, statefulsets

MARK = "RENDERED_BY_A_NEWER_OPERATOR"


def _marked(render: Any) -> Any:
    def rendered(context: pod_template.Context, composed: Any) -> Any:
        template = render(context, composed)
        box, *more = template["spec"]["containers"]
        env = [*(box.get("env") or ()), {"name": MARK, "value": "1"}]
        return {**template, "spec": {**template["spec"], "containers": [{**box, "env": env}, *more]}}

    return rendered


if __name__ == "__main__":
    statefulsets.RENDER += 1
    pod_template.leader, pod_template.worker = _marked(pod_template.leader), _marked(pod_template.worker)
    main()
