"""Tools that come along: each is a factory, bound to a workspace or to what it reads from.

    tools = [read_file("."), search_files("."), terminal(".")]

Give several the same `Workspace` to close further paths to them.
"""

from backstory.agent.toolbox.confine import CLOSED as CLOSED
from backstory.agent.toolbox.files import list_files as list_files
from backstory.agent.toolbox.files import read_file as read_file
from backstory.agent.toolbox.notes import notes as notes
from backstory.agent.toolbox.offloaded import read_result as read_result
from backstory.agent.toolbox.search import search_files as search_files
from backstory.agent.toolbox.terminal import terminal as terminal
from backstory.agent.toolbox.workspace import Workspace as Workspace

__all__ = [
    "CLOSED",
    "Workspace",
    "list_files",
    "notes",
    "read_file",
    "read_result",
    "search_files",
    "terminal",
]
