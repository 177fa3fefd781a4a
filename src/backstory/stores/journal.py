"""One session's log in one append-only file: its end, its lines, its tail. Blocking; for one thread at a time.

The first line is a header (format, version, scope, key, generation); each further line is a record. A batch is
written by one `write` and one sync. The log ends with its last whole batch: what follows was never acknowledged, so a
reader passes over it, and the next writer cuts it off and keeps it aside.

Who may write is not decided here: writing methods are called under the session's lock.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from backstory.errors import NewerFormat, StoreDamaged
from backstory.records import SCHEMA_VERSION, Record, encode_json
from backstory.stores.disk import Disk
from backstory.stores.lines import Line, backwards, forwards, read_record, seek
from backstory.stores.values import Damage, Head, SessionId

FORMAT = "backstory-log"
_HEADER_MOST = 1 << 17
_SEAL = 32

Report = Callable[[Damage], None]
Keep = Callable[[str, bytes], str]
"""``keep(name, data)`` puts bytes aside, durable, and says where."""


class Journal:
    """A log file. `report` hears of damage that reading meets; `keep` puts torn tails aside."""

    def __init__(self, disk: Disk, path: str, session: SessionId, *, report: Report, keep: Keep) -> None:
        self.path = path
        self.session = session
        self._disk = disk
        self._report = report
        self._keep = keep
        self._fd = -1
        self._writable = False
        self.closed()

    def closed(self) -> None:
        """Forget everything; the next call looks again."""
        if self._fd >= 0:
            self._disk.close(self._fd)
        self._fd = -1
        self.signature: tuple[int, int, int] | None = None
        self.head = Head()
        self.known: tuple[tuple[int, int, int], Head] | None = None
        """Both at once, for a look from another thread."""
        self._size = 0
        self._start = 0  # where the first record begins
        self._end = 0  # where the last whole batch ends
        self._reached = (0, 0)  # the oldest record that was last read backwards, and where its line begins
        self._misheaded = ""  # what is wrong with the header
        self._seal = b""  # the last bytes before that end, to recognise them by

    # --- looking

    def refresh(self) -> Head:
        """Where the log ends now. One `stat` where nothing changed."""
        try:
            stat = self._disk.stat(self.path)
        except FileNotFoundError:
            self.closed()
            return self.head
        signature = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if signature == self.signature:
            return self.head
        if not self._extends(stat.st_ino, stat.st_size):
            self.closed()
            self._open()
        self._look(stat.st_size)
        self.signature = signature
        self.known = signature, self.head
        return self.head

    def _extends(self, inode: int, size: int) -> bool:
        """Whether the file is the one that we know, with something added. (A batch that another process
        wrote and took back after a failed sync may have been seen here in the meantime.)"""
        known = self._fd >= 0 and self.signature is not None and self.signature[0] == inode
        return (
            known
            and size > self._end
            and self._read_at(len(self._seal), self._end - len(self._seal)) == self._seal
        )

    def _open(self) -> None:
        try:
            self._fd = self._disk.open(self.path, os.O_RDWR | os.O_APPEND)
            self._writable = True
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            self._fd = self._disk.open(self.path, os.O_RDONLY)
            self._writable = False
        raw = self._read_at(1 << 12, 0)
        if b"\n" not in raw:
            raw = self._read_at(_HEADER_MOST, 0)
        line, ended, _ = raw.partition(b"\n")
        try:
            header = json.loads(line.decode()) if ended else None
        except (ValueError, RecursionError):
            header = None
        self._misheaded = "the first line is no header"
        generation = 0
        if isinstance(header, dict) and "format" in header:
            self._misheaded = ""
            generation = self._checked(header)
        self.head = Head(generation=generation)
        self._start = self._end = 0 if line.startswith(b'{"seq":') else len(line) + len(ended)

    def _checked(self, header: dict[str, object]) -> int:
        """The generation that a header names, if the file is one of ours and of this session."""
        version, generation = header.get("version"), header.get("generation")
        if header["format"] != FORMAT:
            raise StoreDamaged(
                f"{self.path} is no log of Backstory's: its first line says {header['format']!r}"
            )
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise NewerFormat(
                f"{self.path} was written by a newer version of Backstory (format {version}; this one reads up to "
                f"{SCHEMA_VERSION}): upgrade with pip install -U backstory"
            )
        named = (header.get("scope"), header.get("key"))
        if named != (self.session.scope, self.session.key):
            if "~" in os.path.basename(self.path):  # a shortened name: only the header tells
                raise StoreDamaged(f"{self.path} holds another session: scope {named[0]!r}, key {named[1]!r}")
            self._misheaded = (
                f"it names another session ({named[0]!r}, {named[1]!r}): copied or renamed by hand"
            )
        return generation if isinstance(generation, int) else 0

    def _look(self, size: int) -> None:
        """Find the last whole batch between the end that we know and `size`."""
        self._size = size
        whole: tuple[Record, int] | None = None
        earlier = ended = 0
        for line in backwards(self._read_at, self._end, size):
            ended += line.ended
            if earlier and b"\0" not in line.data:
                earlier -= 1
            elif earlier:  # a page of the batch never reached the disk, so it was never acknowledged
                whole, earlier = None, 0
                continue
            else:
                record = read_record(line, after=0) if line.ended else None
                if not isinstance(record, Record) or record.part[0] != record.part[1]:
                    continue
                whole, earlier = (record, line.end), record.part[1] - 1
            if not earlier:
                break
        if whole is not None:
            self.head = replace(self.head, seq=whole[0].seq, at=whole[0].at)
            self._end = whole[1]
        elif not self.head.seq and size and (ended or self._misheaded):
            # Not a session that has just begun, but one that cannot be read: never to be taken for a new one.
            raise StoreDamaged(
                f"{self.path} is not empty, and no line of it is a record: backstory doctor --repair puts it aside"
            )
        self._mark()

    def _mark(self) -> None:
        self._seal = self._read_at(min(_SEAL, self._end), max(0, self._end - _SEAL))

    def _read_at(self, length: int, offset: int) -> bytes:
        return self._disk.read_at(self._fd, length, offset)

    @property
    def torn(self) -> bool:
        """Whether something follows the last whole batch: a write under way, or one that a crash cut short."""
        return self._size > self._end

    # --- reading

    def read(self, *, after: int, before: int | None, limit: int | None, newest_first: bool) -> list[Record]:
        """As `Log.read`. Call `refresh` first."""
        last = self.head.seq if before is None else min(self.head.seq, before - 1)
        if last <= after or (limit is not None and limit <= 0):
            return []
        found: list[Record] = []
        for record in self._backwards(last) if newest_first else self._forwards(after):
            if (record.seq <= after) if newest_first else (record.seq > last):
                break
            if after < record.seq <= last:
                found.append(record)
                if limit is not None and len(found) >= limit:
                    break
        return found

    def _forwards(self, after: int) -> Iterator[Record]:
        start = self._start if after < 1 else seek(self._read_at, self._start, self._end, after)[0]
        last = 0
        for line in forwards(self._read_at, start, self._end):
            record = read_record(line, after=last)
            if isinstance(record, Damage):
                self._report(record)
            elif record.seq > last:
                last = record.seq
                yield record

    def _backwards(self, last: int) -> Iterator[Record]:
        if last >= self.head.seq:
            end = self._end
        elif last + 1 == self._reached[0]:  # the next page
            end = self._reached[1]
        else:
            end = seek(self._read_at, self._start, self._end, last)[1]
        before = self.head.seq + 1
        damage: list[Damage] = []
        for line in backwards(self._read_at, self._start, end):
            record = read_record(line, after=0)
            if isinstance(record, Damage):
                damage.append(record)
            elif record.seq < before:
                before = record.seq
                self._tell(damage, after=before)
                self._reached = record.first, line.offset
                yield record
        self._tell(damage, after=0)

    def _tell(self, damage: list[Damage], *, after: int) -> None:
        for one in damage:
            self._report(replace(one, after=after))
        damage.clear()

    def lines(self) -> Iterator[Line]:
        """Every line of a record up to the end of the last whole batch, readable or not."""
        return forwards(self._read_at, self._start, self._end)

    def faults(self) -> Iterator[Damage]:
        """What is wrong with the file besides its lines: its header, and what follows its end."""
        if self._misheaded:
            yield Damage(kind="header", offset=0, length=self._start, after=0, detail=self._misheaded)
        if self.torn:
            yield self._tail("a write under way, or one that was cut short")

    def content(self) -> bytes:
        """The whole file as it is."""
        return self._read_at(self._size, 0)

    def _tail(self, detail: str, kept: str | None = None) -> Damage:
        length = self._size - self._end
        return Damage(
            kind="torn", offset=self._end, length=length, after=self.head.seq, detail=detail, kept=kept
        )

    # --- writing, under the session's lock

    def cut(self) -> None:
        """Put what follows the last whole batch aside, and cut it off."""
        if not self.torn:
            return
        self._need_writable()
        data = self._read_at(self._size - self._end, self._end)
        kept = self._keep(f"{self._end}.torn", data)
        damage = self._tail("the end of a write that was cut short and never acknowledged", kept)
        self._disk.truncate(self._fd, self._end)
        self._disk.sync(self._fd)
        self._note()
        self._report(damage)

    def append(
        self, records: Sequence[Record], *, generation: int, time: int | None, check: Callable[[], None]
    ) -> None:
        """One write and one sync. Call `refresh` first.

        `generation` is that of a new file, `time` its time of last change in nanoseconds (`None`: the system's);
        `check` raises where our lock was broken meanwhile.
        """
        data = b"\n".join([record.line for record in records]) + b"\n"
        self.cut()
        if self._fd < 0 or not self._size:
            self.create([data], generation=generation, time=time, new=self._fd < 0, check=check)
        else:
            self._need_writable()
            try:
                self._disk.write_all(self._fd, data)
                if time is not None:
                    self._disk.set_time(self.path, time)
                self._disk.sync(self._fd)
            except OSError:
                self._undo()
                raise
            check()
            self._note()
            self._end = self._size
            self._seal = data[-_SEAL:]
        last = records[-1]
        self.head = Head(seq=last.seq, generation=self.head.generation, at=last.at)
        self.known = self.signature and (self.signature, self.head)

    def batch(self, batch: str, *, after: int | None, most: int) -> list[Record]:
        """The records of a batch that was appended: after a place, or among so many of the newest batches."""
        found: list[Record] = []
        seen = 0
        for record in self._backwards(self.head.seq):
            if (after is not None and record.seq <= after) or (after is None and seen >= most):
                break
            if record.batch == batch:
                found.append(record)
            seen += record.part[0] == 1
        return found[::-1]

    def sync(self) -> None:
        """Make durable what an earlier, unacknowledged append may have left to the system's care."""
        self._disk.sync(self._fd)
        self._disk.sync_folder(os.path.dirname(self.path))

    def _need_writable(self) -> None:
        if not self._writable:
            raise PermissionError(errno.EACCES, "the log may only be read", self.path)

    def _undo(self) -> None:
        """After a failed write: back to the last whole batch. Where even that fails, the file is looked at anew
        before anything else happens to it."""
        end = self._end
        try:
            self._disk.truncate(self._fd, end)
        finally:
            self.closed()

    def _note(self) -> None:
        stat = self._disk.fstat(self._fd)
        self.signature = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        self._size = stat.st_size

    def create(
        self,
        data: Iterable[bytes],
        *,
        generation: int,
        time: int | None,
        new: bool,
        check: Callable[[], None],
    ) -> None:
        """Write the whole file beside its place and put it there in one step; `new`: nothing may be there yet.

        `data` is whole lines; it may read from this very journal.
        """
        temporary = self.path + ".tmp"
        folder = os.path.dirname(self.path)
        self._disk.make_folder(folder)
        self._disk.unlink(temporary)
        fd = self._disk.open(temporary, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        try:
            header = {
                "format": FORMAT,
                "version": SCHEMA_VERSION,
                "scope": self.session.scope,
                "key": self.session.key,
                "generation": generation,
            }
            start = encode_json(header) + b"\n"
            pending, size = [start], len(start)
            for piece in data:
                pending.append(piece)
                size += len(piece)
                if size > 1 << 20:
                    self._disk.write_all(fd, b"".join(pending))
                    pending, size = [], 0
            self._disk.write_all(fd, b"".join(pending))
            if time is not None:
                self._disk.set_time(temporary, time)
            self._disk.sync(fd)
            check()
            self.closed()
            self._disk.close(fd)  # Windows renames no open file
            fd = -1
            (self._disk.link if new else self._disk.replace)(temporary, self.path)
        finally:
            if fd >= 0:
                self._disk.close(fd)
            self._disk.unlink(temporary)  # still there where anything failed
        try:
            self._disk.sync_folder(folder)
        except OSError:
            if new:
                self._disk.unlink(self.path)
            raise
        self.refresh()

    def remove(self) -> bool:
        """Delete the file. Whether it was there."""
        self.closed()
        self._disk.unlink(self.path + ".tmp")
        gone = self._disk.unlink(self.path)
        if gone:
            self._disk.sync_folder(os.path.dirname(self.path))
        return gone
