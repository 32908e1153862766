"""The check as text for a container that has none of our files: immutable, for it is stored with the revision's templates.

No ConfigMap: the operator would need rights on all of them, and a deleted object would keep pods from starting again
(decisions 32).
"""

import ast
import base64
import json
import zlib
from functools import cache
from importlib import resources

MODULES = ("node", "said", "verdict", "ports", "group", "check")
"""Each imports only what stands before it."""
BOOT = (
    "import base64,json,os,sys,types,zlib\n"
    "for name,text in json.loads(zlib.decompress(base64.b64decode(os.environ['OME_PREFLIGHT_CODE']))):\n"
    "  module=sys.modules[name]=types.ModuleType(name);module.__path__=[]\n"
    "  parent,_,last=name.rpartition('.');parent and setattr(sys.modules[parent],last,module)\n"
    "  exec(compile(text,name,'exec'),module.__dict__)\n"
    "sys.modules[name].main()\n"
)
"""A program for `python3 -c` that runs it."""
LAUNCH = """\
python=`command -v python3 || command -v python`
if [ -n "$python" ]; then
  "$python" -c "$OME_PREFLIGHT_BOOT" "$@"
  code=$?
  [ -s /dev/termination-log ] || echo '{"preflight":1,"failed":"python ended with code '$code'"}' > /dev/termination-log
else
  code=1
  echo '{"preflight":1,"failed":"the image has no python3"}' > /dev/termination-log
fi
[ "$OME_PREFLIGHT_MODE" = Require ] || exit 0
exit $code
"""
"""A program for `sh -c`: an image without Python says so, and holds an engine only in the mode Require."""


@cache
def packed() -> str:
    """All modules, as BOOT reads them."""
    package = __package__ or ""
    texts = [(package.partition(".")[0], ""), (package, "")]
    folder = resources.files(package)
    texts += [(f"{package}.{name}", bare((folder / f"{name}.py").read_text(encoding="utf-8"))) for name in MODULES]
    return base64.b64encode(zlib.compress(json.dumps(texts).encode(), 9)).decode()


def bare(source: str) -> str:
    """A module without its comments and docstrings: a revision has the text up to four times."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)
