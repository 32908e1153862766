"""What the command line refuses or cannot do, as a sentence for the person at the terminal."""


class UserError(Exception):
    """One sentence that says what is wrong and what to do. The command line prints it and exits with `exit_code`."""

    exit_code = 1


class Unanswered(UserError):
    """The question itself could not be answered, where 1 is one of the answers."""

    exit_code = 2
