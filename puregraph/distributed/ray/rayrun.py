"""RayRun: a script as several processes whose machines Ray gives, and gives again when some of them are lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from puregraph.core.errors import PuregraphError
from puregraph.distributed.ray.rayworker import runWorker
from puregraph.distributed.worlds.mpiworld import PEER_SECONDS


class RayRun:
    """A script that Ray Train supervises: `RayRun("train.py", workers=(2, 8)).fit()`.

    Each worker of Ray runs one process of the script; the processes use MPI, as with `puregraph launch`. If a worker or
    its process is lost, all are restarted, as many as the cluster has room for, and the script resumes from the file
    that it has saved:

        trainer = Trainer(..., grains=8, callbacks=[Checkpoint("run.h5", every=100)])
        if Path("run.h5").exists():
            trainer.resume("run.h5")
        trainer.train(...)

    `workers`    the number of workers, or (fewest, most)
    `arguments`  the arguments of the script
    `failures`   the number of restarts before the run is given up
    `resources`  the resources of each worker in Ray's terms: {"CPU": 1}
    `interval`   seconds between checks whether the number of workers can grow or must shrink
    `patience`   seconds that a process waits for others, as in `puregraph launch`
    `storage`    the folder for Ray's records of the run, which all machines must reach; None: Ray's default

    Source    Moritz et al. 2018, Ray: A Distributed Framework for Emerging AI Applications, arXiv:1712.05889
    Raises    PuregraphError for an invalid number of workers, or a script that does not exist
    """

    def __init__(
        self,
        script: str | os.PathLike[str],
        workers: int | tuple[int, int] = 1,
        arguments: tuple[Any, ...] = (),
        failures: int = 3,
        resources: dict[str, float] | None = None,
        interval: float = 60.0,
        patience: float = PEER_SECONDS,
        storage: str | os.PathLike[str] | None = None,
    ):
        fewest, most = workers if isinstance(workers, tuple) and len(workers) == 2 else (workers, workers)
        isWhole = all(isinstance(n, int) and not isinstance(n, bool) for n in (fewest, most))
        if not (isWhole and 1 <= fewest <= most):
            raise PuregraphError(f"workers: wanted a number of at least 1, or (fewest, most), got {workers!r:.60}")
        if not Path(script).is_file():
            raise PuregraphError(f"there is no script {os.fspath(script)!r}")
        self.script, self.arguments = Path(script).resolve(), [str(argument) for argument in arguments]
        self.workers, self.failures, self.interval, self.patience = workers, failures, interval, patience
        self.resources, self.storage = resources, None if storage is None else os.path.abspath(storage)

    def fit(self) -> None:
        """Run the script to its end, on the cluster that this process is connected to, else on this machine.

        Raises    PuregraphError if Ray is missing, and with the last words of the script where it is given up
        """
        trainer = self.trainer()
        import ray

        try:
            trainer.fit()
        except ray.train.TrainingFailedError as error:
            causes = [str(failure) for failure in getattr(error, "worker_failures", {}).values()]
            raise PuregraphError(
                f"RayRun: '{self.script.name}' is given up: {causes[0] if causes else error}"
            ) from error

    def trainer(self) -> Any:
        """Return the run as a DataParallelTrainer of Ray.

        Raises    PuregraphError if Ray is missing
        """
        try:
            from ray.train import FailureConfig, RunConfig, ScalingConfig
            from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
        except ImportError as error:
            raise PuregraphError(f"RayRun takes Ray Train: pip install 'puregraph[ray,mpich]' ({error})") from error
        scaling: dict[str, Any] = {"num_workers": self.workers, "resources_per_worker": self.resources}
        if isinstance(self.workers, tuple):
            scaling["elastic_resize_monitor_interval_s"] = self.interval
        settings = {
            "script": str(self.script),
            "arguments": self.arguments,
            "folder": os.getcwd(),
            "patience": self.patience,
            "threads": max(int((self.resources or {}).get("CPU", 1)), 1),
        }
        run = RunConfig(storage_path=self.storage, failure_config=FailureConfig(max_failures=self.failures))
        return DataParallelTrainer(
            runWorker, train_loop_config=settings, scaling_config=ScalingConfig(**scaling), run_config=run
        )

    def __repr__(self) -> str:
        return f"<RayRun of {self.script.name}, workers {self.workers}>"
