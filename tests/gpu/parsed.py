"""Print, as JSON, the arguments that SGLang's own parser returns for a command on this machine. Nothing is loaded."""

import json
import sys


def main(words: list[str]) -> None:
    """The last line printed is the answer."""
    from sglang.srt.server_args import prepare_server_args

    found = prepare_server_args(words)
    found.resolve_once()
    print(json.dumps(found.resolved_dict(), default=str))


if __name__ == "__main__":
    main(sys.argv[1:])
