"""Reads the shards of a stream."""

from __future__ import annotations

import ctypes
import datetime
import enum
import struct
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import Iterable, Iterator, NamedTuple, Optional, Tuple, Type

from tailcast import _library, errors
from tailcast._library import library
from tailcast.position import Position, of_c, to_c

_SLICE_S = 0.2  # how long a call may hold back Ctrl-C
_FABRICS = ("auto", "shm", "tcp", "verbs")
_READ = struct.Struct(_library.MESSAGE_LAYOUT)
_READ_HEADER = struct.Struct(_library.HEADER_LAYOUT)


class Message(NamedTuple):
    payload: bytes
    shard: int
    number: int  # of the message in its shard, from 0
    time_us: int  # when it was published, by its producer's clock: microseconds since 1970
    byte: int  # bytes of the shard before it
    stream: int  # incarnation of the stream
    next_byte: int  # bytes of the shard up to its end
    headers: Tuple[Tuple[str, bytes], ...] = ()  # names and values, in the order in which they were published

    def header(self, name: str) -> Optional[bytes]:
        """The value of the first header of this name."""
        return next((value for each, value in self.headers if each == name), None)

    @property
    def time(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.time_us / 1e6, datetime.timezone.utc)

    @property
    def position(self) -> Position:
        """Where it begins: who starts here gets it first."""
        return Position(self.stream, self.shard, self.number, self.byte)

    @property
    def next_position(self) -> Position:
        """Behind it: keep this when the message was dealt with."""
        return Position(self.stream, self.shard, self.number + 1, self.next_byte)


class ShardState(enum.IntEnum):
    LOCATING = 0  # finding where to begin
    WAITING = 1  # where to begin, or what comes next, is not in the cell yet
    TAILING = 2  # messages flow
    QUIET = 3  # all was given, and the producer's side lives
    STUCK = 4  # nothing comes, not even a sign of life of the producer's side
    STOPPED = 5  # by an error, which poll() raises


class ShardStatus(NamedTuple):
    state: ShardState
    lag_bytes: int  # known in the cell and not given yet
    as_of_us: int  # the producer had published everything then, by its clock; 0: not known
    first_available: Optional[Position]  # where the shard begins now, if what was to come is gone


class ConsumerStats(NamedTuple):
    messages: int  # given
    bytes: int
    cache_bytes: int  # read of the caches
    primary_bytes: int  # read of the disks


class Consumer:
    """Reads a stream in the cell that it runs in; `cell` is "host:port" of that cell's scheduler.

        with tailcast.Consumer("10.3.0.7:7400", "flights", start="end") as consumer:
            for message in consumer:
                apply(message.payload)
                save(message.next_position)     # resume=[that], in this or any other cell

    Messages of a shard come in order, each once. One thread at a time uses it; others wait. It does not survive
    os.fork(): open one in each process.
    """

    def __init__(
        self,
        cell: str,
        stream: str,
        *,
        shards: Optional[Iterable[int]] = None,
        start: str = "beginning",
        resume: Iterable["Position | str"] = (),
        low_latency: bool = False,
        fabric: str = "auto",
        rate_bytes_per_s: int = 0,
        batch_bytes_max: int = 0,
        open_timeout: float = 30,
        report_as: Optional[str] = None,
    ) -> None:
        """`start`: "beginning", "end", "time:2013-01-31T12:00:00Z", "time:-5m", "number:100" or a position, for the shards
        that have no position in `resume`. Times are seconds; 0 is the library's default (tailcast.h). `shards`: None, all.
        `fabric`: "auto", "shm", "tcp" or "verbs". `rate_bytes_per_s`: of each shard; -1, no limit. `report_as`: the name
        under which `tailcast status` shows this consumer and how far it is, as long as it polls; None: it does not.

        NotFound: no such stream. InvalidArgument: a position of another stream. Unavailable: nobody answers."""
        self._handle: Optional[ctypes.c_void_p] = None
        if fabric not in _FABRICS:
            raise errors.InvalidArgument(f"fabric {fabric!r} is none of {', '.join(_FABRICS)}")
        positions = [Position.parse(p) if isinstance(p, str) else p for p in resume]
        array, count = _library.shard_array(shards)
        options = _library.ConsumerOptions(
            cell=cell.encode(), stream=stream.encode(), shards=array, shard_count=count, profile=int(low_latency),
            fabric=_FABRICS.index(fabric), start=start.encode(),
            resume=(_library.Position * len(positions))(*map(to_c, positions)), resume_count=len(positions),
            rate_bytes_per_s=rate_bytes_per_s, batch_bytes_max=batch_bytes_max,
            open_timeout_ms=_library.option_ms(open_timeout),
            report_as=report_as.encode() if report_as is not None else None)
        handle = ctypes.c_void_p()
        _library.check(library.tailcast_consumer_open(options, handle))
        self._handle = handle
        self._lock = threading.RLock()
        self._pending: deque[Message] = deque()  # polled and not given
        self._behind: dict[int, Position] = {}
        self.stream = stream
        self.shards: list[int] = _library.shards_of(library.tailcast_consumer_shards, handle)

    def poll(self, timeout: float = 1) -> list[Message]:
        """Waits until messages are there, at most so long, and returns them; none if the time is up. An error is of one
        shard, and is raised again until that is sought elsewhere: OutOfRange (what was to come is not kept any more;
        shard_status() says what is), DataLoss, NotFound (the stream was deleted)."""
        with self._lock:
            if not self._pending:
                self._fill(time.monotonic() + timeout)
            batch = list(self._pending)
            self._pending.clear()
            for message in batch:
                self._behind[message.shard] = message.next_position
            return batch

    def __iter__(self) -> Iterator[Message]:
        """All messages, for ever. Leaving the loop loses none: the next one goes on."""
        return self.messages()

    def messages(self, idle: Optional[float] = None) -> Iterator[Message]:
        """All messages; ends when for `idle` seconds none came."""
        while True:
            with self._lock:
                if not self._pending:
                    self._fill(time.monotonic() + (3600 if idle is None else idle))
                if not self._pending:
                    if idle is None:
                        continue
                    return
                message = self._pending.popleft()
                self._behind[message.shard] = message.next_position
            yield message

    def position(self, shard: int = 0) -> Optional[Position]:
        """Behind the last message of the shard that was handed over, or where it begins; None: not known yet."""
        with self._lock:
            if shard in self._behind:
                return self._behind[shard]
            for message in self._pending:
                if message.shard == shard:
                    return message.position
            found = _library.Position()
            code = library.tailcast_consumer_position(self._open_handle(), shard, found)
            if code == _library.UNAVAILABLE:
                return None
            _library.check(code)
            return of_c(found)

    def positions(self) -> dict[int, Position]:
        """position() of each shard of which it is known: what to keep, and to give as `resume=positions.values()`."""
        found = {shard: self.position(shard) for shard in self.shards}
        return {shard: position for shard, position in found.items() if position is not None}

    def seek(self, shard: int, start: "str | Position") -> None:
        """Goes on elsewhere, also after an error of the shard. `start` as that of the constructor, or a Position."""
        with self._lock:
            _library.check(library.tailcast_consumer_seek(self._open_handle(), shard, str(start).encode()))
            self._behind.pop(shard, None)
            self._pending = deque(message for message in self._pending if message.shard != shard)

    def shard_status(self, shard: int = 0) -> ShardStatus:
        """As of the last poll."""
        with self._lock:
            now = _library.ShardStatus()
            _library.check(library.tailcast_consumer_shard_status(self._open_handle(), shard, now))
            return ShardStatus(ShardState(now.state), now.lag_bytes, now.as_of_us,
                               of_c(now.first_available) if now.has_first_available else None)

    def stats(self) -> ConsumerStats:
        with self._lock:
            now = _library.ConsumerStats()
            _library.check(library.tailcast_consumer_get_stats(self._open_handle(), now))
            return ConsumerStats(now.messages, now.bytes, now.cache_bytes, now.primary_bytes)

    def close(self) -> None:
        """Safe to call again."""
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                library.tailcast_consumer_free(handle)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing():
            self.close()

    def _open_handle(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise errors.FailedPrecondition("the consumer is closed")
        return self._handle

    def _fill(self, end: float) -> None:
        """Polls until there are messages, or it is `end`."""
        handle = self._open_handle()
        first, count = ctypes.c_void_p(), ctypes.c_size_t()
        while True:
            left = max(end - time.monotonic(), 0)
            code = library.tailcast_consumer_poll(handle, _library.milliseconds(min(left, _SLICE_S)), first, count)
            _library.check(code)
            if count.value:
                break
            if left <= _SLICE_S:
                return
        array = ctypes.string_at(first.value, count.value * _READ.size)
        self._pending.extend(
            Message(ctypes.string_at(payload, size), shard, number, time_us, byte, stream, next_byte,
                    _headers(headers, count) if count else ())
            for payload, size, time_us, stream, number, byte, shard, headers, count, next_byte
            in _READ.iter_unpack(array))


def _headers(address: int, count: int) -> Tuple[Tuple[str, bytes], ...]:
    array = ctypes.string_at(address, count * _READ_HEADER.size)
    return tuple((ctypes.string_at(name, name_size).decode(), ctypes.string_at(value, value_size))
                 for name, name_size, value, value_size in _READ_HEADER.iter_unpack(array))
