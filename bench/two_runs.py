#!/usr/bin/env python3
"""Measures how much two programs on one machine slow each other down: two runs, or an evaluation
and a run.

    python bench/two_runs.py [--cases small,ranks,...] [--rounds N] [--against PROGRAM]
        [--environments "GOMP_SPINCOUNT=0 OMP_WAIT_POLICY=passive"]

Each round runs a case alone, and then together with another program, which is restarted whenever it
ends earlier; programs and environments take turns. Prints medians of the seconds alone, of the CPU
seconds, and of the ratios of a round: together over alone, and alone over alone with the first program
and environment. Two programs that share the cores fairly take 2 times as long.

A run's time is the reported time of its iterations without the first fifth. An evaluation's time is
that of its process. Other programs would spoil the figures: use a quiet machine.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from side_by_side import PROGRAM, THREADS, machine

MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}
# layers, width, sequence, micro-batch; layout; iterations; processes of mpirun, 0: without
MODELS = {
    "tiny": (2, 64, 64, 2, {}, 1500, 0),
    "small": (4, 128, 128, 4, {}, 300, 0),
    "medium": (4, 512, 256, 4, {}, 12, 0),
    "two_ranks": (4, 128, 128, 2, {"data_parallel_size": 2}, 200, 0),
    "eight_ranks": (4, 128, 128, 2, {"data_parallel_size": 2, "tensor_model_parallel_size": 2,
                                     "pipeline_model_parallel_size": 2}, 60, 0),
    "mpi": (4, 128, 128, 2, {"data_parallel_size": 2}, 200, 2),
    "mpi_crowded": (4, 128, 128, 2, {"data_parallel_size": 2}, 200, 2),
}


class Bench:
    def __init__(self, folder, program, environment, scale):
        self.folder, self.program, self.environment = folder, program, environment
        self.scale = scale

    def config(self, case, run):
        layers, width, sequence, micro_batch, layout, iterations, _ = MODELS[case]
        config = {
            "model": {"architecture": "gpt2", "num_layers": layers, "hidden_size": width,
                      "num_attention_heads": max(1, width // 32), "vocab_size": 256},
            "parallel": layout, "data": {"train": [{"path": str(self.folder / "text.txt")}],
                                         "sequence_length": sequence},
            "batch": {"micro_batch_size": micro_batch, "gradient_accumulation_steps": 2},
            "training": {"train_iters": max(5, round(iterations * self.scale))},
            "logging": {"dir": str(run), "tensorboard": False, "trace": False}}
        if case == "mpi_crowded":
            config["runtime"] = {"threads_per_rank": THREADS}
        return config

    def command(self, case, run):
        if case == "eval":
            return [self.program, "eval", self.folder / "weights", "--data",
                    self.folder / "text.txt"]
        path = run.with_suffix(".json")
        path.write_text(json.dumps(self.config(case, run)))
        ranks = MODELS[case][-1]
        return [*(["mpirun", "-n", ranks] if ranks else []), self.program, "train", path]

    def run(self, case, name, over=None):
        """Returns the seconds, or None if `over` ended the run."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            run = pathlib.Path(scratch) / name
            begin = time.monotonic()
            child = subprocess.Popen([str(word) for word in self.command(case, run)],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                     env={**os.environ, **MPI, **self.environment})
            while over is not None and child.poll() is None:
                if over.wait(0.02):
                    child.terminate()
                    child.wait()
                    return None
            _, errors = child.communicate()
            if child.returncode != 0:
                sys.exit(f"{case}: {errors}")
            if case == "eval":
                return time.monotonic() - begin
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            return sum(line["iteration_time_ms"] for line in lines[len(lines) // 5:]) / 1000

    def beside(self, case, other):
        """The seconds of `case` while `other` runs repeatedly."""
        over = threading.Event()

        def keep_running():
            while not over.is_set():
                self.run(other, "other", over)

        thread = threading.Thread(target=keep_running)
        thread.start()
        try:
            return self.run(case, "own")
        finally:
            over.set()
            thread.join()

    def alone(self, case):
        before = os.times()
        seconds = self.run(case, "own")
        after = os.times()
        cpu = (after.children_user - before.children_user
               + after.children_system - before.children_system)
        return seconds, cpu


def environment_of(text):
    """"A=1 B=2" as a dictionary."""
    return dict(word.split("=", 1) for word in text.split())


def make_inputs(folder, program):
    words = [f"w{random.Random(i).randrange(10 ** 4)}" for i in range(2000)]
    (folder / "text.txt").write_text(" ".join(random.Random(1).choices(words, k=60_000)))
    bench = Bench(folder, program, {}, 1)
    config = bench.config("small", folder / "first")
    config["checkpoint"] = {"save": str(folder / "weights")}
    config["training"]["train_iters"] = 1
    (folder / "first.json").write_text(json.dumps(config))
    subprocess.run([program, "train", folder / "first.json"], check=True, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--against", type=pathlib.Path, help="the first way: another build")
    parser.add_argument("--environments", nargs="*", default=[""],
                        help="variables for the program, each a way of its own")
    parser.add_argument("--cases", default="tiny,small,medium,two_ranks,eight_ranks,mpi,eval")
    parser.add_argument("--beside", help="another case than the one that is measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="of the runs' lengths")
    arguments = parser.parse_args()
    programs = [arguments.against] if arguments.against else []
    ways = [(str(p.name), p.resolve(), {}) for p in programs]
    ways += [(text or arguments.program.name, arguments.program.resolve(), environment_of(text))
             for text in arguments.environments]
    print(machine())
    print(f"{'case':12} {'way':40} {'alone s':>8} {'CPU s':>7} {'of first':>8} {'beside':>7}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        make_inputs(folder, arguments.program.resolve())
        for case in arguments.cases.split(","):
            other = arguments.beside or ("small" if case == "eval" else case)
            found = {name: [] for name, _, _ in ways}
            for _ in range(arguments.rounds):
                first = None
                for name, program, environment in ways:
                    bench = Bench(folder, program, environment, arguments.scale)
                    seconds, cpu = bench.alone(case)
                    first = first or seconds
                    found[name].append((seconds, cpu, seconds / first,
                                        bench.beside(case, other) / seconds))
            for name, rows in found.items():
                seconds, cpu, of_first, beside = map(statistics.median, zip(*rows))
                print(f"{case:12} {name:40} {seconds:8.2f} {cpu:7.2f} {of_first:8.3f} "
                      f"{beside:7.2f}", flush=True)


if __name__ == "__main__":
    main()
