#!/usr/bin/env python3
"""Times a pipeline whose stages sum their gradients over slow links: during backward, and after it.

    bench/slow_links.py [--program P] [--stages N] [--rate MBIT] [--rounds N] [--other P]

Trains data 2 × pipeline N (4) with each rank on a host of its own. The hosts are network namespaces
joined by a bridge; a token bucket holds their links at a rate (80 Mbit/s). Needs root. Runs with
overlap_comm true and false take turns, and the figures are medians of their steps. "one stage's sums"
is the time of the largest stage's gradients on its link. --other is a program to compare with, for
example another build. Namespaces are named by this process's id and always removed.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile

from side_by_side import PROGRAM, machine


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


class Hosts:
    """Namespaces, each with one link of the given Mbit/s to the bridge in the first one."""

    def __init__(self, count, rate):
        self.names = [f"tl{os.getpid()}-{i}" for i in range(count)]
        self.rate = rate

    def __enter__(self):
        hub = self.names[0]
        for i, name in enumerate(self.names):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            if i == 0:
                run("ip", "-n", hub, "link", "add", "hub", "type", "bridge")
                run("ip", "-n", hub, "link", "set", "hub", "up")
            run("ip", "link", "add", "v0", "netns", name, "type", "veth", "peer", "name", f"p{i}",
                "netns", hub)
            run("ip", "-n", hub, "link", "set", f"p{i}", "master", "hub")
            run("ip", "-n", hub, "link", "set", f"p{i}", "up")
            run("ip", "-n", name, "address", "add", f"10.78.0.{i + 1}/24", "dev", "v0")
            run("ip", "-n", name, "link", "set", "v0", "up")
            run("tc", "-n", name, "qdisc", "add", "dev", "v0", "root", "tbf", "rate",
                f"{self.rate}mbit", "burst", "256kbit", "latency", "400ms")
        return self

    def __exit__(self, *error):
        for name in reversed(self.names):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def train(program, folder, hosts, shell, overrides):
    """The milliseconds of each iteration except the first."""
    ranks = len(hosts.names)
    command = ["ip", "netns", "exec", hosts.names[0], "unshare", "--uts", "sh", "-c",
               'hostname "$0"; exec "$@"', hosts.names[0], "mpirun", "--oversubscribe", "--bind-to",
               "none", "--host", ",".join(hosts.names), "-n", str(ranks)]
    for key, value in (("plm_rsh_agent", str(shell)), ("oob_tcp_if_include", "10.78.0.0/24"),
                       ("btl_tcp_if_include", "10.78.0.0/24")):
        command += ["--mca", key, value]
    command += [str(program), "train", "c.json", "--quiet"]
    for one in overrides:
        command += ["--set", one]
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    lines = (folder / "run/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["iteration_time_ms"] for line in lines[1:]]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--other", type=pathlib.Path)
    parser.add_argument("--stages", type=int, default=4)
    parser.add_argument("--rate", type=float, default=80)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    hidden, layers = 192, 2 * options.stages
    parameters = 12 * hidden * hidden * layers // options.stages + 256 * hidden
    # A sum over two ranks sends a part of the gradients' bytes each way.
    sums = 4 * parameters * 8 / (options.rate * 1e6)
    programs = {"": options.program} | ({"other, ": options.other} if options.other else {})
    with tempfile.TemporaryDirectory() as name, Hosts(2 * options.stages, options.rate) as hosts:
        folder = pathlib.Path(name)
        shell = folder / "shell"
        shell.write_text('#!/bin/sh\nhost=$1\nshift\nexec ip netns exec "$host" unshare --uts sh -c '
                         '"hostname $host; $*"\n')
        shell.chmod(0o755)
        (folder / "text.txt").write_bytes(random.Random(1).randbytes(100_000))
        (folder / "c.json").write_text(json.dumps({
            "model": {"num_layers": layers, "hidden_size": hidden, "num_attention_heads": 4,
                      "tie_word_embeddings": False},
            "parallel": {"data_parallel_size": 2, "pipeline_model_parallel_size": options.stages},
            "batch": {"micro_batch_size": 1, "gradient_accumulation_steps": 2 * options.stages},
            "data": {"train": [{"path": "text.txt"}], "sequence_length": 32},
            "training": {"train_iters": 4, "eval_interval": 0},
            "runtime": {"threads_per_rank": 1, "timeout_seconds": 120},
            "logging": {"dir": "run", "overwrite": True, "tensorboard": False, "trace": False}}))
        times = {}
        for _ in range(options.rounds):
            for label, program in programs.items():
                for overlap in ("true", "false"):
                    times.setdefault(label + "overlap_comm " + overlap, []).extend(
                        train(program, folder, hosts, shell,
                              [f"zero_optimization.overlap_comm={overlap}"]))
    print(machine())
    print(f"data 2 × pipeline {options.stages}, {options.rate:g} Mbit/s a link, "
          f"one stage's sums {1e3 * sums:.0f} ms")
    for name, values in times.items():
        print(f"{name}: median {statistics.median(values):.0f} ms of {len(values)} steps "
              f"({min(values):.0f} to {max(values):.0f})")


if __name__ == "__main__":
    main()
