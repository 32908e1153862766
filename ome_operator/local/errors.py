"""What the local cluster refuses or cannot do, as a sentence for the person at the terminal."""


class LocalError(Exception):
    """One sentence that says what is wrong and what to do. The command line prints it and exits with 1."""
