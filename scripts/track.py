#!/usr/bin/env python3
"""Gives a run's metrics to Weights & Biases or MLflow, while it trains or afterwards.

    python3 -m pip install wandb              # or mlflow
    python3 scripts/track.py runs/my --to wandb --follow &
    wandb sync runs/my/wandb/offline-run-*    # when there is a network

    python3 scripts/track.py runs/my --to mlflow --tracking-uri sqlite:///runs/mlflow.db

RUN is logging.dir; the script reads its metrics.jsonl and config.json. With --follow the script
waits for the run to begin, follows it, also through restarts, and ends when no process has held the
run for --patience seconds. Iterations that are trained again after a restart are given once. Weights & Biases' run goes into RUN/wandb; it is written offline unless
--online is given. Values that aren't finite, which metrics.jsonl has as null, are left out.
"""

import argparse
import fcntl
import importlib
import json
import os
import pathlib
import signal
import sys
import time


def flat(value, name=""):
    """Flattens nested objects and lists to "a/b" and "a/0"; leaves out null and values that are no number."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from flat(one, f"{name}/{key}" if name else key)
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from flat(one, f"{name}/{i}")
    elif isinstance(value, bool):
        yield name, int(value)
    elif isinstance(value, (int, float)):
        yield name, value


def settings(value, name=""):
    """A config's keys as "model.hidden_size", lists as they are."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from settings(one, f"{name}.{key}" if name else key)
    elif value is not None:
        yield name, value


def config_of(run):
    try:
        config = json.loads((run / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    config.pop("derived", None)
    return dict(settings(config))


class BadLine(Exception):
    pass


class Metrics:
    """The lines of metrics.jsonl as they come, each iteration once."""

    def __init__(self, path):
        self.path, self.last, self.place, self.end = path, None, (None, 0), b""
        self.first = None  # its first line
        self.replaced = False  # another run has the folder now

    def new(self):
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                inode, at = self.place
                if inode not in (None, status.st_ino):
                    self.replaced = True
                    return
                first = file.readline()
                if first.endswith(b"\n"):
                    if self.first not in (None, first):
                        self.replaced = True
                        return
                    self.first = first
                # The file was cut back to a checkpoint, and may have grown again since.
                file.seek(max(0, at - len(self.end)))
                if status.st_size < at or file.read(len(self.end)) != self.end:
                    at = 0
                file.seek(at)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text[:text.rfind(b"\n") + 1]  # the last line may be incomplete
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                metrics = json.loads(line)
                iteration = metrics.pop("iteration")
                if not isinstance(iteration, int):
                    raise ValueError(iteration)
            except (ValueError, KeyError, AttributeError):
                raise BadLine(f"track: {self.path}: a line is not metrics: {line[:80]!r}") from None
            if self.last is None or iteration > self.last:
                self.last = iteration
                yield iteration, dict(flat(metrics))
        if whole:
            self.end = whole[whole.rfind(b"\n", 0, -1) + 1:]
        self.place = (status.st_ino, at + len(whole))


def is_held(run):
    """Whether a process holds the run, which means that it locks .trident-run."""
    try:
        with open(run / ".trident-run", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def library(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        sys.exit(f"track: {error}; python3 -m pip install {name}")


class WeightsAndBiases:
    def __init__(self, options, run):
        wandb = library("wandb")
        self.run = wandb.init(
            project=options.project, name=options.name, dir=str(run), config=config_of(run),
            mode="online" if options.online else "offline",
            settings=wandb.Settings(silent=True, console="off"))

    def log(self, iteration, metrics):
        self.run.log(metrics, step=iteration)

    def flush(self):
        pass  # a separate process writes

    def end(self, failed):
        self.run.finish(exit_code=int(failed))


class MLflow:
    def __init__(self, options, run):
        self.mlflow = mlflow = library("mlflow")
        mlflow.set_tracking_uri(options.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or
                                f"sqlite:///{run.resolve()}/mlflow.db")
        mlflow.set_experiment(options.project)
        self.id = mlflow.start_run(run_name=options.name).info.run_id
        self.client, self.waiting = mlflow.MlflowClient(), []
        items = list(config_of(run).items())
        for i in range(0, len(items), 100):  # its maximum for one call
            mlflow.log_params({key: str(value)[:6000] for key, value in items[i:i + 100]})

    def log(self, iteration, metrics):
        now = int(metrics.get("wall_time", time.time()) * 1000)
        self.waiting += [self.mlflow.entities.Metric(key, value, now, iteration)
                         for key, value in metrics.items()]
        if len(self.waiting) >= 1000:
            self.flush()

    def flush(self):
        for i in range(0, len(self.waiting), 1000):  # its maximum for one call
            self.client.log_batch(self.id, metrics=self.waiting[i:i + 1000])
        self.waiting = []

    def end(self, failed):
        self.flush()
        self.mlflow.end_run("FAILED" if failed else "FINISHED")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, help="logging.dir")
    parser.add_argument("--to", choices=["wandb", "mlflow"], required=True)
    parser.add_argument("--follow", action="store_true", help="follow a run in progress")
    parser.add_argument("--patience", type=float, default=60, metavar="SECONDS",
                        help="that --follow waits while no process has the run (%(default)s)")
    parser.add_argument("--project", default="trident", help="MLflow's experiment (%(default)s)")
    parser.add_argument("--name", help="of the run there (the folder's)")
    parser.add_argument("--online", action="store_true", help="wandb: not offline")
    parser.add_argument("--tracking-uri", help="mlflow: where to, as MLFLOW_TRACKING_URI (RUN/mlflow.db)")
    options = parser.parse_args()
    run = options.run
    options.name = options.name or run.resolve().name
    path = run / "metrics.jsonl"
    if not options.follow and not path.is_file():
        sys.exit(f"track: {path}: there is no such file; name the folder of a run (logging.dir)")
    metrics, tracker, count, seen, failed = Metrics(path), None, 0, time.monotonic(), False
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends it like Ctrl-C
    try:
        while True:
            held = is_held(run)  # before reading, so that the lines of an ended run are complete
            for iteration, values in metrics.new():
                tracker = tracker or {"wandb": WeightsAndBiases, "mlflow": MLflow}[options.to](
                    options, run)
                tracker.log(iteration, values)
                count, seen = count + 1, time.monotonic()
            if tracker:
                tracker.flush()
            if held:
                seen = time.monotonic()
            if metrics.replaced:
                print(f"track: another run has taken {run}: its iterations are not given")
                break
            if not options.follow or time.monotonic() - seen >= options.patience:
                break
            time.sleep(0.5)
    except KeyboardInterrupt:
        pass
    except BadLine as error:
        print(error, file=sys.stderr)
        failed = True
    finally:
        if tracker:
            tracker.end(failed)
    print(f"track: gave {count} iterations to {options.to}")
    return 0 if count and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
