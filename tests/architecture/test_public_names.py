"""The public surface of `backstory` is a decision: this list is where it is taken."""

import ast
import json
import subprocess
import sys
from importlib import import_module

import backstory
from tests.architecture.tree import SRC, modules

PUBLIC_NAMES = [
    "Backstory",
    "Calibration",
    "Compaction",
    "Converted",
    "Fitted",
    "Ledger",
    "Loss",
    "Message",
    "Origin",
    "Problem",
    "Repair",
    "Repaired",
    "Reply",
    "SyncBackstory",
    "Target",
    "Tool",
    "__version__",
    "check",
    "convert",
    "errors",
    "fit",
    "open",
    "open_sync",
    "repair",
    "tool",
]


def test_public_names_are_those_intended():
    assert sorted(backstory.__all__) == PUBLIC_NAMES
    assert sorted(dir(backstory)) == PUBLIC_NAMES
    assert sorted({*backstory._EXPORTS, "__version__"}) == PUBLIC_NAMES


def test_every_name_is_what_its_module_defines():
    for name, home in backstory._EXPORTS.items():
        assert getattr(backstory, name) is getattr(import_module(home), name)


def test_type_checkers_see_the_same_names():
    """The TYPE_CHECKING block and the lazy table say the same: name for name, module for module."""
    (tree,) = (module.syntax for module in modules() if module.name == "backstory")
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert seen == backstory._EXPORTS


def test_the_package_is_marked_as_typed():
    assert (SRC / "backstory" / "py.typed").is_file()


def test_import_loads_nothing_and_names_load_no_extra():
    """In a fresh interpreter: the bare import loads no other module of ours, all the names load no optional one."""
    program = (
        "import sys, json, backstory\n"
        "bare = [m for m in sys.modules if m.startswith('backstory.')]\n"
        "for name in backstory.__all__: getattr(backstory, name)\n"
        "extras = {'openai', 'anthropic', 'google.genai', 'matplotlib', 'numpy', 'requests', 'httpx', 'pydantic'}\n"
        "print(json.dumps([bare, sorted(extras & set(sys.modules))]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], []]
