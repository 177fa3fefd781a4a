"""Every exception that Backstory raises, as a tree.

    BackstoryError
    ├── InvalidInput (ValueError)          what was passed in is not what the function takes
    │   ├── InvalidMessage                 one message of a list cannot be read: says which, and why
    │   └── ConfigurationError             settings that contradict each other or make no sense
    ├── NothingToSend                      the model is not the one to speak next
    ├── BudgetExceeded                     the request cannot fit: carries the ledger
    ├── IllegalRequest                     a request that we made ourselves breaks a rule: our bug
    ├── VocabularyError                    a shipped tokenizer vocabulary is missing or damaged
    ├── StoreError                         the log could not be read or written
    │   ├── StoreUnavailable               disk full, read-only, permission denied, connection lost
    │   ├── StoreDamaged                   what was read back is not what was written
    │   ├── NewerFormat                    the log was written by a newer version
    │   ├── HeadMoved                      somebody else appended first
    │   ├── StaleLease                     the writer lost the right to write
    │   └── LeaseHeld                      somebody else is running a turn in this session
    ├── SessionError                       a session or one of its turns cannot do what was asked
    │   ├── SessionNotFound                no session of that name in this scope
    │   ├── SessionExists                  a session of that name is there already
    │   ├── MessageConflict                a known client message id came with other content
    │   ├── SessionBusy                    a turn is under way and the policy is to reject
    │   └── TurnInterrupted                another message, or a stop, ended this turn
    ├── ToolError                          a tool is declared wrongly, or failed
    └── ModelError                         the model's server refused, failed or stayed silent
        ├── ContextTooLong                 the request was longer than the model's window
        ├── ModelUnavailable               time-out, connection lost, overloaded: may be tried again
        └── ModelRefused                   the server refused the request itself: trying again is useless

It says whose fault it is: `InvalidInput` is the caller's, `IllegalRequest` is ours, a damaged history is
nobody's error but data to be repaired, and so raises nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class BackstoryError(Exception):
    """The root: whatever Backstory raises on purpose."""


class InvalidInput(BackstoryError, ValueError):
    """What was passed in is not what the function takes."""


class InvalidMessage(InvalidInput):
    """One message cannot be read.

    `index` is its position in the list that was passed in, `None` where there is no list.
    """

    def __init__(self, what: str, *, index: int | None = None) -> None:
        super().__init__(what if index is None else f"message {index}: {what}")
        self.what = what
        self.index = index


class ConfigurationError(InvalidInput):
    """Settings that contradict each other or make no sense."""


class NothingToSend(BackstoryError):
    """The model is not the one to speak next: the history ends with its complete answer, or is empty."""


class BudgetExceeded(BackstoryError):
    """The request cannot fit its budget; `ledger` (a `backstory.Ledger`) says what asked for how much.

    `needed` and `budget` are tokens of input.
    """

    def __init__(self, what: str, *, ledger: Any, needed: int, budget: int) -> None:
        super().__init__(what)
        self.ledger = ledger
        self.needed = needed
        self.budget = budget


class IllegalRequest(BackstoryError):
    """A request that we were about to send breaks a rule of its target: a bug of ours, please report it."""

    def __init__(self, what: str, *, problems: Sequence[object] = ()) -> None:
        super().__init__(what)
        self.problems = tuple(problems)


class VocabularyError(BackstoryError):
    """A shipped tokenizer vocabulary is missing or is not the published one."""


class StoreError(BackstoryError):
    """The log could not be read or written; nothing was acknowledged that is not there."""


class StoreUnavailable(StoreError):
    """The place where the log lies refuses: disk full, read-only, permission denied, connection lost."""


class StoreDamaged(StoreError):
    """What was read back is not what was written, and it cannot be set aside."""


class NewerFormat(StoreError):
    """The log was written by a newer version of Backstory, which this one must not touch."""


class HeadMoved(StoreError):
    """Somebody else appended first: `expected` is the head that the writer knew, `actual` the one there is."""

    def __init__(self, what: str, *, expected: int, actual: int) -> None:
        super().__init__(what)
        self.expected = expected
        self.actual = actual


class StaleLease(StoreError):
    """The writer's lease has been taken over: whatever it still wants to write is refused."""


class LeaseHeld(StoreError):
    """Somebody else holds the lease: `owner` names it, `expires_in` is in seconds."""

    def __init__(self, what: str, *, owner: str, expires_in: float) -> None:
        super().__init__(what)
        self.owner = owner
        self.expires_in = expires_in


class SessionError(BackstoryError):
    """A session, or one of its turns, cannot do what was asked of it."""


class SessionNotFound(SessionError, KeyError):
    """No session of that name in this scope."""

    __str__ = Exception.__str__  # KeyError would print the repr


class SessionExists(SessionError):
    """A session of that name is there already."""


class MessageConflict(SessionError):
    """A client message id that the log knows came again with other content."""


class SessionBusy(SessionError):
    """A turn is under way in this session, and the caller asked not to wait."""


class TurnInterrupted(SessionError):
    """Another message, or a stop, ended this turn before its answer."""


class ToolError(BackstoryError):
    """A tool is declared wrongly, or failed in a way that is no result."""


class ModelError(BackstoryError):
    """The model's server refused, failed, or stayed silent."""


class ContextTooLong(ModelError):
    """The provider says that the request is longer than the window; `limit` in tokens where it told."""

    def __init__(self, what: str, *, limit: int | None = None) -> None:
        super().__init__(what)
        self.limit = limit


class ModelUnavailable(ModelError):
    """A time-out, a lost connection, an overloaded server: the same request may be tried again."""


class ModelRefused(ModelError):
    """The server refused the request itself: trying the same again is useless."""
