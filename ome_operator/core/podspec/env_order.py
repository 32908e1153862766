"""Sort the environment variables of containers so that their references can be expanded.

The kubelet expands `$(NAME)` in the value of a variable only if NAME stands before the variable. When layers are merged, a
variable of the lower layer keeps its position. So a value from the upper layer may refer to a variable that the upper layer
adds at the end of the list.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ome_operator.core.observed.objects import Manifest

_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")


def in_order(pod: Manifest) -> Manifest:
    """Return the pod spec in which each variable stands after the variables to which it refers. The order is otherwise
    unchanged.
    """
    changed = {}
    for part in ("initContainers", "containers"):
        boxes = pod.get(part)
        if isinstance(boxes, list) and any(_wrong(box) for box in boxes):
            changed[part] = [{**box, "env": order_variables(box["env"])} if _wrong(box) else box for box in boxes]
    return {**pod, **changed}


def _wrong(box: Any) -> bool:
    env = box.get("env") if isinstance(box, Mapping) else None
    return isinstance(env, list) and order_variables(env) != env


def order_variables(env: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the variables in an order in which every reference from one variable to another can be expanded. If variables
    refer to each other in a circle, no such order exists, and some of their references cannot be expanded.
    """
    place = {str(item.get("name")): at for at, item in enumerate(env)}
    wanted = [[place[name] for name in _references(item) if name in place] for item in env]
    out, begun = dict[int, None](), set[int]()
    stack = list(reversed(range(len(env))))
    while stack:
        at = stack[-1]
        before = [one for one in wanted[at] if one not in begun and one != at] if at not in begun else []
        begun.add(at)
        if before:
            stack += reversed(before)
        else:
            out.setdefault(stack.pop())
    return [env[at] for at in out]


def _references(item: Mapping[str, Any]) -> list[str]:
    value = item.get("value")
    return _REFERENCE.findall(value.replace("$$", "")) if isinstance(value, str) else []
