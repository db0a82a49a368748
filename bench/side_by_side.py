"""Helpers of the comparisons: the machine's name, runs of a command, and `trident bench step`."""

import concurrent.futures
import json
import os
import pathlib
import platform
import socket
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
