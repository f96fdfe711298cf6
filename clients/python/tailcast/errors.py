"""What goes wrong, as exceptions: the class says what a program should do, the text what was wrong, where, and what a
person should do."""

from __future__ import annotations


class Error(Exception):
    """Of all errors that tailcast reports. `code` is that of tailcast.h."""

    code = -1


class Cancelled(Error):
    code = 1


class InvalidArgument(Error, ValueError):
    """Correct what was given."""

    code = 3


class DeadlineExceeded(Error, TimeoutError):
    """No answer in time; the outcome is not known."""

    code = 4


class NotFound(Error):
    """No such name."""

    code = 5


class AlreadyExists(Error):
    code = 6


class PermissionDenied(Error):
    code = 7


class ResourceExhausted(Error):
    """A limit is reached: slow down."""

    code = 8


class FailedPrecondition(Error):
    """Mend something first, then try again."""

    code = 9


class Aborted(Error):
    """Lost a race: redo from the top."""

    code = 10


class OutOfRange(Error):
    """A position that does not exist, or does not any more."""

    code = 11


class Unimplemented(Error):
    code = 12


class Internal(Error):
    """A bug of tailcast's."""

    code = 13


class Unavailable(Error):
    """Try again."""

    code = 14


class DataLoss(Error):
    """Bytes contradict each other: stop and alert."""

    code = 15


class DeliveryError(Error):
    """Messages that were published are not, or perhaps not, in the stream."""

    def __init__(self, failed: int, unknown: int, why: str) -> None:
        super().__init__(f"{failed} messages failed and of {unknown} the outcome is not known{': ' if why else ''}{why}")
        self.failed = failed
        self.unknown = unknown


_BY_CODE = {kind.code: kind for kind in (
    Cancelled, InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists, PermissionDenied, ResourceExhausted,
    FailedPrecondition, Aborted, OutOfRange, Unimplemented, Internal, Unavailable, DataLoss)}


def of_code(code: int, message: str) -> Error:
    error = _BY_CODE.get(code, Error)(message)
    error.code = code
    return error
