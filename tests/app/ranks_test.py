#!/usr/bin/env python3
"""What the processes of one job have in common, under mpirun.

    python3 tests/app/ranks_test.py build/release/trident

Processes that crowd their cores let their threads sleep. Ends with `OK`, or an error that shows
what mpirun and the program printed.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
TEXT = "In the beginning was the word, and the word was good. " * 60
CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 1, "hidden_size": 32, "num_attention_heads": 2,
              "vocab_size": 256},
    "parallel": {"data_parallel_size": 2},
    "batch": {"global_batch_size": 2, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
    "training": {"train_iters": 1},
    "runtime": {"threads_per_rank": 1, "timeout_seconds": 60},
    "logging": {"dir": "run", "tensorboard": False, "trace": False}}


class Job(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text.txt").write_text(TEXT)
        (self.folder / "c.json").write_text(json.dumps(CONFIG))

    def train(self, *ranks, environment=None):
        """One process for each list of overrides; the outcome and all that was printed."""
        command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
        for i, overrides in enumerate(ranks):
            command += ([":"] if i > 0 else []) + ["-n", "1", PROGRAM, "train", "c.json"]
            for override in overrides:
                command += ["--set", override]
        run = subprocess.run(command, cwd=self.folder, env=ENVIRONMENT | (environment or {}),
                             capture_output=True, text=True, timeout=120)
        return run.returncode, run.stdout + run.stderr


class Crowded(Job):
    """libgomp prints what it goes by each time that it is loaded."""

    def test_threads_never_spin_where_processes_have_more_than_there_are_cores(self):
        cores = len(os.sched_getaffinity(0))
        threads = [f"runtime.threads_per_rank={cores}"] if cores > 1 else ["runtime.threads_per_rank=2"]
        code, text = self.train(threads, threads, environment={"OMP_DISPLAY_ENV": "verbose"})
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("GOMP_SPINCOUNT = '0'"), 2, text)
        self.assertEqual(text.count("warning: config: /runtime/threads_per_rank: 2 ranks of "), 1, text)

    def test_they_do_as_usual_where_nothing_is_crowded_or_the_user_says_so(self):
        code, text = self.train([], [], environment={"OMP_DISPLAY_ENV": "verbose"})
        self.assertEqual(code, 0, text)
        self.assertNotIn("GOMP_SPINCOUNT = '0'", text)
        self.assertNotIn("warning", text)
        threads = ["runtime.threads_per_rank=64", "training.train_iters=1", "logging.overwrite=true"]
        code, text = self.train(threads, threads, environment={"OMP_DISPLAY_ENV": "verbose",
                                                               "GOMP_SPINCOUNT": "7"})
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("GOMP_SPINCOUNT = '7'"), 2, text)


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
