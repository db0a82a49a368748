#!/usr/bin/env python3
"""Seconds from SIGKILL of a rank to the first new iteration, by parts, under `trident launch`.

    bench/restart_seconds.py [--config FILE] [--ranks 2,8] [--transports local,mpi] [--rounds N]
        [--sequence N] [--local] [--to FOLDER]

Data-parallel ranks of one thread, ZeRO 1, save after every iteration; one rank is killed in the
middle of an iteration. --local keeps the checkpoints on the node (checkpoint.local) as well. The back-off
is launch's default of one second. Figures are medians over the rounds.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from side_by_side import CONFIG, PROGRAM, machine

PARTS = ("until launch knows", "back-off", "start of the ranks", "reading", "first iteration")
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def write_case(folder, arguments, ranks, transport):
    config = json.loads(arguments.config.read_text())
    (folder / "text.txt").write_bytes(random.Random(1).randbytes(200_000))
    config["data"] = {"train": [{"path": str(folder / "text.txt")}],
                      "sequence_length": arguments.sequence}
    config["batch"] = {"micro_batch_size": 1, "gradient_accumulation_steps": 1}
    config["parallel"] = {"data_parallel_size": ranks}
    config["zero_optimization"] = {"stage": 1}
    config["runtime"] = {"threads_per_rank": 1, "transport": transport, "device": "cpu"}
    config["training"] = {"train_iters": 1000}
    config["scheduler"] = {"type": "constant"}
    config["logging"] = {"tensorboard": False, "trace": False, "dir": str(folder / "run")}
    config["checkpoint"] = {"save": str(folder / "weights"), "save_interval": 1,
                            "save_total_limit": 2}
    if arguments.local:
        config["checkpoint"]["save_interval"] = 4
        config["checkpoint"]["local"] = {"dir": str(folder / "node"), "interval": 1}
    (folder / "c.json").write_text(json.dumps(config))


def descendants(pid):
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [p for child in children for p in (int(child), *descendants(child))]


def ranks_of(pid):
    """The processes under launch that train."""
    found = []
    for one in descendants(pid):
        words = pathlib.Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")
        if pathlib.Path(os.fsdecode(words[0])).name == "trident":
            found.append(one)
    return found


def last_iteration(folder):
    path = folder / "run" / "metrics.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return json.loads(lines[-1])["iteration"] if lines else 0


def wait(what, seconds=600):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            sys.exit("it takes too long")
        time.sleep(0.002)
    return time.monotonic()


def restart(arguments, ranks, transport):
    with tempfile.TemporaryDirectory(dir=arguments.to) as at:
        folder = pathlib.Path(at)
        write_case(folder, arguments, ranks, transport)
        seen = []  # (when, line)
        with subprocess.Popen([arguments.program, "launch", folder / "c.json", "--backoff", "1"],
                              env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True) as child:
            def read():
                for line in child.stderr:
                    seen.append((time.monotonic(), line))

            reader = threading.Thread(target=read)
            reader.start()

            def said(text):
                return next(((when, line) for when, line in seen if text in line), None)

            wait(lambda: last_iteration(folder) >= 2)
            time.sleep(0.2)
            killed, before = time.monotonic(), last_iteration(folder)
            os.kill(ranks_of(child.pid)[-1], signal.SIGKILL)
            first = wait(lambda: said("resuming from") and last_iteration(folder) > before)
            known, again = said("again in")[0], said("start 2")[0]
            went_on, line = said("resuming from")
            reading = float(re.search(r"read in ([\d.]+) s", line)[1])
            # Leaves `trident launch` a moment to record the end.
            child.send_signal(signal.SIGTERM)
            child.send_signal(signal.SIGTERM)
            time.sleep(1.5)
            child.send_signal(signal.SIGTERM)
            child.wait()
            reader.join()
        return dict(zip(PARTS, (known - killed, again - known, went_on - again - reading, reading,
                                first - went_on)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=pathlib.Path, default=CONFIG)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--to", type=pathlib.Path, help="folder on the disk to be measured")
    parser.add_argument("--ranks", default="2,8")
    parser.add_argument("--transports", default="local,mpi")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sequence", type=int, default=32)
    parser.add_argument("--local", action="store_true")
    arguments = parser.parse_args()
    arguments.config, arguments.program = arguments.config.resolve(), arguments.program.resolve()
    print(machine())
    print(f"{arguments.config.stem}, sequences of {arguments.sequence}, medians of "
          f"{arguments.rounds} round(s), seconds")
    print(f"{'':14}" + "".join(f"{part:>20}" for part in PARTS) + f"{'together':>12}")
    for transport in arguments.transports.split(","):
        for ranks in map(int, arguments.ranks.split(",")):
            rounds = [restart(arguments, ranks, transport) for _ in range(arguments.rounds)]
            medians = [statistics.median(r[part] for r in rounds) for part in PARTS]
            print(f"{f'{transport}, {ranks} ranks':14}" +
                  "".join(f"{seconds:20.2f}" for seconds in medians) +
                  f"{statistics.median(sum(r.values()) for r in rounds):12.2f}", flush=True)


if __name__ == "__main__":
    main()
