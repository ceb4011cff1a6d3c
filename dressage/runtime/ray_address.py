"""Owns the look for a Ray head at an address: Ray itself tries a dead one for minutes."""

import os
import socket
import time

from dressage.errors import ConfigError, DressageError

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a client of HTTP/2, which heads speak, says first: empty settings (RFC 9113, sections 3.4 and 6.5)."""

SETTINGS = 4
"""Type of the frame that a server says first; it stands behind the three bytes of the frame's length."""

HEADER_BYTES = 9

REMEDY = (
    "Start a head with: ray start --head --port 6379; then name HOST:6379. For a cluster on this machine "
    "alone, name 'local'."
)


def check_head(address: str, timeout: float) -> None:
    """Refuse an address where nothing speaks as a head of a Ray cluster does.

    Args:
        address: `HOST:PORT`. Ray's other forms, `auto` and `ray://...`, are left to Ray.
        timeout: Seconds to wait at most.

    Raises:
        ConfigError: If the address has no port.
        DressageError: If nothing answers there in time, or not as a head would.
    """
    if address == "auto" or "://" in address:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"A Ray head's address is HOST:PORT, got {address!r}. {REMEDY}")
    deadline = time.monotonic() + timeout
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout) as connection:
            answer = b"" if _encrypted() else _answer(connection, deadline)
    except TimeoutError as error:
        raise DressageError(
            f"No Ray cluster answers at {address!r} within {timeout:g} s (start_timeout_s). {REMEDY}"
        ) from error
    except (OSError, OverflowError) as error:
        raise DressageError(f"No Ray cluster answers at {address!r}: {error}. {REMEDY}") from error
    if not _encrypted() and (len(answer) < HEADER_BYTES or answer[3] != SETTINGS):
        raise DressageError(f"What answers at {address!r} is no head of a Ray cluster. {REMEDY}")


def _answer(connection: socket.socket, deadline: float) -> bytes:
    """Return the first bytes that a server says, fewer where it hangs up."""
    connection.sendall(HELLO)
    answer = b""
    while len(answer) < HEADER_BYTES:
        left = deadline - time.monotonic()
        if left <= 0.0:
            raise TimeoutError("no answer in time")
        connection.settimeout(left)
        more = connection.recv(HEADER_BYTES - len(answer))
        if not more:
            break
        answer += more
    return answer


def _encrypted() -> bool:
    """Whether Ray is told to speak TLS, which has another beginning."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
