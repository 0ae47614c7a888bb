"""Entry point of `maskpolicy` and `python -m maskpolicy`."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from maskpolicy.cli import app

    app(prog_name="maskpolicy")


if __name__ == "__main__":
    main()
