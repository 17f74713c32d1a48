"""The exceptions that users see as a single line."""


class PahsError(Exception):
    """Something the user can mend: a file, an option, a disk.

    The message is one line that names the file or option and says what to do. The command line prints it
    and exits with 2; everything else that is raised is a defect and keeps its traceback.
    """


class Stopped(PahsError):  # noqa: N818 - not a mistake of anybody
    """The job was asked to stop; it has removed everything that it had written."""
