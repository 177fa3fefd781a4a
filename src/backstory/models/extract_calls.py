"""Which tools a message plainly asks for: "read pyproject.toml", "list the files", "search for TODO", 读取 a.txt.

A request's own tools decide what can be called; their names and parameters say what they do. Whoever asks for nothing
that a tool does gets no call.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backstory.compaction.words import sentences
from backstory.models.request import Tool

# A file's name, or a path; `3.11` and `e.g.` are none.
_PATH = re.compile(
    r"(?<![\w/.@:-])(?:~/|(?:\.{1,2}/)+|/)?(?:[\w-]+/)*(?:\.?[\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,9}|Makefile|LICENSE|Dockerfile|README)"
    r"(?![\w/@-])",
    re.ASCII,
)
_NO_PATH = re.compile(r"^(?:e\.g|i\.e|etc|vs|https?|www\..*|node\.js|next\.js|vue\.js)$", re.IGNORECASE)
_FOLDER = re.compile(
    r"(?:\b(?:in|under|of|inside)|在|目录)\s*(?:the )?[`\"']?((?:[\w.-]+/)*[\w.-]+/?)[`\"']?"
    r"(?: (?:folder|directory)|/|\s*(?:目录|文件夹))",
    re.ASCII | re.IGNORECASE,
)
_QUOTED = re.compile(r"[`\"“'‘「]([^`\"”'’」\n]{1,200})[`\"”'’」]")
_CLAUSE = re.compile(
    r"\n+|[;；。，、]|,\s+|(?<=[!?！？])|\.\s+|\s+(?:and then|then|and also|and|after that)\s+"
    r"|然后再?|接着|最后|以及|并且|再(?=[读列搜查看打运执])|和(?=[读列搜查])|并(?=[读列搜查告])",
    re.IGNORECASE,
)
_ONE_BY_ONE = re.compile(
    r"\bthen\b|\bafter that\b|\bone (?:by|after) (?:one|another)\b|\bstep by step\b|然后|接着|依次|逐个|再",
    re.IGNORECASE,
)

_READ = re.compile(
    r"\b(?:read|open|cat|view|load|look (?:at|into|in)|show(?: me)?|check|print|display|see|what(?:'s| is) in"
    r"|what does)\b|读取|读一?下|读|打开|查看|看一?下|看看|看",
    re.IGNORECASE,
)
_LIST = re.compile(
    r"\b(?:list|show)(?: me)?(?: all| the| our| my| of| which)* (?:files|directory|folder|contents?|workspace)"
    r"|\b(?:what|which) files\b|^\s*ls\b|列出.{0,8}(?:文件|目录)|列一?下.{0,8}(?:文件|目录)|文件列表|哪些文件",
    re.IGNORECASE,
)
_SEARCH = re.compile(
    r"^\W*(?:(?:please|now|then|and|next|finally|can you|could you|also)\s+)*(?:search|grep|look for|find(?! out))"
    r"(?: (?:the|all|our|my|in|through|files?|code|project|workspace|notes|web|memory|history))*(?: for)?"
    r"\s+(?P<what>.+)|(?:搜索|搜|查找|寻找|找)(?:一下|下)?\s*"
    r"(?:(?:所有|全部|整个)?(?:文件|代码|项目|目录)(?:里面|里|中)?的?)?\s*(?P<han>.+)",
    re.IGNORECASE,
)
_WHERE = re.compile(
    r"\s+(?:in|within|across|inside|from)\s+(?:the |all |our |my )*"
    r"(?:files?|code|project|workspace|repo(?:sitory)?|notes|web|memory|[\w./-]+)\s*[.?!]*$",
    re.IGNORECASE,
)
_RUN = re.compile(
    r"\b(?:run|execute|type)(?: the command)?:?\s+(?P<what>.+)|(?:运行|执行)(?:命令)?[:：]?\s*(?P<han>.+)",
    re.IGNORECASE,
)

_KINDS: dict[str, tuple[str, ...]] = {
    "read": ("read_file", "read", "open_file", "cat", "view_file", "load_file", "get_file"),
    "list": ("list_files", "list_dir", "list_directory", "list", "ls", "glob"),
    "search": ("search_files", "grep", "search", "find_in_files", "search_code", "find"),
    "run": ("terminal", "shell", "run_command", "exec", "bash", "execute"),
}
_FIELDS: dict[str, tuple[str, ...]] = {
    "read": ("path", "file", "filename", "file_path", "filepath", "name"),
    "list": ("path", "directory", "dir", "folder", "root"),
    "search": ("query", "pattern", "q", "text", "regex", "keyword", "term"),
    "run": ("command", "cmd", "args", "argv"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One call that was asked for. `kind` is ``read``, ``list``, ``search``, ``run`` or ``named``."""

    tool: str
    arguments: Mapping[str, Any]
    kind: str

    @property
    def text(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False)

    def is_made_by(self, name: str, arguments: str) -> bool:
        """Whether a call of that name and these arguments, however spelled, is this one."""
        if name != self.tool:
            return False
        try:
            return bool(json.loads(arguments) == dict(self.arguments))
        except ValueError:
            return False


def asked(words: str, tools: Sequence[Tool]) -> list[Ask]:
    """The calls that a message asks for, in its order, each once."""
    found: list[Ask] = []
    for sentence in sentences(words):
        known = {tool.name for kind in _KINDS if (tool := _tool(kind, tools)) is not None}
        others = [tool for tool in tools if tool.name not in known]
        # A tool that reads, lists, searches or runs is called for what it does: a sentence may ask for that twice.
        found += _named(sentence, others) or _plain(sentence, tools) or _named(sentence, tools)
    return list({(ask.tool, ask.text): ask for ask in found}.values())


def _plain(sentence: str, tools: Sequence[Tool]) -> list[Ask]:
    found: list[Ask] = []
    kind = ""
    for clause in _clauses(sentence):
        paths = paths_in(clause)
        kind = _kind(clause, kind, paths)
        if kind == "list" and _LIST.search(clause):
            folder = _FOLDER.search(clause)
            found += _ask("list", folder.group(1).rstrip("/") if folder else None, tools)
        elif kind == "search":
            found += _ask("search", _what(_SEARCH, clause), tools)
        elif kind == "run":
            found += _ask("run", _what(_RUN, clause), tools)
        elif kind == "read":
            for path in paths:
                found += _ask("read", path, tools)
    return found


def _clauses(words: str) -> list[str]:
    return [clause for piece in _CLAUSE.split(words) if piece and (clause := piece.strip())]


def _kind(clause: str, before: str, paths: list[str]) -> str:
    """What a clause asks for; a file's name alone goes on with the reading of the clause before."""
    if _LIST.search(clause):
        return "list"
    if _what(_SEARCH, clause) and not (paths and _READ.match(clause)):
        return "search"
    what = _what(_RUN, clause)
    if what and (_QUOTED.search(clause) or re.match(r"[a-z]+ ?-|(?:ls|git|cat|pwd|wc|grep)\b", what)):
        return "run"
    if paths and (_READ.search(clause) or before == "read"):
        return "read"
    return ""


def one_by_one(words: str) -> bool:
    """Whether the calls are wanted one after the other."""
    return bool(_ONE_BY_ONE.search(words))


def paths_in(text: str) -> list[str]:
    """The files that a text names, in order, each once."""
    found = [match.group() for match in _PATH.finditer(text)]
    return list(dict.fromkeys(path for path in found if not _NO_PATH.match(path)))


def reads(path: str, tools: Sequence[Tool]) -> list[Ask]:
    """The call that reads a file, where there is a tool for it."""
    return _ask("read", path, tools)


def rest(words: str) -> str:
    """A message without the clauses that ask for tools: what is still to be answered afterwards."""
    kept: list[str] = []
    for sentence in sentences(words):
        kind = ""
        for clause in _clauses(sentence):
            kind = _kind(clause, kind, paths_in(clause))
            if not kind:
                kept.append(clause)
    return "\n".join(kept)


_IMPERATIVE = re.compile(
    r"^\W*(?:(?:please|now|then|and|next|finally|also)\s+|请|帮我|麻烦你?|再)*", re.IGNORECASE
)


def is_wish(sentence: str) -> bool:
    """Whether a sentence only tells to do something with files: a wish is no fact."""
    for clause in _clauses(sentence):
        bare = clause[_IMPERATIVE.match(clause).end() :]  # type: ignore[union-attr]  # it matches anything
        if (_READ.match(bare) and paths_in(bare)) or any(p.match(bare) for p in (_LIST, _SEARCH, _RUN)):
            return True
    return False


def _what(pattern: re.Pattern[str], clause: str) -> str:
    """The object of a search or of a run: what is quoted, else what follows the verb."""
    match = pattern.search(clause)
    if match is None:
        return ""
    quoted = _QUOTED.search(clause, match.start())
    if quoted:
        return quoted.group(1).strip()
    what = match.group("what") or match.group("han") or ""
    return _WHERE.sub("", what).strip(" .?!。！？")


def _ask(kind: str, value: str | None, tools: Sequence[Tool]) -> list[Ask]:
    tool = _tool(kind, tools)
    if tool is None:
        return []
    fields = [field for field in _FIELDS[kind] if field in tool.properties]
    needed = [name for name in tool.required if name not in fields[:1]]
    field = fields[0] if fields else (needed.pop(0) if needed else "")
    if not field and value is not None and not tool.properties:
        field = _FIELDS[kind][0]
    if any(name not in (field,) for name in needed):
        return []  # it wants something that nobody said
    if value is None:
        arguments: dict[str, Any] = {field: "."} if field in tool.required else {}
    else:
        schema = tool.properties.get(field)
        many = isinstance(schema, Mapping) and schema.get("type") == "array"
        arguments = {field: shlex.split(value) if many else value} if field else {}
    return [Ask(tool=tool.name, arguments=arguments, kind=kind)]


def _tool(kind: str, tools: Sequence[Tool]) -> Tool | None:
    """The tool of a kind: by its whole name, then by a word of it."""
    by_name = {tool.name.lower().rsplit("__", 1)[-1]: tool for tool in tools}
    for name in _KINDS[kind]:
        if name in by_name:
            return by_name[name]
    words = {word for name in _KINDS[kind] for word in name.split("_")} - {
        "file",
        "files",
        "in",
        "code",
        "get",
        "command",
    }
    for name, tool in by_name.items():
        if words & set(re.split(r"[_\W]+", name)):
            return tool
    return None


def _named(clause: str, tools: Sequence[Tool]) -> list[Ask]:
    """A call of a tool by its very name: ``use add with a=1, b=2``, ``call weather "Oslo"``."""
    for tool in tools:
        match = re.search(rf"(?<![\w.]){re.escape(tool.name)}(?![\w.])", clause)
        spelled = tool.name.replace("_", " ")
        plain = (
            match is None
            and "_" in tool.name
            and re.search(rf"\b{re.escape(spelled)}\b", clause, re.IGNORECASE)
        )
        if not match and not plain:
            continue
        if (
            match
            and "_" not in tool.name
            and not re.search(r"\b(?:use|call|run|invoke)\b|[(`]|调用|使用|用", clause)
        ):
            continue  # the name is a word like any other here
        arguments = _arguments(clause, tool, tool.name if match else spelled)
        if arguments is not None:
            return [Ask(tool=tool.name, arguments=arguments, kind="named")]
    return []


def _arguments(clause: str, tool: Tool, name: str) -> dict[str, Any] | None:
    """Arguments by name (`a=1`), else what follows the tool's name for its first parameters; `None`: one is missing."""
    found: dict[str, Any] = {}
    tail = clause[clause.lower().find(name.lower()) + len(name) :]
    for field, schema in tool.properties.items():
        match = re.search(rf"\b{re.escape(field)}\s*(?:=|:|is)\s*(\"[^\"]*\"|'[^']*'|[^\s,，)]+)", tail)
        if match:
            found[field] = _typed(match.group(1).strip("\"'"), schema)
            tail = tail[: match.start()] + tail[match.end() :]
    missing = [field for field in tool.required if field not in found]
    values = _QUOTED.findall(tail) or paths_in(tail) or re.findall(r"-?\d+(?:\.\d+)?", tail)
    if not values:
        plain = re.sub(r"^\W*(?:(?:with|on|for|of|in|to|about|tool)\s+)*", "", tail).strip(" .?!。()`")
        values = [plain] if plain and not found else []
    for field, value in zip(missing, values, strict=False):
        found[field] = _typed(value, tool.properties.get(field))
    return found if all(field in found for field in tool.required) else None


def _typed(value: str, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind in ("integer", "number"):
        try:
            return int(value) if kind == "integer" else float(value)
        except ValueError:
            return value
    return value.lower() == "true" if kind == "boolean" else [value] if kind == "array" else value
