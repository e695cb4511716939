"""A real browser and real servers. The browser is the Chromium on the PATH; where there is none it is installed, or the
tests say what to install."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

WAIT = 60_000
"""Milliseconds that something may take on a machine with other work."""

expect.set_options(timeout=WAIT)


def chromium() -> str:
    if (found := _on_the_path()) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        # One worker installs. `apt-get update` of another one may remove the packages that are being unpacked.
        with open(Path(tempfile.gettempdir()) / "penstock-tests-apt.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (found := _on_the_path()) is None:
                _install()
                found = _on_the_path()
    if found is None:
        pytest.fail("the tests of the pages need a browser on the PATH: as by 'apt-get install chromium'")
    return found


def _on_the_path() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _install() -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", "chromium"]):
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser without memory, at the size of a small laptop. At the end nothing may have gone wrong on a page, and
    nothing have been asked for from elsewhere."""
    made = browser.new_context(viewport={"width": 1366, "height": 768}, color_scheme="light")
    made.set_default_timeout(WAIT)
    wrong: list[str] = []
    made.on("weberror", lambda error: wrong.append(str(error.error)))
    made.on("request", lambda request: None if _is_ours(request.url) else wrong.append(request.url))
    yield made
    made.close()
    assert wrong == []


def _is_ours(url: str) -> bool:
    return re.match(r"(https?|wss?)://127\.0\.0\.1[:/]|data:|blob:", url) is not None


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


def wait_for_keys(page: Page) -> None:
    """A busy machine shows a page long before it answers to keys."""
    page.wait_for_function("window.did_handshake")


Serve = Callable[..., str]


def base(url: str) -> str:
    """The address without the token, for a browser that has been there."""
    return url.partition("?")[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a file's tests and servers."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def serve(place: Path) -> Iterator[Serve]:
    """Starts a process there and gives the address that it prints, with the token. All end with Ctrl-C, whatever they
    are doing."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object) -> str:
        log = place / f"log-{len(started)}.txt"
        with log.open("wb") as to:
            process = subprocess.Popen(
                [sys.executable, *map(str, arguments)], cwd=place, stdin=subprocess.DEVNULL, stdout=to, stderr=to
            )
        started.append(process)
        until = time.monotonic() + 3 * WAIT / 1000
        while time.monotonic() < until:
            if found := re.search(r"http://\S+(?=\s)", log.read_text(encoding="utf-8", errors="replace")):
                return found[0]
            if process.poll() is not None:
                break
            time.sleep(0.05)
        pytest.fail(f"no address came:\n{log.read_text()}")

    yield start
    for process in started:
        process.send_signal(signal.SIGINT)
    for process in started:
        assert process.wait(WAIT / 1000) in (0, 130, -signal.SIGINT)
