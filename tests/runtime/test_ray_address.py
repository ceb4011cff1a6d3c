"""A head of a Ray cluster is told from a dead address and from whatever else listens, in the time allowed."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest

from dressage.errors import ConfigError, DressageError
from dressage.runtime.ray_address import HELLO, check_head

SETTINGS_FRAME = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@contextmanager
def listening(say):
    """Yield the address of a server that treats one connection as `say` does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                say(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)


def greet(connection):
    assert connection.recv(len(HELLO)) == HELLO
    for byte in SETTINGS_FRAME:  # however few bytes come at once
        connection.sendall(bytes([byte]))


def test_what_greets_as_http_2_does_is_a_head():
    with listening(greet) as address:
        check_head(address, 30.0)


def test_an_address_where_nothing_listens_is_told_at_once_with_how_to_start_a_head():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(
        DressageError, match=f"No Ray cluster answers at '{address}': .*ray start --head --port"
    ):
        check_head(address, 600.0)


def test_something_that_listens_and_says_nothing_is_given_up_after_the_time_allowed():
    gone = threading.Event()
    with listening(lambda connection: gone.wait(60)) as address:
        began = time.monotonic()
        with pytest.raises(DressageError, match=r"answers at '.*' within 0.3 s \(start_timeout_s\)"):
            check_head(address, 0.3)
        assert time.monotonic() - began >= 0.3
        gone.set()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["hangs up", "http 1"])
def test_another_server_is_no_head(answer):
    def say(connection):
        connection.recv(len(HELLO))
        connection.sendall(answer)

    with (
        listening(say) as address,
        pytest.raises(DressageError, match="is no head of a Ray cluster. Start a"),
    ):
        check_head(address, 30.0)


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.1:", ":6379", "head:port"])
def test_an_address_without_a_port_is_refused(address):
    with pytest.raises(ConfigError, match="A Ray head's address is HOST:PORT, got"):
        check_head(address, 1.0)


@pytest.mark.parametrize("address", ["auto", "ray://10.0.0.1:10001"])
def test_rays_other_forms_of_an_address_are_left_to_ray(address):
    check_head(address, 0.001)


def test_a_server_that_speaks_tls_is_left_to_ray(monkeypatch):
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with listening(lambda connection: None) as address:
        check_head(address, 30.0)
