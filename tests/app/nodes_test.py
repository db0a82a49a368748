#!/usr/bin/env python3
"""Tests checkpoints on nodes that each have a folder of their own, as hosts have. Runs are killed at
random moments, sometimes a node's folder is lost, and the runs resume from the other nodes' copies.

    python3 tests/app/nodes_test.py build/release/trident [--kills 6] [--seed 1]

Ranks 0 and 1 simulate one host, ranks 2 and 3 another. Their checkpoint.local.dir differs, so other
ranks must send a rank the files that it lacks.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "4", "sh", "-c"]
ITERATIONS = 16
CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 2, "hidden_size": 64, "num_attention_heads": 2,
              "vocab_size": 256},
    "parallel": {"data_parallel_size": 2, "tensor_model_parallel_size": 2},
    "zero_optimization": {"stage": 1},
    "batch": {"global_batch_size": 4, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
    "training": {"train_iters": ITERATIONS},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "runtime": {"threads_per_rank": 1, "ranks_per_node": 2},
    "checkpoint": {"save": "weights", "save_interval": 8, "local": {"dir": "anywhere", "interval": 1}},
    "logging": {"dir": "run", "tensorboard": False, "trace": False}}


class Nodes(unittest.TestCase):
    program, kills, seed = "", 6, 1

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="trident-nodes-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)

    def folder(self, name):
        folder = self.root / name
        folder.mkdir()
        (folder / "text.txt").write_text("In the beginning was the word, and it was good. " * 60)
        (folder / "c.json").write_text(json.dumps(CONFIG))
        return folder

    def start(self, folder, more=()):
        sets = "".join(f" --set {one}" for one in more)
        line = (f"exec {self.program} train c.json{sets} "
                "--set checkpoint.local.dir=$PWD/host-$((OMPI_COMM_WORLD_RANK/2))")
        with open(folder / "printed.txt", "wb") as log:
            return subprocess.Popen(MPIRUN + [line], cwd=folder, env=ENVIRONMENT, stdout=log,
                                    stderr=subprocess.STDOUT)

    def printed(self, folder):
        return (folder / "printed.txt").read_text(errors="replace")

    def losses(self, folder):
        path = folder / "run" / "metrics.jsonl"
        if not path.exists():
            return []
        return [(json.loads(line)["iteration"], repr(json.loads(line)["loss"]))
                for line in path.read_text().split("\n")[:-1]]

    def went_on_at(self, folder):
        found = re.search(r"resuming from (\S+): iteration (\d+)", self.printed(folder))
        return (found[1], int(found[2])) if found else ("", 0)

    @staticmethod
    def children(process):
        return pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()

    @staticmethod
    def lives(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):  # its parent has reaped it meanwhile
            return False

    def kill_a_rank(self, process, rank):
        children = self.children(process)
        if children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(children[rank % len(children)]), signal.SIGKILL)
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            # Open MPI's mpirun waits for ever for a rank that is killed while it connects.
            if children and not any(self.lives(pid) for pid in self.children(process)):
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
            time.sleep(0.05)
        process.wait(timeout=10)

    def wait_for(self, folder, process, iteration):
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            seen = self.losses(folder)
            if seen and seen[-1][0] >= iteration:
                return
            time.sleep(0.01)
        self.fail(f"iteration {iteration} wasn't reached:\n{self.printed(folder)}")

    def reference(self):
        folder = self.folder("uninterrupted")
        self.assertEqual(self.start(folder).wait(timeout=300), 0, self.printed(folder))
        return self.losses(folder)

    def test_a_lost_node(self):
        uninterrupted = self.reference()
        for lost in (0, 1):
            with self.subTest(lost=lost):
                folder = self.folder(f"lost-{lost}")
                process = self.start(folder)
                self.wait_for(folder, process, 4)
                self.kill_a_rank(process, lost)
                reached = self.losses(folder)[-1][0]
                shutil.rmtree(folder / f"host-{lost}")
                self.assertEqual(self.start(folder).wait(timeout=300), 0, self.printed(folder))
                place, iteration = self.went_on_at(folder)
                self.assertIn("node-*", place, self.printed(folder))
                self.assertGreaterEqual(iteration, reached - 1)
                self.assertEqual(self.losses(folder), uninterrupted)
                for host in ("host-0", "host-1"):
                    self.assertEqual(list((folder / host).iterdir()), [])

    @staticmethod
    def has_all(host):
        """Returns whether a host has a complete checkpoint: its own part and the other node's."""
        return any(host.glob("*/node-*/iteration-*"))

    def test_killed_at_random(self):
        uninterrupted = self.reference()
        print(f"seed {self.seed}")
        random.seed(self.seed)
        folder = self.folder("random")
        for _ in range(self.kills):
            asynchronous = random.random() < 0.5
            process = self.start(folder, ["checkpoint.asynchronous=" + ("true" if asynchronous else "false")])
            time.sleep(random.uniform(0.1, 2.5))
            if process.poll() is not None:
                break
            self.kill_a_rank(process, random.randrange(4))
            lost = random.randrange(2)
            # Only one node is lost at a time: after two losses without a save between them, a run
            # refuses to start.
            if random.random() < 0.5 and self.has_all(folder / f"host-{1 - lost}"):
                shutil.rmtree(folder / f"host-{lost}", ignore_errors=True)
        self.assertEqual(self.start(folder).wait(timeout=300), 0, self.printed(folder))
        self.assertEqual(self.losses(folder), uninterrupted)

    def test_ranks_of_a_node_with_folders_of_their_own(self):
        folder = self.folder("apart")
        line = (f"exec {self.program} train c.json "
                "--set checkpoint.local.dir=$PWD/host-$OMPI_COMM_WORLD_RANK")
        result = subprocess.run(MPIRUN + [line], cwd=folder, env=ENVIRONMENT, capture_output=True,
                                text=True, timeout=120)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("rank 1: ", result.stderr)
        self.assertIn("is another folder than the one that rank 0 of this node has made",
                      result.stderr)

    def test_a_folder_that_is_removed_during_the_run(self):
        for asynchronous in ("false", "true"):
            with self.subTest(asynchronous=asynchronous):
                folder = self.folder(f"tidied-{asynchronous}")
                process = self.start(folder, [f"checkpoint.asynchronous={asynchronous}"])
                self.wait_for(folder, process, 1)
                while process.poll() is None:
                    shutil.rmtree(folder / "host-0", ignore_errors=True)
                    shutil.rmtree(folder / "host-1", ignore_errors=True)
                    time.sleep(0.01)
                self.assertEqual(process.returncode, 0, self.printed(folder))
                self.assertEqual(len(self.losses(folder)), ITERATIONS)

    def test_ranks_that_lack_a_folder(self):
        folder = self.folder("refused")
        (folder / "host-1").write_text("a file")
        process = self.start(folder)
        self.assertEqual(process.wait(timeout=120), 2, self.printed(folder))
        self.assertIn("/checkpoint/local/dir", self.printed(folder))
        self.assertIn("host-1", self.printed(folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    Nodes.program = str(pathlib.Path(arguments.program).resolve())
    Nodes.kills, Nodes.seed = arguments.kills, arguments.seed
    unittest.main(argv=sys.argv[:1])
