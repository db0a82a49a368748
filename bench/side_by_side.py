"""Helpers of the comparisons: the machine's name, runs of a command, and `trident bench step`."""

import concurrent.futures
import json
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/trident"
CONFIG = ROOT / "configs/gpt2_124m.json"
THREADS = len(os.sched_getaffinity(0))


def machine():
    """The processor, its cores and its widest instructions in one line."""
    names = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo")
             if line.startswith("model name")]
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split()
    wide = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores, {' '.join(wide)}"


def step_command(program, config, steps, settings):
    """`trident bench step` with {setting: value} in JSON."""
    return [program, "bench", "step", config, "--format", "json", "--iterations", steps,
            *[word for key, value in settings.items() for word in ("--set", f"{key}={value}")]]


def document(text):
    """The JSON object that a program printed last."""
    return json.loads(text[text.index("{"):])


def run_ranks(command, ranks, limit=None, **environment):
    """Runs `command` once for each rank, with torch.distributed's environment variables.

    Returns the ranks' documents, or the last line of the first error as a string.
    """
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    base = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), **{k: str(v) for k, v in environment.items()}}
    base.pop("OPENBLAS_CORETYPE", None)  # a baseline makes its own choice
    children = [subprocess.Popen([str(c) for c in command], cwd=ROOT, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env={**base, "RANK": str(rank),
                                      "LOCAL_RANK": str(rank)}) for rank in range(ranks)]
    problems = []  # in order of time; ranks stopped after the first problem add more

    def ended(child):  # all ranks are read at once, so that none waits to write
        try:
            output, errors = child.communicate(timeout=limit)
            if child.returncode == 0:
                return document(output)
            problems.append((errors.strip().splitlines() or [f"exit {child.returncode}"])[-1])
        except subprocess.TimeoutExpired:
            problems.append(f"longer than {limit} s")
        for other in children:
            other.kill()
        return None

    with concurrent.futures.ThreadPoolExecutor(ranks) as readers:
        documents = list(readers.map(ended, children))
    for child in children:
        child.wait()
    return problems[0] if problems else documents


def run(command, **environment):
    """One run's document; an error ends the comparison."""
    result = run_ranks(command, 1, **environment)
    if isinstance(result, str):
        sys.exit(f"{' '.join(map(str, command))}\n{result}")
    return result[0]


def in_turns(ways, rounds, measure):
    """{name: its runs}: measure(way) once for each of {name: way}, `rounds` times over.

    A measurement that fails is an error's text, and that way isn't run again.
    """
    results = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            if not failure_of(results[name]):
                results[name].append(measure(way))
    return results


def failure_of(runs):
    """The first error among the runs, or ""."""
    return next((run for run in runs if isinstance(run, str)), "")


SPEED_TITLES = f"{'tokens/s':>10}{'min':>9}{'max':>9}{'ms/step':>10}{'peak MiB':>10}"


def speed_columns(runs, tokens):
    """The columns of SPEED_TITLES for steps of `tokens` tokens, and the median tokens/s."""
    speeds = [1e3 * tokens / run["milliseconds"] for run in runs]
    rate = statistics.median(speeds)
    return (f"{rate:10.1f}{min(speeds):9.1f}{max(speeds):9.1f}{1e3 * tokens / rate:10.1f}"
            f"{median_of(runs, 'peak_rss_bytes') / 2**20:10.0f}"), rate


def median_of(runs, key):
    return statistics.median(run[key] for run in runs)


def mfu_column(runs):
    return f"{median_of(runs, 'mfu'):7.3f}" if "mfu" in runs[0] else ""
