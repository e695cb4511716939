"""Jars of systems that are written in Java, fetched once by an ordinary Maven client.

The client is `mvn` where it is installed, which reads the user's settings (mirrors, proxies); otherwise Ivy, which
pyspark carries. The jars of each list of coordinates lie in a directory of their own in the user's cache;
`PENSTOCK_JARS` names another place. A directory is whole or not there: it is filled beside and moved.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import InputError, PenstockError
from penstock.instruments import java_home

_TIMEOUT_SECONDS = 900
_TAIL_LINES = 8
_COORDINATE = re.compile(r"[\w.\-]+:[\w.\-]+:[\w.\-]+")

_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


def cache_directory() -> Path:
    """Where fetched jars are kept."""
    given = os.environ.get("PENSTOCK_JARS")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "penstock" / "jars"


def jars(coordinates: Sequence[str], cache: Path | None = None) -> list[Path]:
    """The jars of `group:artifact:version` coordinates and of all that they need at run time; fetched if they are not
    in the cache yet, which takes a minute and a network."""
    for coordinate in coordinates:
        if not _COORDINATE.fullmatch(coordinate):
            raise InputError(f"'{coordinate}' is no Maven coordinate; write group:artifact:version")
    base = cache or cache_directory()
    place = base / _name(coordinates)
    if not place.is_dir():
        _fetch(coordinates, base, place)
    return sorted(place.glob("*.jar"))


def class_path(coordinates: Sequence[str], cache: Path | None = None) -> str:
    """The same, as Java takes it."""
    return os.pathsep.join(str(jar) for jar in jars(coordinates, cache))


def _name(coordinates: Sequence[str]) -> str:
    """Tells a person what is in it, and differs for every list."""
    _, artifact, version = coordinates[0].split(":")
    digest = hashlib.sha256("\n".join(coordinates).encode()).hexdigest()
    return f"{artifact}-{version}-{digest[:8]}"


def _fetch(coordinates: Sequence[str], base: Path, place: Path) -> None:
    try:
        base.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=base, prefix=".fetching-"))
    except OSError as error:
        raise InputError(
            f"jars cannot be kept in {base} ({error.strerror}); PENSTOCK_JARS names another place"
        ) from None
    try:
        drafts = work / "jars"
        drafts.mkdir()
        _run(_command(coordinates, work, drafts), coordinates)
        if not any(drafts.glob("*.jar")):
            raise PenstockError(f"no jars came for {', '.join(coordinates)}")
        try:
            drafts.rename(place)
        except OSError:
            if not place.is_dir():  # else another process has just fetched the same
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _command(coordinates: Sequence[str], work: Path, drafts: Path) -> list[str]:
    maven = shutil.which("mvn")
    if maven is not None:
        pom = work / "pom.xml"
        pom.write_text(_pom(coordinates))
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={drafts}"]
        return [maven, "--batch-mode", "--quiet", "--file", str(pom), *copy]
    ivy = _carried_ivy()
    if ivy is None:
        wanted = ", ".join(coordinates)
        raise InputError(
            f"{wanted} must be fetched and there is no Maven client: install Maven (Debian: `apt-get install maven`),"
            " or `pip install 'penstock[spark]'`, which carries Ivy"
        )
    settings, module = work / "ivysettings.xml", work / "ivy.xml"
    settings.write_text(_IVY_SETTINGS)
    module.write_text(_ivy_module(coordinates))
    files = ["-settings", str(settings), "-ivy", str(module), "-cache", str(work / "ivy")]
    retrieve = ["-retrieve", f"{drafts}/[artifact]-[revision](-[classifier]).[ext]", "-types", "jar", "bundle"]
    return [str(java_home() / "bin" / "java"), "-cp", str(ivy), "org.apache.ivy.Main", "-warn", *files, *retrieve]


def _run(command: list[str], coordinates: Sequence[str]) -> None:
    environment = {**os.environ, "JAVA_HOME": str(java_home())}
    try:
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise PenstockError(f"{', '.join(coordinates)} did not come within {_TIMEOUT_SECONDS} s") from None
    if ran.returncode != 0:
        said = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
        raise PenstockError(
            f"{', '.join(coordinates)} could not be fetched; {Path(command[0]).name} says:\n"
            + "\n".join(said[:_TAIL_LINES])
        )


def _carried_ivy() -> Path | None:
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        return None
    return next(Path(found.submodule_search_locations[0]).glob("jars/ivy-*.jar"), None)


def _pom(coordinates: Sequence[str]) -> str:
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in (coordinate.split(":") for coordinate in coordinates)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>penstock</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{wanted}</dependencies></project>\n"
    )


def _ivy_module(coordinates: Sequence[str]) -> str:
    wanted = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="default->default"/>'
        for group, artifact, version in (coordinate.split(":") for coordinate in coordinates)
    )
    return (
        '<ivy-module version="2.0"><info organisation="penstock" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{wanted}</dependencies></ivy-module>\n'
    )
