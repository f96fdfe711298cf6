"""Publishes messages to the shards of a stream."""

from __future__ import annotations

import atexit
import ctypes
import enum
import itertools
import sys
import threading
import time
import weakref
from types import TracebackType
from typing import Callable, Iterable, Mapping, NamedTuple, Optional, Tuple, Type, Union

from tailcast import _library, errors
from tailcast._library import library
from tailcast.position import Position, of_c

Headers = Union[Mapping[str, "str | bytes"], Iterable[Tuple[str, "str | bytes"]]]

_SLICE_S = 0.2  # how long a call may hold back Ctrl-C


class Outcome(enum.IntEnum):
    DURABLE = 0  # on disk: every consumer gets it, whatever crashes
    FAILED = 1  # not in the stream, and never will be; it may be published again
    UNKNOWN = 2  # it may be in the stream: the producer stopped before it knew


class Ack(NamedTuple):
    """What became of a message."""

    outcome: Outcome
    position: Optional[Position]  # DURABLE: where the message begins
    error: Optional[errors.Error]  # of the other outcomes


class ProducerStats(NamedTuple):
    messages: int  # accepted
    bytes: int
    durable: int
    failed: int
    unknown: int
    buffered_bytes: int  # not acknowledged


class Producer:
    """Publishes to a stream in its source cell; `cell` is "host:port" of that cell's scheduler.

        with tailcast.Producer("10.0.0.7:7400", "flights") as producer:
            producer.publish(b"hello", key="AA")       # returns when there is room for it
            producer.flush()                           # all is durable, or DeliveryError
            producer.publish_durably(b"hello", key="AA")

    Leaving the `with` flushes and closes. Any thread may call it, several at once, but no `on_ack` may call what waits.
    It does not survive os.fork(): open one in each process.
    """

    def __init__(
        self,
        cell: str,
        stream: str,
        *,
        shards: Optional[Iterable[int]] = None,
        low_latency: bool = False,
        takeover: bool = False,
        flush_interval: float = 0,
        flush_bytes: int = 0,
        buffer_bytes_max: int = 0,
        buffer_messages_max: int = 0,
        message_bytes_max: int = 0,
        open_timeout: float = 30,
        give_up: float = 0,
        publish_timeout: float = 0,
        on_trouble: Optional[Callable[[errors.Error], None]] = None,
    ) -> None:
        """Times are seconds; 0 is the library's default (tailcast.h). `shards`: None, all. `takeover`: from a producer that
        lives. `publish_timeout`: what publish_durably waits, at most. `on_trouble` is called, on a thread of the library, when the disk begins to fail a shard.

        NotFound: no such stream. InvalidArgument: an option that is none. Unavailable: nobody answers. FailedPrecondition: another producer lives, or this is not
        the stream's source cell."""
        self._handle: Optional[ctypes.c_void_p] = None
        self._acks: dict[int, Callable[[Ack], None]] = {}
        self._tickets = itertools.count(1)
        self._reported = (0, 0)
        self._lock = threading.Lock()
        # Kept as long as the library may call them.
        self._on_ack = _library.ON_ACK(self._acknowledge)
        self._no_ack = _library.ON_ACK(0)
        self._on_trouble = _library.ON_TROUBLE(
            lambda _, code, text: _guarded(on_trouble, errors.of_code(code, text.decode(errors="replace")))
        ) if on_trouble else _library.ON_TROUBLE(0)
        array, count = _library.shard_array(shards)
        options = _library.ProducerOptions(
            cell=cell.encode(), stream=stream.encode(), shards=array, shard_count=count, profile=int(low_latency),
            takeover=int(takeover), flush_interval_ms=_library.option_ms(flush_interval), flush_bytes=flush_bytes,
            buffer_bytes_max=buffer_bytes_max, buffer_messages_max=buffer_messages_max,
            message_bytes_max=message_bytes_max, open_timeout_ms=_library.option_ms(open_timeout),
            give_up_ms=_library.option_ms(give_up), on_trouble=self._on_trouble,
            publish_timeout_ms=_library.option_ms(publish_timeout))
        handle = ctypes.c_void_p()
        _library.check(library.tailcast_producer_open(options, handle))
        self._handle = handle
        self.stream = stream
        self.shards: list[int] = _library.shards_of(library.tailcast_producer_shards, handle)
        _open.add(self)

    def publish(self, payload: bytes, *, key: "str | bytes | None" = None, shard: Optional[int] = None,
                headers: Optional[Headers] = None, on_ack: Optional[Callable[[Ack], None]] = None,
                timeout: Optional[float] = 60) -> None:
        """Takes the message, and waits only while the shard's buffer is full: ResourceExhausted, with the reason, if no
        room came within `timeout` seconds (None: without limit). It goes to the shard of `key`, or to `shard`,
        or to the first one. Consumers get `headers` with it: names and values, a dictionary or pairs; `key` is not kept.
        What became of it is told to `on_ack`, on a thread of the library; and flush() raises if it is
        not durable. Messages of one shard come in the order in which they were published."""
        handle = self._open_handle()
        number = self._shard(handle, key, shard)
        _bytes(payload)
        array, count = _library.header_array(headers)
        ticket = 0
        if on_ack is not None:
            ticket = next(self._tickets)
            self._acks[ticket] = on_ack
        callback = self._on_ack if on_ack is not None else self._no_ack
        pause = 0.001
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            code = library.tailcast_producer_try_publish(
                handle, number, payload, len(payload), array, count, callback, ticket)
            if code == _library.OK:
                return
            if code != _library.RESOURCE_EXHAUSTED or (end is not None and time.monotonic() >= end):
                self._acks.pop(ticket, None)
                _library.check(code)
            # In Python, so that Ctrl-C and other threads have their turn.
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def publish_durably(self, payload: bytes, *, key: "str | bytes | None" = None,
                        shard: Optional[int] = None, headers: Optional[Headers] = None) -> Position:
        """Publishes, waits until the message is durable, for `publish_timeout` at most, and returns where it begins. If it
        is not, `unknown` of the error is True where it may yet be in the stream."""
        handle = self._open_handle()
        position, unknown = _library.Position(), ctypes.c_int32()
        _bytes(payload)
        array, count = _library.header_array(headers)
        code = library.tailcast_producer_publish_durably(
            handle, self._shard(handle, key, shard), payload, len(payload), array, count, position, unknown)
        if code != _library.OK:
            error = errors.of_code(code, _library.last_error())
            error.unknown = bool(unknown.value)  # type: ignore[attr-defined]
            raise error
        return of_c(position)

    def shard_of(self, key: "str | bytes") -> int:
        """The shard of a key, the same for ever as long as the stream has as many shards."""
        raw = key_bytes(key)
        return library.tailcast_producer_shard_of(self._open_handle(), raw, len(raw))

    def flush(self, timeout: float = 60) -> None:
        """Waits until all that was published is acknowledged. DeliveryError if, since the last flush, messages were not
        durable; DeadlineExceeded; or the error of a shard that stopped."""
        handle = self._open_handle()
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            code = library.tailcast_producer_flush(handle, _library.milliseconds(min(max(left, 0), _SLICE_S)))
            if code != _library.DEADLINE_EXCEEDED or left <= _SLICE_S:
                break
        why = _library.last_error() if code != _library.OK else ""
        self._check_delivery(why)
        if code != _library.OK:
            raise errors.of_code(code, why)

    def status(self) -> None:
        """Raises why the first shard stopped; returns while all work."""
        _library.check(library.tailcast_producer_status(self._open_handle()))

    def stats(self) -> ProducerStats:
        now = _library.ProducerStats()
        _library.check(library.tailcast_producer_get_stats(self._open_handle(), now))
        return ProducerStats(now.messages, now.bytes, now.durable, now.failed, now.unknown, now.buffered_bytes)

    def close(self, timeout: float = 60) -> None:
        """Flushes, ends the files and frees all. Raises as flush() does, and has closed then, too. Safe to call again."""
        if self._handle is None:
            return
        try:
            self.flush(timeout)
            _library.check(library.tailcast_producer_close(self._handle, _library.milliseconds(timeout)))
        finally:
            self._free()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
            return
        try:  # what was published goes out, and the first error is the one that counts
            self.close(5)
        except errors.Error:
            pass

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing():
            self._free()

    def _free(self) -> None:
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            library.tailcast_producer_free(handle)
        _open.discard(self)

    def _open_handle(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise errors.FailedPrecondition("the producer is closed")
        return self._handle

    def _shard(self, handle: ctypes.c_void_p, key: "str | bytes | None", shard: Optional[int]) -> int:
        if key is not None and shard is not None:
            raise errors.InvalidArgument("a message goes to the shard of its key or to the shard that is given, not both")
        if key is not None:
            raw = key_bytes(key)
            return library.tailcast_producer_shard_of(handle, raw, len(raw))
        return self.shards[0] if shard is None else shard

    def _acknowledge(self, ticket: int, ack: "ctypes._Pointer[_library.Ack]") -> None:
        told = self._acks.pop(ticket)
        said = ack.contents
        outcome = Outcome(said.outcome)
        if outcome == Outcome.DURABLE:
            _guarded(told, Ack(outcome, of_c(said.position), None))
        else:
            _guarded(told, Ack(outcome, None, errors.of_code(said.code, said.error.decode(errors="replace"))))

    def _check_delivery(self, why: str) -> None:
        now = self.stats()
        failed, unknown = now.failed - self._reported[0], now.unknown - self._reported[1]
        self._reported = (now.failed, now.unknown)
        if failed or unknown:
            raise errors.DeliveryError(failed, unknown, why)


def _guarded(call: Optional[Callable[..., None]], *args: object) -> None:
    """On a thread of the library there is nobody to raise to."""
    try:
        if call is not None:
            call(*args)
    except Exception:  # noqa: BLE001 - a user's callback may raise anything
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]


def _bytes(payload: bytes) -> None:
    if not isinstance(payload, bytes):
        raise TypeError(f"a payload is bytes, not {type(payload).__name__}; text: .encode()")


def key_bytes(key: "str | bytes") -> bytes:
    return key.encode() if isinstance(key, str) else bytes(key)


# A thread of the library must not call into an interpreter that ends.
_open: "weakref.WeakSet[Producer]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for producer in list(_open):
        producer._free()
