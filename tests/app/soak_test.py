#!/usr/bin/env python3
"""Kills runs at random moments, again and again, and resumes them each time.

    python3 tests/app/soak_test.py build/release/trident [--runs 10] [--seed 1]

A tiny model saves a checkpoint after every iteration, so most kills come during a save. The others come
during the start, while resuming from a checkpoint, or during training. SIGKILL goes to the process, or
to a random rank under mpirun. Each start draws whether it saves asynchronously. At the end the losses of
all iterations equal those of an uninterrupted run, byte for byte. After each kill, only iterations later
than the newest checkpoint are lost.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
ITERATIONS = 12
CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
              "vocab_size": 256},
    "parallel": {"data_parallel_size": 2},
    "zero_optimization": {"stage": 1},
    "batch": {"global_batch_size": 4, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
    "training": {"train_iters": ITERATIONS},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "runtime": {"threads_per_rank": 1},
    "checkpoint": {"save": "weights", "save_interval": 1, "save_total_limit": 3},
    "logging": {"dir": "run", "tensorboard": False, "trace": False}}
LAYOUTS = {
    "local": [], "local pp 2": ["parallel.pipeline_model_parallel_size=2"], "mpirun": [],
    "pipedream": ["parallel.pipeline_model_parallel_size=2", "pipeline.schedule=pipedream",
                  "gradient_clipping=0", "model.tie_word_embeddings=false",
                  "training.on_non_finite=stop"]}


class Failure(Exception):
    pass


def make_folder(root, name):
    folder = pathlib.Path(root) / name
    folder.mkdir()
    (folder / "text.txt").write_text("In the beginning was the word, and the word was good. " * 60)
    (folder / "c.json").write_text(json.dumps(CONFIG))
    return folder


def command(program, layout, asynchronous):
    command = [program, "train", "c.json", "--set",
               f"checkpoint.asynchronous={'true' if asynchronous else 'false'}"]
    for override in LAYOUTS[layout]:
        command += ["--set", override]
    return MPIRUN + ["-n", "2"] + command if layout == "mpirun" else command


def start(program, layout, folder, asynchronous=False):
    log = open(folder / "printed.txt", "ab")
    return subprocess.Popen(command(program, layout, asynchronous), cwd=folder, env=ENVIRONMENT, stdout=log,
                            stderr=subprocess.STDOUT)


def ranks_of(process):
    """Returns the processes below mpirun."""
    try:
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in children.split()]


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def losses(folder):
    """Returns (iteration, loss) of each complete line, as written."""
    path = folder / "run" / "metrics.jsonl"
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [(json.loads(line)["iteration"], repr(json.loads(line)["loss"])) for line in lines]


def newest(program, folder):
    """Returns the iteration of the checkpoint that was saved last, or 0 without one."""
    result = subprocess.run([program, "checkpoint", "list", "weights", "--format", "json"],
                            cwd=folder, capture_output=True, text=True)
    if result.returncode == 2 and "holds no checkpoint" in result.stderr + result.stdout or \
            "is no directory" in result.stderr:
        return 0
    if result.returncode != 0:
        raise Failure(f"checkpoint list: {result.stderr}")
    found = json.loads(result.stdout)["checkpoints"]
    broken = [one for one in found if "problem" in one]
    if broken:
        raise Failure(f"an incomplete checkpoint is seen: {broken}")
    return max(found, key=lambda one: one["sequence"])["iteration"]


def kill(process, layout, after):
    """Kills the process after this time; returns False if it had ended before."""
    time.sleep(after)
    if process.poll() is not None:
        return False
    victims = ranks_of(process) if layout == "mpirun" else [process.pid]
    if not victims:
        victims = [process.pid]
    try:
        os.kill(random.choice(victims), signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        # Open MPI's mpirun waits for ever for a rank that is killed while it connects (as launch
        # notices). In this case no rank is left.
        if layout != "mpirun" or any(is_alive(rank) for rank in ranks_of(process)):
            raise
        process.kill()
        process.wait()
    return True


def soak(program, root, number, references):
    layout = random.choice(list(LAYOUTS))
    folder = make_folder(root, f"run-{number}")
    uninterrupted, seconds = references[layout]
    kills, slack = 0, 1
    try:
        while kills < 8:
            asynchronous = random.random() < 0.5
            process = start(program, layout, folder, asynchronous)
            if not kill(process, layout, random.uniform(0, 1.1 * seconds)):
                break
            kills += 1
            seen, kept = losses(folder), newest(program, folder)
            # With asynchronous saves, one save may be in progress when the next iteration ends.
            slack = max(slack, 2 if asynchronous else 1)  # a later start may not have come to the log
            if seen and kept < seen[-1][0] - slack:
                raise Failure(f"iteration {seen[-1][0]} had run, the newest checkpoint is {kept}")
        process = start(program, layout, folder, random.random() < 0.5)
        code = process.wait(timeout=300)
        if code != 0:
            raise Failure(f"exit code {code}")
        if losses(folder) != uninterrupted:
            raise Failure(f"other losses: {losses(folder)} for {uninterrupted}")
        left = [path.name for path in (folder / "weights").iterdir()
                if path.name.startswith((".trident-saving-", ".trident-removing-"))]
        if left:
            raise Failure(f"left behind: {left}")
    except (Failure, subprocess.TimeoutExpired) as error:
        printed = (folder / "printed.txt").read_text(errors="replace")[-3000:]
        raise SystemExit(f"FAILED: run {number} ({layout}) after {kills} kill(s): {error}\n{printed}")
    shutil.rmtree(folder)
    return layout, kills


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    random.seed(options.seed)
    print(f"{options.runs} runs, --seed {options.seed}", flush=True)
    begun, kills = time.time(), 0
    with tempfile.TemporaryDirectory() as root:
        references = {}
        for layout in LAYOUTS:
            folder = make_folder(root, layout.replace(" ", "-"))
            before = time.time()
            if start(program, layout, folder).wait() != 0:
                raise SystemExit((folder / "printed.txt").read_text())
            references[layout] = losses(folder), time.time() - before
            if len(references[layout][0]) != ITERATIONS:
                raise SystemExit(f"{layout}: {references[layout][0]}")
        for number in range(options.runs):
            layout, killed = soak(program, root, number, references)
            kills += killed
            if options.runs > 20 and (number + 1) % 20 == 0:
                print(f"{number + 1} runs, {kills} kills, {time.time() - begun:.0f} s", flush=True)
    print(f"OK: {options.runs} runs, killed {kills} times, {time.time() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
