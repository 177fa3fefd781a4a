"""Everything that one session has on disk, and what may be done to it under its lock. Blocking; for one thread.

The lock is held for the length of one call. Under it the lease and the head are checked (`stores/rules`), then the
journal is written. `LockBusy` and `OSError` go to the caller, `FilesStore`, which waits, tries again, and explains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from time import time_ns
from typing import Any

from backstory.errors import StaleLease, StoreDamaged
from backstory.records import NewRecord, Record, stamp
from backstory.stores import rules
from backstory.stores.asides import DraftFile, Quarantine, read_whole
from backstory.stores.base import KNOWN_BATCHES
from backstory.stores.clock import Clock, SystemClock, timestamp
from backstory.stores.disk import Disk
from backstory.stores.journal import Journal
from backstory.stores.locks import LeaseFile, LockBusy, StaleLock
from backstory.stores.mailbox import Mailbox
from backstory.stores.mending import check, mended
from backstory.stores.names import file_stem, scope_folder
from backstory.stores.values import (
    Appended,
    Damage,
    Draft,
    Entry,
    Head,
    Lease,
    LeaseRequest,
    Replacement,
    Report,
    SessionId,
)

STATE = ".backstory"


def log_path(root: str, session: SessionId) -> str:
    return os.path.join(root, "sessions", scope_folder(session.scope), file_stem(session.key) + ".jsonl")


class SessionFiles:
    """One session below the workspace `root`. `report` hears of damage."""

    def __init__(
        self, root: str, session: SessionId, *, disk: Disk, clock: Clock, report: Callable[[Damage], None]
    ) -> None:
        scope, stem = scope_folder(session.scope), file_stem(session.key)

        def beside(kind: str, extension: str) -> str:
            return os.path.join(root, STATE, kind, scope, stem + extension)

        self.session = session
        self._disk = disk
        self._clock = clock
        self._report = report
        self._swept = False
        self._system_time = type(clock) is SystemClock  # then the system's own time stamps will do
        self._quarantine = Quarantine(disk, os.path.join(root, "quarantine", scope, stem))
        self.lease = LeaseFile(disk, beside("leases", ".lease"), session)
        self.mailbox = Mailbox(disk, beside("inbox", ".inbox"), report=report)
        self._draft = DraftFile(disk, beside("drafts", ".draft"))
        self.journal = Journal(
            disk, log_path(root, session), session, report=report, keep=self._quarantine.keep
        )

    def close(self) -> None:
        self.journal.closed()
        self.lease.close()

    def _locked(self) -> SessionFiles:
        """Raises `LockBusy`; and, at the end, `StaleLease` where the lock was broken while we held it."""
        self.lease.lock()
        if not self._swept:
            with self:
                self._sweep()
            self.lease.lock()
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.lease.unlock()
        if isinstance(error, StaleLock):
            self.journal.closed()
            raise StaleLease(
                f"the lock of session {str(self.session)!r} was taken over while this process stood still: "
                "whether its last batch is in the log is not known"
            ) from error

    def _sweep(self) -> None:
        """Remove what a process that died under the lock left half done: all of it is written under the lock."""
        for path in (self.journal.path, self.mailbox.path, self._draft.path):
            self._disk.unlink(path + ".tmp")
        for path in self._quarantine.kept():
            if path.endswith(".tmp"):
                self._disk.unlink(path)
        self._swept = True

    # --- the log

    def look(self) -> Head:
        """Where the log ends. A torn tail is cut off in passing, if nobody is at work on it."""
        head = self.journal.refresh()
        if self.journal.torn:
            with suppress(LockBusy, OSError, StaleLease), self._locked():  # the next append will tell
                self.journal.refresh()
                self.journal.cut()
                if not self.journal.head.seq:
                    self.journal.remove()
            head = self.journal.head
        return head

    def read(self, after: int, before: int | None, limit: int | None, newest_first: bool) -> list[Record]:
        self.look()
        return self.journal.read(after=after, before=before, limit=limit, newest_first=newest_first)

    def append(
        self,
        records: Sequence[NewRecord],
        expected: int | None,
        fence: int | None,
        batch: str | None,
        acquire: LeaseRequest | None,
        release: bool,
    ) -> Appended:
        with self._locked():
            known = self.journal.head.seq
            head = self.journal.refresh()
            if known and not head.seq and expected is None:
                raise rules.head_moved(self.session, known, 0)
            if batch is not None and (earlier := self._repeated(batch, records, expected, head)):
                return self._acknowledge(earlier, fence, acquire, release)
            now, current = self._clock.now(), self.lease.current()
            taken = self._granted(current, acquire, now) if acquire is not None else None
            if taken is None:
                rules.check_fence(self.session, current, fence, now=now)
            rules.check_head(self.session, expected, head.seq)
            stamped = stamp(records, seq=head.seq + 1, at=timestamp(now), batch=batch)
            if taken is not None:
                self.lease.write(taken)
            if stamped:
                try:
                    self.journal.append(
                        stamped,
                        generation=time_ns() // 1000,
                        time=None if self._system_time else int(now * 1e9),
                        check=self.lease.check,
                    )
                except OSError:
                    if taken is not None:
                        self.lease.write(current)
                    raise
            else:
                self.lease.check()
            if release:
                self.lease.write(None)
            return Appended(head=self.journal.head, records=tuple(stamped), lease=taken)

    def _repeated(
        self, batch: str, records: Sequence[NewRecord], expected: int | None, head: Head
    ) -> list[Record]:
        if expected is not None and head.seq <= expected:
            return []
        earlier = self.journal.batch(batch, after=expected, most=KNOWN_BATCHES)
        if earlier:
            rules.check_repeat(batch, earlier, records)
            self.journal.sync()  # the first time may have been cut short before its own
        return earlier

    def _acknowledge(
        self, earlier: list[Record], fence: int | None, acquire: LeaseRequest | None, release: bool
    ) -> Appended:
        current, taken = self.lease.read(), None
        if acquire is not None:
            taken = self._granted(current, acquire, self._clock.now())
            self.lease.write(taken)
        if release and (taken is not None or (current is not None and current.fence == fence)):
            self.lease.write(None)
        self.lease.check()
        return Appended(head=self.journal.head, records=tuple(earlier), lease=taken, repeated=True)

    def rewrite(
        self, replacements: Sequence[Replacement], expected: int, fence: int | None, purge: bool
    ) -> Head:
        with self._locked():
            head = self.journal.refresh()
            now = self._clock.now()
            rules.check_fence(self.session, self.lease.read(), fence, now=now)
            rules.check_head(self.session, expected, head.seq)
            _, damage = check(self.journal)
            if damage and not purge:
                self._quarantine.keep(f"{head.generation}.jsonl", self.journal.content())
            at = timestamp(now)
            self._replace(rules.replaced(mended(self.journal, at=at), replacements, head=head.seq, at=at))
            if purge:
                self._quarantine.purge()
                self._draft.remove()
            for one in damage:
                self._report(one)
            return self.journal.head

    def _replace(self, records: Iterator[Record]) -> None:
        """The journal with these records, its generation raised and its time of last activity kept."""
        signature = self.journal.signature
        self.journal.create(
            (record.line + b"\n" for record in records),
            generation=self.journal.head.generation + 1,
            time=signature[2] if signature is not None else 0,
            new=False,
            check=self.lease.check,
        )

    def delete(self, fence: int | None) -> bool:
        with self._locked():
            rules.check_fence(self.session, self.lease.read(), fence, now=self._clock.now())
            self.lease.check()
            self.mailbox.remove()
            self._draft.remove()
            self._quarantine.purge()
            gone = self.journal.remove()
            self._disk.unlink(self.lease.path)
            self.lease.close()
            return gone

    def verify(self) -> Report:
        try:
            head = self.journal.refresh()
        except StoreDamaged as error:
            return self._unreadable(error)
        count, damage = check(self.journal) if head.seq or self.journal.torn else (0, [])
        return Report(
            session=self.session,
            head=head,
            records=count,
            damage=tuple(damage),
            kept=self._quarantine.kept(),
        )

    def _unreadable(self, error: StoreDamaged) -> Report:
        size = self._disk.stat(self.journal.path).st_size
        damage = Damage(kind="header", offset=0, length=size, after=0, detail=str(error))
        return Report(
            session=self.session, head=Head(), records=0, damage=(damage,), kept=self._quarantine.kept()
        )

    def repair(self, fence: int | None) -> Report:
        with self._locked():
            now = self._clock.now()
            rules.check_fence(self.session, self.lease.read(), fence, now=now)
            found = self.verify()
            if found.sound:
                return found
            content = read_whole(self._disk, self.journal.path) or b""
            kept = self._quarantine.keep(f"{found.head.generation}.jsonl", content)
            if found.head.seq:
                self._replace(mended(self.journal, at=timestamp(now)))
            else:
                self.journal.remove()
            return Report(
                session=self.session,
                head=self.journal.head,
                records=found.records,
                damage=tuple(_kept(one, kept) for one in found.damage),
                kept=self._quarantine.kept(),
            )

    # --- the lease

    def _granted(self, current: Lease | None, request: LeaseRequest, now: float) -> Lease:
        return rules.grant(self.session, current, request, now=now, last_fence=self.lease.last_fence)

    def acquire(self, request: LeaseRequest) -> Lease:
        with self._locked():
            lease = self._granted(self.lease.read(), request, self._clock.now())
            self.lease.write(lease)
            self.lease.check()
            return lease

    def renew(self, lease: Lease, ttl: float) -> Lease:
        with self._locked():
            renewed = rules.extend(lease, self.lease.read(), ttl, now=self._clock.now())
            self.lease.write(renewed)
            self.lease.check()
            return renewed

    def release(self, lease: Lease) -> None:
        with self._locked():
            current = self.lease.read()
            if current is not None and current.fence == lease.fence:
                self.lease.write(None)

    def holder(self) -> Lease | None:
        lease = self.lease.read()
        return lease if rules.in_force(lease, self._clock.now()) else None

    def pulse(self) -> object:
        """Something that changes whenever somebody gets anything done under the lock."""
        found: list[object] = []
        for path in (self.lease.path, self.journal.path):
            with suppress(FileNotFoundError):
                stat = self._disk.stat(path)
                found += [stat.st_ino, stat.st_size, stat.st_mtime_ns]
        return found

    def break_lock(self) -> None:
        """Take the lock from a process that stands still, once its lease has run out. Raises `LockBusy` before.

        The log is copied: what the other may still write, should it wake, goes to a file without a name.
        """
        lease = self.lease.read()
        if rules.in_force(lease, self._clock.now()):
            raise LockBusy(self.lease.path)
        self.lease.break_lock(lambda: self.lease.block(None))
        try:
            self.journal.closed()
            head = self.journal.refresh()
            if head.seq and self.journal.signature is not None:
                self.journal.create(
                    (line.data + b"\n" for line in self.journal.lines()),
                    generation=head.generation,
                    time=self.journal.signature[2],
                    new=False,
                    check=self.lease.check,
                )
        finally:
            self.lease.unlock()

    # --- the inbox and the draft

    def waiting(self) -> list[Entry]:
        return self.mailbox.entries()

    def take(self, ids: Collection[str], fence: int | None) -> None:
        with self._locked():
            rules.check_fence(self.session, self.lease.read(), fence, now=self._clock.now())
            self.mailbox.take(ids)

    def put_draft(self, data: Mapping[str, Any] | None, after: int, fence: int) -> None:
        with self._locked():
            rules.check_fence(self.session, self.lease.read(), fence, now=self._clock.now())
            if data is None:
                self._draft.remove()
            else:
                self._draft.write(Draft(after=after, fence=fence, data=data))
            self.lease.check()

    def draft(self) -> Draft | None:
        draft = self._draft.read()
        return draft if draft is not None and draft.after == self.look().seq else None


def _kept(damage: Damage, path: str) -> Damage:
    return Damage(
        kind=damage.kind,
        offset=damage.offset,
        length=damage.length,
        after=damage.after,
        detail=damage.detail,
        kept=path,
    )
