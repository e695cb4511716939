"""A real cluster: a master and two workers, a submitted job, a worker that is lost, attempts that race."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from penstock.spark.standalone import SPARK_HOME, Cluster

from . import faults
from .application import Application, check, import_path, is_alive, made_up_events, prepare
from .interrupted import Settings
from .test_exactly_once import PATIENCE, beginning_of, check_files

LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
}
pytestmark = [pytest.mark.slow, pytest.mark.spark]


def submit(cluster: Cluster, directory: Path) -> Application:
    return Application(directory, [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url])


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "cluster", workers=2, cores=2, environment={"PYTHONPATH": import_path()})


@pytest.mark.parametrize("sink", ["files", "batches"])
def test_a_worker_is_lost_while_a_job_runs(tmp_path: Path, cluster: Cluster, sink: str) -> None:
    events = made_up_events(6, 96_000)
    prepare(tmp_path, Settings(sink, master=None, conf=LOCAL), events, batches=12)
    with cluster, submit(cluster, tmp_path) as application:
        application.wait_for(beginning_of(tmp_path, 4))
        time.sleep(random.Random(sink).uniform(0, 1))
        assert cluster.executors(1), "both workers take part"
        assert cluster.executors(2), "both workers take part"
        cluster.kill_worker(1)
        application.wait(PATIENCE)
    check(tmp_path, events)


def test_slow_attempts_race_with_speculative_ones(tmp_path: Path, cluster: Cluster) -> None:
    events = made_up_events(7, 96_000)
    log = tmp_path / "faults"
    conf = LOCAL | SPECULATION | faults.settings(log, seed=8, kinds=["slow"], share=0.5)
    prepare(tmp_path, Settings("files", master=None, conf=conf), events, batches=12)
    with cluster, submit(cluster, tmp_path) as application:
        application.wait(PATIENCE)
    noted = log.read_text().splitlines()
    print(*noted, sep="\n")
    assert len(noted) >= 6
    assert any("attempt 1" in line for line in noted), "a speculative attempt ran"
    check(tmp_path, events)
    for suffix in (".segment", ".state"):
        check_files(tmp_path, suffix)


def test_the_command_says_where_the_cluster_is_and_leaves_nothing_behind() -> None:
    command = [sys.executable, "-m", "penstock.spark.standalone", "--workers", "1"]
    environment = os.environ | {"PYTHONPATH": import_path()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout is not None
            url, place = process.stdout.readline(), process.stdout.readline()
            started = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGTERM)
            ended = process.wait(PATIENCE)
        finally:
            process.kill()
    assert url.startswith("spark://127.0.0.1:")
    assert len(started) >= 2
    assert ended == 0
    assert not any(map(is_alive, started))
    assert not Path(place.split("logs are in ")[1].split(";")[0]).exists()
