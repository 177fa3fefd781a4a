"""The command line: an edge. It reads files, calls the library and prints; it decides nothing."""

from backstory.cli.main import main

__all__ = ["main"]
