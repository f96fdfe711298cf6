"""libtailcast: where it is found, and what its functions take (src/capi/tailcast.h)."""

from __future__ import annotations

import ctypes
import math
import os
import pathlib
import shutil
import sys
from collections.abc import Mapping
from ctypes import POINTER, c_char, c_char_p, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from typing import Iterator

from tailcast import errors

ABI_VERSION = 2
SONAME = f"libtailcast.so.{ABI_VERSION}"
OK, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE = 0, 4, 8, 14
POSITION_TEXT_SIZE = 96


class Position(ctypes.Structure):
    _fields_ = [("stream", c_uint64), ("number", c_int64), ("byte", c_int64), ("shard", c_int32)]


class Ack(ctypes.Structure):
    _fields_ = [("outcome", c_int32), ("code", c_int32), ("position", Position), ("error", c_char_p)]


# A tailcast_message, an element of an array that is read as bytes: payload, size, time_us, the position's stream,
# number, byte, shard, and then headers, header_count, next_byte. And a tailcast_header: name, name_size, value,
# value_size.
MESSAGE_LAYOUT = "@PNqQqqi4xPNq"
HEADER_LAYOUT = "@PNPN"


class Header(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("name_size", c_size_t), ("value", c_char_p), ("value_size", c_size_t)]

ON_ACK = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Ack))
ON_TROUBLE = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)


class _Sized(ctypes.Structure):
    """Begins with its own size, as the _INIT macros do."""

    def __init__(self, **values: object) -> None:
        super().__init__(struct_size=ctypes.sizeof(self), **values)


class ProducerOptions(_Sized):
    _fields_ = [("struct_size", c_size_t), ("cell", c_char_p), ("stream", c_char_p), ("shards", POINTER(c_int32)),
                ("shard_count", c_size_t), ("profile", c_int32), ("takeover", c_int32), ("flush_interval_ms", c_int64),
                ("flush_bytes", c_int64), ("buffer_bytes_max", c_int64), ("buffer_messages_max", c_int64),
                ("message_bytes_max", c_int64), ("open_timeout_ms", c_int64), ("give_up_ms", c_int64),
                ("on_trouble", ON_TROUBLE), ("on_trouble_context", c_void_p), ("publish_timeout_ms", c_int64)]


class ProducerStats(_Sized):
    _fields_ = [("struct_size", c_size_t), ("messages", c_int64), ("bytes", c_int64), ("durable", c_int64),
                ("failed", c_int64), ("unknown", c_int64), ("buffered_bytes", c_int64)]


class ConsumerOptions(_Sized):
    _fields_ = [("struct_size", c_size_t), ("cell", c_char_p), ("stream", c_char_p), ("shards", POINTER(c_int32)),
                ("shard_count", c_size_t), ("profile", c_int32), ("fabric", c_int32), ("start", c_char_p),
                ("resume", POINTER(Position)), ("resume_count", c_size_t), ("rate_bytes_per_s", c_int64),
                ("batch_bytes_max", c_int64), ("open_timeout_ms", c_int64), ("report_as", c_char_p)]


class ShardStatus(_Sized):
    _fields_ = [("struct_size", c_size_t), ("state", c_int32), ("code", c_int32), ("lag_bytes", c_int64),
                ("as_of_us", c_int64), ("has_first_available", c_int32), ("first_available", Position)]


class ConsumerStats(_Sized):
    _fields_ = [("struct_size", c_size_t), ("messages", c_int64), ("bytes", c_int64), ("cache_bytes", c_int64),
                ("primary_bytes", c_int64)]


def _functions() -> dict[str, tuple[object, list[object]]]:
    """Name -> what it returns, what it takes."""
    code, handle, shards = c_int32, c_void_p, POINTER(c_int32)
    publish = [handle, c_int32, c_char_p, c_size_t, POINTER(Header), c_size_t]
    return {
        "abi_version": (c_int32, []),
        "version": (c_char_p, []),
        "last_error": (c_char_p, []),
        "position_to_text": (code, [POINTER(Position), POINTER(c_char)]),
        "position_from_text": (code, [c_char_p, POINTER(Position)]),
        "serve_metrics": (code, [c_char_p, POINTER(c_int32)]),
        "set_log_levels": (code, [c_char_p]),
        "shard_of_key": (c_int32, [c_char_p, c_size_t, c_int32]),
        "producer_open": (code, [POINTER(ProducerOptions), POINTER(c_void_p)]),
        "producer_free": (None, [handle]),
        "producer_try_publish": (code, [*publish, ON_ACK, c_void_p]),
        "producer_publish_durably": (code, [*publish, POINTER(Position), POINTER(c_int32)]),
        "producer_shard_of": (c_int32, [handle, c_char_p, c_size_t]),
        "producer_shards": (c_size_t, [handle, shards, c_size_t]),
        "producer_flush": (code, [handle, c_int64]),
        "producer_close": (code, [handle, c_int64]),
        "producer_status": (code, [handle]),
        "producer_get_stats": (code, [handle, POINTER(ProducerStats)]),
        "consumer_open": (code, [POINTER(ConsumerOptions), POINTER(c_void_p)]),
        "consumer_free": (None, [handle]),
        "consumer_poll": (code, [handle, c_int64, POINTER(c_void_p), POINTER(c_size_t)]),
        "consumer_position": (code, [handle, c_int32, POINTER(Position)]),
        "consumer_seek": (code, [handle, c_int32, c_char_p]),
        "consumer_shards": (c_size_t, [handle, shards, c_size_t]),
        "consumer_shard_status": (code, [handle, c_int32, POINTER(ShardStatus)]),
        "consumer_get_stats": (code, [handle, POINTER(ConsumerStats)]),
    }


def _places() -> Iterator[str]:
    told = os.environ.get("TAILCAST_LIBRARY")
    if told:  # this one, or none
        yield told
        return
    yield SONAME  # where the loader looks
    yield str(pathlib.Path(sys.prefix, "lib", SONAME))
    binary = shutil.which("tailcast")
    if binary:  # of the same `cmake --install`
        yield str(pathlib.Path(binary).resolve().parent.parent / "lib" / SONAME)


def _load() -> ctypes.CDLL:
    tried = []
    for place in _places():
        try:
            library = ctypes.CDLL(place)
            break
        except OSError as error:
            tried.append(f"  {place}: {error}")
    else:
        raise ImportError(
            f"tailcast needs {SONAME}, which `cmake --install` puts into lib; set TAILCAST_LIBRARY to the file. Tried:\n"
            + "\n".join(tried))
    for name, (result, arguments) in _functions().items():
        function = getattr(library, f"tailcast_{name}", None)
        if function is None:
            raise ImportError(f"{library._name} has no tailcast_{name}: it is older than this package")
        function.restype, function.argtypes = result, arguments
    found = library.tailcast_abi_version()
    if found != ABI_VERSION:
        raise ImportError(f"{library._name} is of ABI version {found}, and this package needs {ABI_VERSION}")
    return library


library = _load()


def check(code: int) -> None:
    """Raises what the call before on this thread reported."""
    if code != OK:
        raise errors.of_code(code, last_error())


def last_error() -> str:
    return library.tailcast_last_error().decode(errors="replace")


def shards_of(function: object, handle: object) -> list[int]:
    count = function(handle, None, 0)  # type: ignore[operator]
    array = (c_int32 * count)()
    function(handle, array, count)  # type: ignore[operator]
    return list(array)


def shard_array(shards: object) -> tuple[object, int]:
    """For the options; none: null."""
    listed = list(shards) if shards is not None else []  # type: ignore[call-overload]
    return ((c_int32 * len(listed))(*listed) if listed else None), len(listed)


def header_array(headers: object) -> tuple[object, int]:
    """Of names and values, for a call; none: null."""
    if not headers:
        return None, 0
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)  # type: ignore[call-overload]
    array = (Header * len(pairs))()
    for i, (name, value) in enumerate(pairs):
        if not isinstance(name, str) or not isinstance(value, (str, bytes)):
            raise TypeError(f"header {name!r}: a name is str, and a value str or bytes, not {type(value).__name__}")
        raw, content = name.encode(), value.encode() if isinstance(value, str) else value
        array[i] = Header(raw, len(raw), content, len(content))
    return array, len(pairs)


def milliseconds(seconds: float) -> int:
    return max(0, _rounded(seconds))


def option_ms(seconds: float) -> int:
    """Of an option, whose bounds the library checks: what is negative stays so, and what is little is not 0, the default."""
    ms = _rounded(seconds)
    return ms if ms != 0 or seconds == 0 else (1 if seconds > 0 else -1)


def _rounded(seconds: float) -> int:
    return math.floor(min(max(seconds, -1e9), 1e12) * 1000 + 0.5)
