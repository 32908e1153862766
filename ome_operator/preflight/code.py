"""The check as text for containers that have no files of this project. The text is immutable, because it is stored with the
templates of a revision.

A ConfigMap is not used: the operator would need permissions on all ConfigMaps, and a deleted object would prevent pods from
starting again (decisions 32).
"""

import ast
import base64
import json
import zlib
from functools import cache
from importlib import resources

MODULES = ("node", "messages", "findings", "ports", "group", "check")
"""Modules of the check in the order of their imports: each module imports only earlier modules."""
BOOT = (
    "import base64,json,os,sys,types,zlib\n"
    "for name,text in json.loads(zlib.decompress(base64.b64decode(os.environ['OME_PREFLIGHT_CODE']))):\n"
    "  module=sys.modules[name]=types.ModuleType(name);module.__path__=[]\n"
    "  parent,_,last=name.rpartition('.');parent and setattr(sys.modules[parent],last,module)\n"
    "  exec(compile(text,name,'exec'),module.__dict__)\n"
    "sys.modules[name].main()\n"
)
"""A program for `python3 -c` that unpacks and runs the check."""
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
"""A program for `sh -c`. It reports an image without Python, which blocks the engine only in the mode Require."""


@cache
def packed(package: str = __package__ or "", modules: tuple[str, ...] = MODULES) -> str:
    """Return the modules of a package as one text, packed in the form that BOOT unpacks."""
    texts = [(package.partition(".")[0], ""), (package, "")]
    folder = resources.files(package)
    texts += [
        (f"{package}.{name}", without_docstrings((folder / f"{name}.py").read_text(encoding="utf-8"))) for name in modules
    ]
    return base64.b64encode(zlib.compress(json.dumps(texts).encode(), 9)).decode()


def without_docstrings(source: str) -> str:
    """Return a module without comments and docstrings, because a revision contains the text up to four times."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [
                statement
                for statement in body
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
            ]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)
