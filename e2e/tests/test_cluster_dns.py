"""The DNS probe reads what real servers answer."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from cluster import api

NAME = "kubernetes.default.svc.cluster.local"


def record(name: bytes, kind: int, data: bytes) -> bytes:
    return name + struct.pack(">2HIH", kind, 1, 5, len(data)) + data


def answer(query: bytes, *records: bytes) -> bytes:
    return struct.pack(">6H", 1, 0x8180, 1, len(records), 0, 0) + query[12:] + b"".join(records)


def test_given_addresses_behind_a_pointer_and_an_alias_when_read_then_only_addresses_are_kept():
    query = api.dns_query(NAME)
    alias = record(b"\xc0\x0c", 5, b"\x03web\xc0\x17")
    addresses = [
        record(b"\xc0\x0c", 1, bytes([10, 90, 0, 1])),
        record(b"\x03web\x04test\0", 1, bytes([10, 90, 0, 2])),
    ]
    assert api.dns_addresses(answer(query, alias, *addresses)) == ["10.90.0.1", "10.90.0.2"]


def test_given_a_name_without_addresses_when_read_then_none_are_found():
    assert api.dns_addresses(answer(api.dns_query(NAME))) == []


def test_given_a_server_when_asked_then_its_address_is_returned():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def serve() -> None:
            query, client = server.recvfrom(4096)
            server.sendto(answer(query, record(b"\xc0\x0c", 1, bytes([1, 2, 3, 4]))), client)

        thread = threading.Thread(target=serve)
        thread.start()
        assert api.resolve("127.0.0.1", NAME, server.getsockname()[1]) == ["1.2.3.4"]
        thread.join()


def test_given_nobody_listening_when_asked_then_it_is_an_os_error():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        api.resolve("127.0.0.1", NAME, port)
