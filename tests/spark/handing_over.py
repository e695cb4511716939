"""A switchboard with its keepers and no Spark: what `test_hand_over` runs, in a process of its own.

    python handing_over.py CASE

Tasks are orders for `fake_task`. The case prints what it saw, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO

import psutil

from penstock.spark import keeper, switchboard, worker_task
from penstock.spark.keeper import hand_over
from penstock.spark.worker_task import Task

seen: list[str] = []
"""How the orders began that this process has had."""


def fake_task(task: Task, outfile: BinaryIO) -> None:
    """Reads what follows the message, does what it orders, and answers."""
    assert isinstance(task.message, bytes)
    order = bytes(task.get_init_message().read(len(task.message))).decode()
    seen.append(order[:6])
    data = task.get_data_stream().read(4).decode()
    if order == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "fail":
        sys.exit(-1)
    if order == "wait":
        time.sleep(2)
    if order == "busy":
        time.sleep(4)
    if order == "hang":
        time.sleep(60)
    outfile.write(json.dumps({"pid": os.getpid(), "seen": seen, "data": data}).encode())


class Spark:
    """Asks the keepers of buckets; answers are what Spark would read from the connection."""

    def __init__(self) -> None:
        self.asking = switchboard.start()

    def ask(self, bucket: str, order: str, data: str = "data") -> dict[str, Any]:
        connection, worker = socket.socketpair()
        with connection:
            with worker:
                connection.sendall(data.encode() + b"more")
                code = hand_over(order.encode(), worker.fileno(), bucket.encode(), self.asking)
            answer = b""
            with contextlib.suppress(ConnectionResetError):  # nobody has read what was sent
                answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        return {"code": code, **(json.loads(answer) if answer else {})}

    def in_a_worker(self, bucket: str, order: str) -> int:
        """The same in a worker's process; returns its id."""
        pid = os.fork()
        if not pid:
            self.ask(bucket, order)
            os._exit(0)
        return pid


def same_bucket(spark: Spark) -> Any:
    return [spark.ask("a", order, data) for order, data in (("one", "1234"), ("two" * 200_000, "5678"), ("", "9012"))]


def two_at_once(spark: Spark) -> Any:
    found: dict[str, list[Any]] = {"a": [], "b": []}
    for _ in range(2):
        threads = [
            threading.Thread(target=lambda name=name: found[name].append(spark.ask(name, "wait"))) for name in found
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


def an_idle_keeper_is_killed(spark: Spark) -> Any:
    before = spark.ask("a", "one")
    kill(before["pid"])
    return [before, spark.ask("a", "two")]


def a_keeper_dies_in_a_task(spark: Spark) -> Any:
    spark.ask("a", "one")
    worker = spark.in_a_worker("a", "die")
    _, status = os.waitpid(worker, 0)
    return {"worker": os.waitstatus_to_exitcode(status), "then": spark.ask("a", "two")}


def a_worker_is_killed_in_a_task(spark: Spark) -> Any:
    before = spark.ask("a", "one")
    worker = spark.in_a_worker("a", "hang")
    time.sleep(1)
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    return {"ended": wait_for_end([before["pid"]]), "then": spark.ask("a", "two"), "before": before}


def a_task_fails(spark: Spark) -> Any:
    before = spark.ask("a", "one")
    failed = spark.ask("a", "fail")
    return {"code": failed["code"], "ended": wait_for_end([before["pid"]]), "then": spark.ask("a", "two")}


def nobody_waits_for_long(spark: Spark) -> Any:
    keeper.PATIENCE_SECONDS = 1.0
    before = spark.ask("a", "one")
    busy = threading.Thread(target=spark.ask, args=("a", "busy"))
    busy.start()
    time.sleep(0.5)
    given_up = spark.ask("a", "two")
    busy.join()
    return {"code": given_up["code"], "before": before, "then": spark.ask("a", "three")}


def the_switchboard_is_killed(spark: Spark) -> Any:
    pids = [spark.ask(name, "one")["pid"] for name in "ab"]
    (board,) = psutil.Process().children()
    kill(board.pid)
    began = time.monotonic()
    code = spark.ask("a", "two")["code"]
    return {"code": code, "seconds": time.monotonic() - began, "ended": wait_for_end([*pids, board.pid])}


def all_ends(spark: Spark) -> Any:
    spark.ask("a", "one")
    return [child.pid for child in psutil.Process().children(recursive=True)]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for_end([pid])


def wait_for_end(pids: list[int], seconds: float = 10) -> bool:
    """Whether the processes end; ours are waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
            return True
        time.sleep(0.02)
    return False


CASES: dict[str, Callable[[Spark], Any]] = {
    case.__name__: case
    for case in (
        same_bucket,
        two_at_once,
        an_idle_keeper_is_killed,
        a_keeper_dies_in_a_task,
        a_worker_is_killed_in_a_task,
        a_task_fails,
        nobody_waits_for_long,
        the_switchboard_is_killed,
        all_ends,
    )
}

if __name__ == "__main__":
    worker_task.run_task = fake_task
    print(json.dumps(CASES[sys.argv[1]](Spark())))
