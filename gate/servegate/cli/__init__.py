"""The command line. Nothing here imports more than click until a command needs it."""

from servegate.cli.main import main

__all__ = ["main"]
