"""`python -m tests.support.names` prints names that are new or no longer exist; with `--write` it writes the lists again."""

import sys

from tests.support.names.lists import differences, write

if sys.argv[1:] == ["--write"]:
    write()
else:
    for line in differences():
        print(line)
