#!/usr/bin/env python3
"""Measures the costs of checkpoints: the pause of a save, the iterations that run during a save,
throughput, memory, loading.

    $(scripts/peers_python) bench/checkpoint_costs.py [--config FILE] [--iterations N] [--rounds N]
        [--micro-batch N] [--sequence N] [--to FOLDER] [--alone]

Two data-parallel ranks of one thread each, ZeRO 1, train GPT-2 124M with AdamW (1.5 GB of states)
on random bytes: without saves, with a save in each third iteration, and with asynchronous saves.
dd writes the same number of bytes to the same disk with conv=fsync. Then two tensor ranks load the
last checkpoint, and for comparison its files are only read. Both start from a cold cache if the
system lets it be dropped. torch.distributed.checkpoint saves states of the same sizes in the same
rounds; --alone leaves it out. Each figure is the median over the rounds.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from side_by_side import CONFIG, PROGRAM, ROOT, machine, run_ranks

RANKS, EVERY = 2, 3


def drop_cache():
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    except OSError:
        return False


def write_case(folder, arguments):
    config = json.loads(arguments.config.read_text())
    (folder / "text.txt").write_bytes(random.Random(1).randbytes(200_000))
    config["data"] = {"train": [{"path": str(folder / "text.txt")}],
                      "sequence_length": arguments.sequence}
    config["batch"] = {"micro_batch_size": arguments.micro_batch,
                       "gradient_accumulation_steps": arguments.micro_batches}
    config["parallel"] = {"data_parallel_size": RANKS}
    config["zero_optimization"] = {"stage": 1}
    config["runtime"] = {"threads_per_rank": 1, "transport": "local", "device": "cpu"}
    config["training"] = {"train_iters": arguments.iterations}
    config["scheduler"] = {"type": "constant"}
    config["logging"] = {"tensorboard": False}
    config["checkpoint"] = {"save": str(folder / "weights")}
    (folder / "c.json").write_text(json.dumps(config))


def train(folder, arguments, name, settings):
    """Returns a run's metrics by line, its seconds, and its peak resident bytes."""
    shutil.rmtree(folder / "weights", ignore_errors=True)
    settings = {"logging.dir": folder / name, "logging.overwrite": "true", **settings}
    words = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
    begin = time.perf_counter()
    child = subprocess.Popen([arguments.program, "train", folder / "c.json", *words],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{name}: {errors.strip().splitlines()[-1]}")
    lines = [json.loads(l) for l in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return lines, time.perf_counter() - begin, usage.ru_maxrss * 1024


def dd(folder, size, idle):
    """Writes after the same pause as between saves: a virtual machine's host takes idle memory away,
    and the page cache of the next writer has to get it back."""
    drop_cache()
    time.sleep(idle)
    begin = time.perf_counter()
    subprocess.run(["dd", "if=/dev/zero", f"of={folder / 'dd'}", "bs=16M", "conv=fsync",
                    f"count={size >> 24}"], check=True, capture_output=True)
    seconds = time.perf_counter() - begin
    (folder / "dd").unlink()
    return seconds


def load_seconds(folder, arguments, checkpoint):
    """Returns the seconds that a run in two tensor ranks takes to read, to start until it reports the
    iteration from which it resumes (which includes the memory for the state), and a plain read."""
    drop_cache()
    begin = time.perf_counter()
    for file in checkpoint.rglob("*"):
        if file.is_file():
            with open(file, "rb", buffering=0) as f:
                while f.read(1 << 24):
                    pass
    plain = time.perf_counter() - begin
    settings = {"parallel.data_parallel_size": 1, "parallel.tensor_model_parallel_size": 2,
                "batch.gradient_accumulation_steps": RANKS * arguments.micro_batches,
                "training.train_iters": arguments.iterations + 1, "checkpoint.load": checkpoint,
                "checkpoint.save": "null", "logging.dir": folder / "loaded",
                "logging.overwrite": "true"}
    words = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
    drop_cache()
    begin, errors = time.perf_counter(), ""
    with subprocess.Popen([arguments.program, "train", folder / "c.json", *words],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        for line in child.stderr:
            errors += line
            if "resuming from" in line:
                start = time.perf_counter() - begin
                child.kill()
                return float(line.split("; read in ")[1].split()[0]), start, plain
    sys.exit(f"load: {errors}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=pathlib.Path, default=CONFIG)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--to", type=pathlib.Path, help="folder on the disk to be measured")
    for name, value in (("micro-batch", 1), ("micro-batches", 4), ("sequence", 256),
                        ("rounds", 3), ("iterations", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--alone", action="store_true")
    arguments = parser.parse_args()
    arguments.config, arguments.program = arguments.config.resolve(), arguments.program.resolve()
    print(machine())
    found = {}

    def note(name, value):
        found.setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory(dir=arguments.to) as at:
        folder = pathlib.Path(at)
        write_case(folder, arguments)
        for _ in range(arguments.rounds):
            kinds = {"none": {},
                     "synchronous": {"checkpoint.save_interval": EVERY},
                     "asynchronous": {"checkpoint.save_interval": EVERY,
                                      "checkpoint.asynchronous": "true"}}
            for name, settings in kinds.items():
                drop_cache()
                lines, seconds, peak = train(folder, arguments, name, settings)
                note(f"{name} seconds", seconds)
                note(f"{name} peak", peak)
                times = [line["iteration_time_ms"] / 1e3 for line in lines]
                # The line after a save holds its pause, and the time of the iteration that runs
                # while it is written.
                after = [i for i in range(1, len(lines)) if lines[i - 1]["iteration"] % EVERY == 0]
                others = [times[i] for i in range(1, len(times)) if i not in after]
                m_step = statistics.median(others)
                # The first save allocates the memory for copies, and later saves reuse it.
                note(f"{name} step after first", times[after[0]])
                for i in after[1:]:
                    note(f"{name} step after", times[i])
                for seconds in others:
                    note(f"{name} step", seconds)
                if name != "none":
                    note(f"{name} pause",
                         statistics.median(lines[i]["save_pause_ms"] / 1e3 for i in after))
            checkpoint = folder / f"weights/iteration-{arguments.iterations}"
            size = sum(f.stat().st_size for f in checkpoint.rglob("*") if f.is_file())
            note("dd", dd(folder, size, EVERY * m_step))
            load, start, plain = load_seconds(folder, arguments, checkpoint)
            note("load", load)
            note("start until loaded", start)
            note("plain read", plain)
            if not arguments.alone:
                ranks = run_ranks([sys.executable, ROOT / "bench/checkpoint_dcp.py", "--config",
                                   arguments.config, "--to", folder / "dcp"], RANKS)
                if isinstance(ranks, str):
                    sys.exit(f"torch.distributed.checkpoint: {ranks}")
                shutil.rmtree(folder / "dcp")
                for key in ("save", "pause", "async", "bytes"):
                    note(f"dcp {key}", max(r[key] for r in ranks))
    m = {name: statistics.median(values) for name, values in found.items()}
    print(f"{arguments.config.stem}, {RANKS} ranks of one thread, {size / 1e9:.2f} GB, medians of "
          f"{arguments.rounds} rounds of {arguments.iterations} iterations")
    for name, value in m.items():
        print(f"{name:24} {value / 1e9:9.3f} GB" if name.endswith(("peak", "bytes"))
              else f"{name:24} {value:9.3f} s")
    def slower(of):  # in percent, against the other iterations of these runs, as a machine's speed drifts
        return 100 * (m[f"asynchronous {of}"] / m["asynchronous step"] - 1)

    sync = m["synchronous pause"]
    pause = m["asynchronous pause"]
    print(f"pause of an asynchronous save: {100 * pause / sync:.1f}% of a synchronous save, "
          f"{100 * pause / m['none step']:.1f}% of a step\n"
          f"iterations during a save: {slower('step after'):+.1f}%, "
          f"during the first one {slower('step after first'):+.1f}%\n"
          f"throughput of a synchronous save: {100 * m['dd'] / sync:.0f}% of dd's\n"
          f"loading in another layout: {100 * m['plain read'] / m['load']:.0f}% of a plain read's "
          f"rate\n"
          f"peak above a run without saves: {(m['asynchronous peak'] - m['none peak']) / 1e6:.0f} MB")
    if not arguments.alone:
        print(f"torch.distributed.checkpoint: save {m['dcp save']:.2f} s, asynchronously: pause "
              f"{m['dcp pause']:.2f} s, all {m['dcp async']:.2f} s")


if __name__ == "__main__":
    main()
