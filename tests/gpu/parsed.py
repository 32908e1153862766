"""Print, as JSON, the arguments that SGLang's own parser returns for a command on this machine. Nothing is loaded."""

import json
import sys


def main(words: list[str]) -> None:
    """Print the parsed arguments. They are on the last line of the output."""
    from sglang.srt.server_args import prepare_server_args

    found = prepare_server_args(words)
    found.resolve_once()
    print(json.dumps(found.resolved_dict(), default=str))


if __name__ == "__main__":
    main(sys.argv[1:])
