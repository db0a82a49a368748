#!/usr/bin/env python3
"""Tests the memory that saving takes on each rank: at most the staging limit and the largest tensor
above the run's own peak. It is measured, and the kernel enforces it as a limit on a control group.

    python3 tests/app/save_memory_test.py build/release/trident

If no memory control group can be made, it only measures and exits with 77.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

RANKS, HIDDEN, STAGING = 2, 512, 16 << 20
LARGEST = 4 * HIDDEN * HIDDEN * 4  # an MLP's weight in fp32
# Threads that save, with their stacks and contexts, and the lists of slices; per rank.
SLACK = 6 << 20
CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 3, "hidden_size": HIDDEN,
              "num_attention_heads": 8, "vocab_size": 256},
    "parallel": {"data_parallel_size": RANKS},
    "zero_optimization": {"stage": 1},
    "batch": {"global_batch_size": 2, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
    "training": {"train_iters": 4},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "runtime": {"threads_per_rank": 1, "transport": "local", "device": "cpu"},
    "checkpoint": {"save": "weights", "staging_limit": STAGING, "save_total_limit": 1},
    "logging": {"dir": "run", "tensorboard": False, "trace": False}}


class Group:
    """A memory control group, of version 2 or 1, which limits the processes started in it."""

    def __init__(self, limit):
        name = f"trident-test-{os.getpid()}"
        unified = pathlib.Path("/sys/fs/cgroup")
        if "memory" in self.read(unified / "cgroup.subtree_control").split():
            self.folder, key = unified / name, "memory.max"
        else:
            self.folder, key = unified / "memory" / name, "memory.limit_in_bytes"
        self.folder.mkdir()
        (self.folder / key).write_text(str(limit))
        for swap, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", str(limit))):
            if (self.folder / swap).exists():
                (self.folder / swap).write_text(value)

    @staticmethod
    def read(path):
        return path.read_text() if path.exists() else ""

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(100):
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.05)


class SaveMemory(unittest.TestCase):
    program, limits = "", True

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trident-memory-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "text.txt").write_text("In the beginning was the word, and it was good. " * 99)
        (self.folder / "c.json").write_text(json.dumps(CONFIG))

    def run_with(self, settings, group=None):
        """Returns the exit code, the peak of resident bytes and the messages."""
        for name in ("weights", "run", "nodes"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        words = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
        child = subprocess.Popen([self.program, "train", "c.json", *words], cwd=self.folder,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 preexec_fn=group.enter if group else None)
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stderr.close()
        return child.returncode, usage.ru_maxrss * 1024, said

    def test_above_the_runs_own(self):
        code, own, said = self.run_with({})
        self.assertEqual(code, 0, said)
        allowed = RANKS * (STAGING + LARGEST + SLACK)
        kinds = {"synchronous": {"checkpoint.save_interval": 2},
                 "asynchronous": {"checkpoint.save_interval": 2,
                                  "checkpoint.asynchronous": "true"}}
        for name, settings in kinds.items():
            with self.subTest(name):
                code, peak, said = self.run_with(settings)
                self.assertEqual((code, "FAILED" in said), (0, False), said)
                print(f"{name}: {(peak - own) / 1e6:+.1f} MB above the run's own {own / 1e6:.1f}, "
                      f"allowed {allowed / 1e6:.1f}")
                self.assertLess(peak - own, allowed)
                if not self.limits:
                    continue
                group = Group(own + allowed)
                self.addCleanup(group.remove)
                code, _, said = self.run_with(settings, group)
                group.remove()
                self.assertEqual((code, "FAILED" in said), (0, False), said)
        if not self.limits:
            return
        # The limit works: half of the memory that a run needs ends it.
        group = Group(own // 2)
        self.addCleanup(group.remove)
        code, _, _ = self.run_with({}, group)
        self.assertEqual(code, -9)


if __name__ == "__main__":
    SaveMemory.program = str(pathlib.Path(sys.argv[1]).resolve())
    try:
        probe = Group(1 << 30)
        probe.remove()
    except OSError as error:
        print(f"no memory control group can be made here: {error}")
        SaveMemory.limits = False
    done = unittest.main(argv=sys.argv[:1], exit=False).result
    sys.exit(1 if not done.wasSuccessful() else 0 if SaveMemory.limits else 77)
