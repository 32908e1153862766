"""The entry point of the command line."""

import os
import sys
from pathlib import Path

from ome_operator.cli.app import app
from ome_operator.errors import UserError
from ome_operator.machinery import garbage_collection
from ome_operator.util import stack
from ome_operator.util.visible import make_visible


def main() -> None:
    """Run the command. If an error can be corrected by the user, print the error on stderr as one sentence without a
    traceback, and end the process with the exit code of the error.
    """
    stack.widen()
    garbage_collection.collect_rarely()  # before the imports, because garbage collection took 1/12 of the start
    garbage_collection.collect_nothing_at_exit()
    try:
        app(prog_name="kubectl ome" if Path(sys.argv[0]).name == "kubectl-ome" else None)
    except UserError as error:
        print(make_visible(str(error), keep="\n\t"), file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `ome … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()
