"""The names of keys. All keys of one session share its hash tag, ``{…}``, and so a slot.

With prefix ``backstory`` a session ``telegram:12345`` of scope ``default`` has::

    backstory:{default/telegram:12345}:meta      hash: head, lease, version
    backstory:{default/telegram:12345}:log       sorted set: each line by its place
    backstory:{default/telegram:12345}:batches   hash: the mark of a batch -> its first and last place
    backstory:{default/telegram:12345}:inbox     hash: the digest of an id -> an entry
    backstory:{default/telegram:12345}:draft     string
    backstory:{default/telegram:12345}:attempts  sorted set: the newest appends without a batch id, for ten minutes
    backstory:{default/telegram:12345}:kept      sorted set: lines from before a repair
    backstory:sessions:default                   sorted set: the keys of a scope's sessions by last activity
    backstory:scopes                             set
    backstory:blob:default:<sha256>              string
    backstory:blobs:default                      sorted set: the digests of a scope's blobs by when they were put
    backstory:blob-scopes                        set
    backstory:news                               channel: the name of a session with news

What ids hold beside letters, digits and a few signs is percent-encoded; one that gets too long is cut and ends in its
digest. So no id reaches beyond its own keys. https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from backstory.stores.remote.naming import digest
from backstory.stores.values import SessionId

_LONGEST = 160


def named(text: str) -> str:
    """An id as a part of a key: readable, of limited length, and different for whatever differs."""
    name = quote(text.encode("utf-8", "surrogatepass"), safe=":@.-_+=")  # never ~ or /
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST // 2]}~{digest(text).hex()}"


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys of one session, and the two of its scope that are written with it."""

    name: str
    meta: str
    log: str
    batches: str
    inbox: str
    draft: str
    kept: str
    index: str
    scopes: str
    attempts: str

    @property
    def all(self) -> tuple[str, ...]:
        """In the order in which scripts take them."""
        return (
            self.meta,
            self.log,
            self.batches,
            self.inbox,
            self.draft,
            self.kept,
            self.index,
            self.scopes,
            self.attempts,
        )


class Keys:
    """Every key under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.scopes = f"{prefix}:scopes"
        self.blob_scopes = f"{prefix}:blob-scopes"
        self.news = f"{prefix}:news"
        self.format = f"{prefix}:format"

    def session(self, session: SessionId) -> SessionKeys:
        name = f"{named(session.scope)}/{named(session.key)}"
        tagged = f"{self.prefix}:{{{name}}}"
        return SessionKeys(
            name=name,
            meta=f"{tagged}:meta",
            log=f"{tagged}:log",
            batches=f"{tagged}:batches",
            inbox=f"{tagged}:inbox",
            draft=f"{tagged}:draft",
            kept=f"{tagged}:kept",
            index=self.index(session.scope),
            scopes=self.scopes,
            attempts=f"{tagged}:attempts",
        )

    def index(self, scope: str) -> str:
        return f"{self.prefix}:sessions:{named(scope)}"

    def blobs(self, scope: str) -> str:
        return f"{self.prefix}:blobs:{named(scope)}"

    def blob(self, scope: str, digits: str) -> str:
        return f"{self.prefix}:blob:{named(scope)}:{digits}"
