"""What an error of a provider says: the backend is in trouble, or this write is bad."""

from __future__ import annotations

import math
import socket
import urllib.error
from email.message import Message
from typing import Any

import pytest

from hermes_core import WriteRefused
from hermes_core.errors import DeadlineExceeded
from hermes_core.outbox.failures import Fault, fault_of, retry_after
from hermes_core.service import BackendError, Cause, RefusedError, failure

pytestmark = pytest.mark.files_only("nothing is stored")


class HttpError(Exception):
    """What an SDK raises; the status is where the test puts it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__("http")
        self.__dict__.update(attributes)


class Response:
    def __init__(self, status: int) -> None:
        self.status_code = status


def caused(error: Exception, by: Exception) -> Exception:
    error.__cause__ = by
    return error


def while_handling(error: Exception, other: Exception) -> Exception:
    error.__context__ = other
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        *((kind("x"), Fault.BACKEND) for kind in (OSError, ConnectionError, TimeoutError)),
        (socket.gaierror(-2, "unknown"), Fault.BACKEND),
        (DeadlineExceeded("slow"), Fault.BACKEND),
        *((kind("x"), Fault.WRITE) for kind in (KeyError, ValueError, TypeError, RuntimeError)),
        (WriteRefused("no"), Fault.REFUSED),
        (NotImplementedError("no"), Fault.REFUSED),
        *((HttpError(status_code=code), Fault.REFUSED) for code in (400, 404, 413, 422)),
        *((HttpError(response=Response(code)), Fault.REFUSED) for code in (400, 422)),
        *((HttpError(status=code), Fault.REFUSED) for code in (400, 422)),
        *((HttpError(status_code=code), Fault.BACKEND) for code in (401, 403, 408, 429, 500, 503)),
        (HttpError(status_code="422"), Fault.WRITE),
        (HttpError(status=200), Fault.WRITE),
        (urllib.error.HTTPError("u", 422, "no", Message(), None), Fault.REFUSED),
        (urllib.error.HTTPError("u", 502, "no", Message(), None), Fault.BACKEND),
        (caused(RuntimeError("wrapped"), HttpError(status_code=422)), Fault.REFUSED),
        (caused(RuntimeError("wrapped"), ConnectionError("down")), Fault.BACKEND),
        (while_handling(RuntimeError("wrapped"), ConnectionError("down")), Fault.BACKEND),
        (caused(ConnectionError("outer"), HttpError(status_code=422)), Fault.BACKEND),
        *(
            (failure(cause, service="x"), Fault.BACKEND)
            for cause in Cause
            if cause not in (Cause.REFUSED, Cause.MISSING)
        ),
        (failure(Cause.REFUSED, service="x"), Fault.REFUSED),
        (failure(Cause.MISSING, service="x"), Fault.WRITE),
        (failure(Cause.REFUSED, service="x", final=False), Fault.WRITE),
        (
            caused(failure(Cause.UNREACHABLE, service="x"), HttpError(status_code=422)),
            Fault.BACKEND,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else f"{value!r}"[:60],
)
def test_whose_fault_it_is(error: Exception, fault: Fault) -> None:
    assert fault_of(error) is fault


def test_a_chain_of_causes_that_is_a_circle_ends() -> None:
    error = KeyError("x")
    error.__cause__ = caused(ValueError("y"), error)
    assert fault_of(error) is Fault.WRITE


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (HttpError(retry_after=30), 30.0),
        (HttpError(retry_after=2.5), 2.5),
        (caused(RuntimeError("x"), HttpError(retry_after=7)), 7.0),
        (failure(Cause.QUOTA, service="x", retry_after=9.0), 9.0),
        (failure(Cause.QUOTA, service="x"), 0.0),
        *((HttpError(retry_after=value), 0.0) for value in ("30", None, -1, math.nan)),
        (HttpError(retry_after=math.inf), 86_400.0),
        (HttpError(retry_after=10**400), 86_400.0),
    ],
)
def test_how_long_a_backend_asks_us_to_wait(error: Exception, seconds: float) -> None:
    assert retry_after(error) == seconds


def test_a_refusal_of_a_service_is_both_an_error_of_ours_and_a_refused_write() -> None:
    error = failure(Cause.REFUSED, service="honcho", detail="bad token")
    assert isinstance(error, RefusedError)
    assert isinstance(error, BackendError)
    assert isinstance(error, WriteRefused)
    assert error.cause is Cause.REFUSED
    assert not isinstance(failure(Cause.UNREACHABLE, service="honcho"), WriteRefused)
