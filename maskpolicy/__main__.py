"""Entry point of `maskpolicy` and `python -m maskpolicy`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line."""
    _leave_working_directory_out()
    if sys.stdout is None:  # it was closed
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - as above; open to the end
    from maskpolicy.core.errors import INTERRUPTED, INTERRUPTION

    try:
        from maskpolicy.core import hardware

        hardware.collect_garbage_rarely()
        from maskpolicy.app.commands import app

        app(prog_name="maskpolicy")
    except KeyboardInterrupt:  # during the imports; a command reports it itself
        sys.stderr.write(f"{INTERRUPTION}\n")
        sys.exit(INTERRUPTED)


def _leave_working_directory_out() -> None:
    """Do not import modules only because they are in the working directory.

    `python -m` puts that folder first on sys.path, and so do the processes that this one starts:
    in a folder from elsewhere, a file called numpy.py would run. A checkout of maskpolicy that is
    not installed stays importable.
    """
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    try:
        here = os.getcwd()  # noqa: PTH109 - pathlib is not imported yet, and could be a file there
    except FileNotFoundError:  # the folder was removed
        here = ""
    if not sys.flags.safe_path and sys.path[:1] == [here] and here != home:
        del sys.path[0]
    os.environ.setdefault("PYTHONSAFEPATH", "1")


if __name__ == "__main__":
    main()
