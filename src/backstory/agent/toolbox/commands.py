"""What a read-only command may look like: which programs, which of their options, and how many paths.

A table and a parser; nothing is run here and no path is looked up. An option that is not in the table is refused, so
that a program's next version brings no surprise. Left out are options that write (`sort -o`), that run something
(`find -exec`), that read paths from elsewhere (`--files0-from`), and that never end (`tail -f`).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from backstory.errors import ToolError

MAX_COMMAND = 4_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """What a program may be given.

    `flags` and `valued` are the letters of short options without and with a value; `long` and `long_valued` are long
    ones. `number`: ``-20`` is allowed. `first_words`: so many words stand before the paths. `most`: paths, at most.
    `least`: paths at least, since without any the program would read its standard input. `folders`: a path may be one.
    """

    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    number: bool = False
    first_words: int = 0
    least: int = 1
    most: int = 1_000
    folders: bool = False


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


RULES: dict[str, Rule] = {
    "ls": Rule(
        flags="aAlhtrS1Fdsinogkmpx",
        long=_set("all almost-all human-readable reverse size directory inode classify full-time"),
        long_valued=_set("sort time time-style"),
        least=0,
        folders=True,
    ),
    "cat": Rule(
        flags="nbsAETv", long=_set("number number-nonblank squeeze-blank show-all show-ends show-tabs")
    ),
    "head": Rule(
        flags="qv", valued="nc", long=_set("quiet verbose"), long_valued=_set("lines bytes"), number=True
    ),
    "tail": Rule(
        flags="qv", valued="nc", long=_set("quiet verbose"), long_valued=_set("lines bytes"), number=True
    ),
    "wc": Rule(flags="lwcmL", long=_set("lines words bytes chars max-line-length")),
    "nl": Rule(flags="p", valued="bwsnvi", long_valued=_set("body-numbering number-width number-format")),
    "cut": Rule(
        flags="s",
        valued="bcdf",
        long=_set("complement only-delimited"),
        long_valued=_set("bytes characters delimiter fields output-delimiter"),
    ),
    "sort": Rule(
        flags="bdfghinrRuVcM",
        valued="kt",
        long=_set(
            "numeric-sort reverse unique ignore-case human-numeric-sort version-sort ignore-leading-blanks"
        ),
        long_valued=_set("key field-separator"),
    ),
    # A second path would be written to.
    "uniq": Rule(flags="cdDiu", valued="fsw", long=_set("count repeated unique ignore-case"), most=1),
    "diff": Rule(
        flags="uqswbBiaytNc",
        valued="UW",
        long=_set(
            "brief unified side-by-side ignore-case ignore-all-space ignore-blank-lines ignore-space-change"
        ),
        long_valued=_set("unified width"),
        least=2,
        most=2,
    ),
    "du": Rule(
        flags="shckmb", long=_set("summarize human-readable total bytes apparent-size"), least=0, folders=True
    ),
    "stat": Rule(valued="c", long_valued=_set("format"), folders=True),
    "grep": Rule(
        flags="abcEFGhHilLnoPqrRsvwxy",
        valued="ABCem",
        long=_set(
            "recursive ignore-case invert-match word-regexp line-regexp count files-with-matches files-without-match "
            "only-matching line-number with-filename no-filename extended-regexp fixed-strings basic-regexp "
            "perl-regexp text quiet no-messages"
        ),
        long_valued=_set(
            "include exclude exclude-dir regexp max-count after-context before-context context color binary-files"
        ),
        number=True,
        first_words=1,
        least=0,
        folders=True,
    ),
    "pwd": Rule(least=0, most=0),
}
"""`find` and `git` have grammars of their own; see there."""


@dataclass(kw_only=True, slots=True)
class Parsed:
    """A command taken apart.

    `options` are as they were given, `names` the letters and long names in them, `words` stand before the paths.
    """

    program: str
    options: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    words: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


def split(command: str) -> list[str]:
    """The words of a command as a shell would split them; raises `ToolError` for what needs a shell.

    No shell ever sees the command, so this protects nothing: it says clearly what would not work.
    """
    if len(command) > MAX_COMMAND:
        raise ToolError(f"the command is too long; {MAX_COMMAND} characters at most")
    found = _needs_a_shell(command.strip())
    if found is not None:
        raise ToolError(
            f"{found!r} needs a shell, and there is none: one command at a time, without pipes, redirections, "
            "substitutions or cd; paths are relative to the workspace. Quote it to mean the character itself"
        )
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ToolError(f"the command cannot be read: {error}") from None
    if not words:
        raise ToolError("the command is empty")
    return words


def _needs_a_shell(command: str) -> str | None:
    """The first piece of the command that means something to a shell alone."""
    quote = ""
    index = 0
    while index < len(command):
        char = command[index]
        if char == "\0":
            return char
        if char == "\\" and quote != "'":
            index += 2
            continue
        if quote:
            if char == quote:
                quote = ""
            elif quote == '"' and (char == "`" or command.startswith("$(", index)):
                return "`" if char == "`" else "$("
        elif char in "'\"":
            quote = char
        elif char in "|&;<>\n\r`":
            return char
        elif command.startswith(("$(", "${"), index):
            return command[index : index + 2]
        index += 1
    return None


def parse(program: str, words: list[str]) -> Parsed:
    """Take the words after the program's name apart by its rule.

    Raises `ToolError` for what the rule does not allow.
    """
    rule = RULES[program]
    parsed = Parsed(program=program)
    plain: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            plain += rest
            break
        if word.startswith("--"):
            _long(rule, parsed, word, rest)
        elif word.startswith("-") and len(word) > 1:
            _short(rule, parsed, word, rest)
        else:
            plain.append(word)
    if program == "grep" and parsed.names & {"e", "regexp"}:
        parsed.paths = plain
    else:
        parsed.words, parsed.paths = plain[: rule.first_words], plain[rule.first_words :]
        if len(parsed.words) < rule.first_words:
            raise ToolError("grep needs a pattern")
    count = len(parsed.paths)
    if not rule.least <= count <= rule.most:
        wanted = f"at least {rule.least}" if count < rule.least else f"at most {rule.most}"
        raise ToolError(f"{program} takes {wanted} path{'s' if wanted[-2:] != ' 1' else ''} here")
    return parsed


def _long(rule: Rule, parsed: Parsed, word: str, rest: list[str]) -> None:
    name, equals, _ = word[2:].partition("=")
    parsed.names.add(name)
    if name in rule.long_valued and (equals or rest):
        parsed.options.append(word if equals else f"{word}={rest.pop(0)}")
    elif name in rule.long and not equals:
        parsed.options.append(word)
    else:
        raise refused(parsed.program, f"--{name}")


def _short(rule: Rule, parsed: Parsed, word: str, rest: list[str]) -> None:
    """A cluster such as ``-la``, ``-n5`` or ``-n 5``; kept whole, since letters may depend on each other's order."""
    if rule.number and word[1:].isascii() and word[1:].isdigit():
        parsed.options.append(word)
        return
    for index, letter in enumerate(word[1:], start=1):
        parsed.names.add(letter)
        if letter in rule.valued:
            if word[index + 1 :]:
                parsed.options.append(word)
            elif rest:
                parsed.options.append(word + rest.pop(0))
            else:
                raise ToolError(f"{parsed.program} -{letter} needs a value")
            return
        if letter not in rule.flags:
            raise refused(parsed.program, f"-{letter}")
    parsed.options.append(word)


def refused(program: str, option: str) -> ToolError:
    return ToolError(f"{program} {option} is not allowed here: this terminal only reads")
