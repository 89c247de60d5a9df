"""A real Dask cluster: a scheduler and workers, processes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from tests.cli.calls import PATIENCE_S, environment, wait_until

WORKERS = 2


def start(*words: str | Path, log: Path, **changes: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "dask", *map(str, words)]
    env = environment(PYTHONWARNINGS="ignore", **changes)
    with log.open("wb") as file:
        return subprocess.Popen(line, env=env, stdout=file, stderr=file)


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        common = ("--scheduler-file", self.file, "--no-dashboard")
        self.processes = [
            start("scheduler", *common, "--host", "127.0.0.1", "--port", "0", log=folder / "scheduler.log")
        ]
        for _ in range(WORKERS):
            self.start_worker()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of distributed itself
            import distributed

            open_client: Any = distributed.Client  # it has no types
            self.client = open_client(scheduler_file=str(self.file), timeout=PATIENCE_S, set_as_default=False)
            self.client.wait_for_workers(WORKERS, timeout=PATIENCE_S)
        self.address: str = self.client.scheduler.address

    def start_worker(self, *, nanny: bool = False, **changes: str) -> str:
        name = f"worker{len(self.processes)}"
        common = ("--scheduler-file", self.file, "--no-dashboard", "--nthreads", "1")
        common = (*common, "--nanny" if nanny else "--no-nanny")  # type: ignore[assignment]
        where = ("--name", name, "--local-directory", self.folder, "--death-timeout", "60")
        self.processes.append(start("worker", *common, *where, log=self.folder / f"{name}.log", **changes))
        return name

    def add_worker(self, *, nanny: bool = False, **changes: str) -> str:
        name = self.start_worker(nanny=nanny, **changes)
        wait_until(lambda: name in self.workers())
        return name

    def workers(self) -> set[str]:
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return {worker["name"] for worker in workers.values()}

    def kill_a_busy_worker(self) -> bool:
        """Kill a worker that has something to do, if there is any."""
        pids = self.client.run(os.getpid)
        for worker, tasks in self.client.processing().items():
            if tasks and worker in pids:
                os.kill(pids[worker], signal.SIGKILL)
                return True
        return False

    def close(self) -> None:
        self.client.close()
        for process in reversed(self.processes):
            process.kill()  # asked to end, some wait for others that ended before
        for process in self.processes:
            process.wait()
