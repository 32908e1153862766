"""The program of the pods as text, because their containers have no files of this project. The text is stored with the
templates of a revision, as the text of the preflight check is (decisions 32).
"""

from ome_operator.preflight import code

MODULES = ("archive", "pod")
"""Modules of the program in the order of their imports."""
BOOT = code.BOOT.replace("OME_PREFLIGHT_CODE", "OME_COMPILE_CACHE_CODE")
"""A program for `python3 -c` that unpacks and runs the program."""
LAUNCH = """\
trap 'kill $! 2>/dev/null; exit 0' TERM INT
python=`command -v python3 || command -v python`
if [ -n "$python" ]; then
  [ "$1" = load ] || OME_COMPILE_CACHE_CODE=`cat "$2"`
  export OME_COMPILE_CACHE_CODE
  "$python" -I -c "$OME_COMPILE_CACHE_BOOT" "$1" &
  wait $!
else
  echo 'no compile cache: the image has no python3'
fi
while [ "$1" = seal ]; do sleep 3600 & wait $!; done
exit 0
"""
"""A program for `sh -c`. Its arguments are `load` or `seal`, and the file in which the init container leaves the text for
the sidecar, because a revision has space for few copies. It ends with code 0 whatever happens. With `seal` it does not end
before it is stopped, because the kubelet would start the sidecar again."""
AGAIN = """\
mkdir "$1/.started" 2>/dev/null && exit 0
rm -f "$1/.hardware"
mv "$1/cache" "$1/.old" && mkdir "$1/cache"
rm -rf "$1/.old"
exit 0
"""
"""A program for `sh -c` that the kubelet runs whenever the engine's container starts. Its argument is the volume of the pod.
If the container was started before, the program empties the cache, because init containers do not run again: the cache may
be the reason why the engine ended, or contain locks of the engine that ended. Without the digest of the hardware, the
sidecar reports nothing to the agent, so the start counts as one that did not serve."""


def packed() -> str:
    """Return all modules as one text, packed in the form that BOOT unpacks."""
    return code.packed(__package__ or "", MODULES)
