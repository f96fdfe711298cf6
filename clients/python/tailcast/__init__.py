"""tailcast for Python: publishes to streams, and reads them. README.md has examples; the library behind it is
libtailcast (src/capi/tailcast.h)."""

from __future__ import annotations

import ctypes

from tailcast import _library
from tailcast.consumer import Consumer, ConsumerStats, Message, ShardState, ShardStatus
from tailcast.errors import (
    Aborted, AlreadyExists, Cancelled, DataLoss, DeadlineExceeded, DeliveryError, Error, FailedPrecondition, Internal,
    InvalidArgument, NotFound, OutOfRange, PermissionDenied, ResourceExhausted, Unavailable, Unimplemented)
from tailcast.position import Position
from tailcast.producer import Ack, Outcome, Producer, ProducerStats, key_bytes as _key_bytes

__all__ = [
    "Aborted", "Ack", "AlreadyExists", "Cancelled", "Consumer", "ConsumerStats", "DataLoss", "DeadlineExceeded",
    "DeliveryError", "Error", "FailedPrecondition", "Internal", "InvalidArgument", "Message", "NotFound", "OutOfRange",
    "Outcome", "PermissionDenied", "Position", "Producer", "ProducerStats", "ResourceExhausted", "ShardState",
    "ShardStatus", "Unavailable", "Unimplemented", "library_version", "serve_metrics", "set_log_levels", "shard_of_key",
]


def library_version() -> str:
    """Of libtailcast."""
    return _library.library.tailcast_version().decode()


def shard_of_key(key: "str | bytes", shards: int) -> int:
    """The shard of a key in a stream of so many: the same as of every other tailcast, for ever."""
    raw = _key_bytes(key)
    shard = _library.library.tailcast_shard_of_key(raw, len(raw), shards)
    if shard < 0:
        raise InvalidArgument(f"a stream has at least 1 shard, not {shards}")
    return shard


def serve_metrics(address: str = "127.0.0.1:0") -> int:
    """Shows what the library counts in this process to Prometheus, until it ends; returns the port."""
    port = ctypes.c_int32()
    _library.check(_library.library.tailcast_serve_metrics(address.encode(), port))
    return port.value


def set_log_levels(levels: str) -> None:
    """Of what the library writes to stderr: "warn", or "info,rpc=off"."""
    _library.check(_library.library.tailcast_set_log_levels(levels.encode()))
