"""Who gets in: nobody without the token, on the loopback neither, for pages, assets and websockets alike."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from penstock.errors import InputError
from penstock.web.server import take_address
from penstock_bench.cli.ui import _leading_to
from web.conftest import Serve

UI = ("-m", "penstock", "ui", "--no-browser", "--port", "0")

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def ask(port: int, path: str, headers: dict[str, str] | None = None) -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers=headers or {})
    answer = connection.getresponse()
    answer.read() if answer.status != 101 else connection.close()
    return answer


def port_and_token(url: str) -> tuple[int, str]:
    address = urlsplit(url)
    assert address.port is not None
    return address.port, parse_qs(address.query)["token"][0]


def test_a_token_is_asked_for_everywhere(page: Page, serve: Serve) -> None:
    port, token = port_and_token(serve(*UI))
    assert len(token) >= 32
    asset = "/penstock/penstock.css"
    sockets = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    for path in ("/", "/controller", asset, "/_nicegui_ws/socket.io/?EIO=4&transport=polling", "/nothing"):
        assert ask(port, path).status == 401, path
        assert ask(port, path, {"Authorization": "Bearer wrong"}).status == 401
        assert ask(port, path, {"Cookie": f"penstock_{port}=wrong"}).status == 401
    assert ask(port, "/?token=wrong").status == 401
    assert ask(port, sockets, UPGRADE).status == 403
    right = {"Authorization": f"Bearer {token}"}
    assert ask(port, asset, right).status == 200
    assert ask(port, sockets, UPGRADE | right).status == 101
    assert ask(port, sockets, UPGRADE | right | {"Origin": "http://elsewhere.example"}).status == 403
    let_in = ask(port, f"//elsewhere.example/?token={token}&a=1")
    assert (let_in.status, let_in.headers["Location"]) == (303, "/elsewhere.example/?a=1")
    assert "HttpOnly" in let_in.headers["Set-Cookie"]

    page.goto(f"http://127.0.0.1:{port}/controller")
    expect(page.get_by_role("heading", name="These pages need a token")).to_be_visible()
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading", name="Controller")).to_be_visible()
    assert "token" not in page.url
    page.reload()
    expect(page.locator("[data-check]")).to_contain_text("The setup is complete")


def test_requests_of_other_sites_and_broken_headers_are_refused(serve: Serve) -> None:
    port, token = port_and_token(serve(*UI, "--host", "0.0.0.0", "--token", "given-token"))
    assert token == "given-token"
    right = {"Authorization": f"Bearer {token}"}
    assert ask(port, "/controller", right).status == 200
    own = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}
    assert ask(port, "/controller", right | own).status == 200
    assert ask(port, "/controller", right | {"Origin": "http://elsewhere.example"}).status == 403
    assert ask(port, "/controller", right | {"Origin": f"http://127.0.0.1:{port + 1}"}).status == 403
    for broken in ("[::1", "[::1]:x", "u@127.0.0.1", "a/b", ""):
        for headers in ({}, right):
            assert ask(port, "/controller", headers | {"Host": broken}).status == 400, broken
    for broken in ("http://[::1", "null", "", "http://"):
        assert ask(port, "/controller", right | {"Origin": broken}).status == 403, broken


def test_a_browser_is_led_to_the_pages_by_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    page = _leading_to("http://127.0.0.1:1/?token=secret&a", tmp_path)
    assert page.stat().st_mode & 0o077 == 0
    assert "url=http://127.0.0.1:1/?token=secret&amp;a" in page.read_text()


@pytest.mark.slow
def test_what_is_wrong_with_an_address_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "penstock", "ui", "--no-browser", "--port", str(port)]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert ran.stderr == f"port {port} of 127.0.0.1 is in use; choose another one, or 0 for any that is free\n"
    with pytest.raises(InputError, match="at least 8 letters"):
        take_address("127.0.0.1", 0, "short")
    with pytest.raises(InputError, match=re.escape("--host no such host")):
        take_address("no such host", 0, None)
    with pytest.raises(InputError, match="this machine has no such address"):
        take_address("192.0.2.1", 0, None)
