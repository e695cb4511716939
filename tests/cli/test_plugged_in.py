"""Commands of other packages: found by their entry points, loaded when they are run, told where they are missing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from penstock.cli import plugged_in

Penstock = Callable[..., tuple[int, str, str]]

MODULE = """
import typer

app = typer.Typer(add_completion=False)


@app.command()
def hello(name: str) -> None:
    '''Greet.'''
    typer.echo(f"hello {name}")
"""


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """These entry points are all that there are."""

    def offer(*points: EntryPoint) -> None:
        monkeypatch.setattr(plugged_in, "entry_points", lambda group: list(points))

    return offer


@pytest.mark.parametrize("name", plugged_in.LABORATORY)
def test_a_command_of_the_laboratory_says_what_to_install(
    penstock: Penstock, offered: Callable[..., None], name: str
) -> None:
    offered()
    code, out, err = penstock(name, "vwap", "--quick")
    assert (code, out) == (2, "")
    assert err == f"penstock {name} comes with a package of its own: pip install penstock-bench\n"


def test_the_commands_of_the_laboratory_are_installed(penstock: Penstock) -> None:
    code, out, _ = penstock("--help")
    assert code == 0
    assert all(name in out for name in plugged_in.LABORATORY)


def test_a_package_adds_a_command_that_is_loaded_when_it_is_run(
    penstock: Penstock, offered: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("greetings.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.delitem(sys.modules, "greetings", raising=False)
    offered(EntryPoint("hello", "greetings:app", plugged_in.GROUP))
    assert penstock("--version")[0] == 0
    assert "greetings" not in sys.modules
    assert penstock("hello", "you")[:2] == (0, "hello you\n")
    assert "Greet." in penstock("--help")[1]
    assert "penstock hello" in penstock("hello", "--help")[1]
    assert penstock("nothing")[0] == 2
