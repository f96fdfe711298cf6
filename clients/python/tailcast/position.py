"""Places in a stream."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from tailcast import _library


class Position(NamedTuple):
    """A place in a shard, the same in every cell. str() gives the text that people and programs keep."""

    stream: int  # incarnation of the stream
    shard: int
    number: int  # messages of the shard before the place
    byte: int  # bytes of the shard before the place

    def __str__(self) -> str:
        text = ctypes.create_string_buffer(_library.POSITION_TEXT_SIZE)
        _library.check(_library.library.tailcast_position_to_text(to_c(self), text))
        return text.value.decode()

    @classmethod
    def parse(cls, text: str) -> Position:
        """InvalidArgument: not exactly what str() gives."""
        found = _library.Position()
        _library.check(_library.library.tailcast_position_from_text(text.encode(), found))
        return of_c(found)


def to_c(position: Position) -> _library.Position:
    return _library.Position(position.stream, position.number, position.byte, position.shard)


def of_c(position: _library.Position) -> Position:
    return Position(position.stream, position.shard, position.number, position.byte)
