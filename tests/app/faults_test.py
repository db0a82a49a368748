#!/usr/bin/env python3
"""Tests disks that fail while checkpoints are saved: full, read-only, broken, slow and forgetful disks.

    python3 tests/app/faults_test.py build/release/trident

strace makes system calls fail. The full disk is a real one, a small tmpfs in a mount namespace.
After each fault the previous checkpoint loads, the exit code reports the failure, and no temporary
file remains.
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = ""
CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 2, "hidden_size": 64, "num_attention_heads": 2,
              "vocab_size": 256},
    "parallel": {"data_parallel_size": 2},
    "batch": {"global_batch_size": 4, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 32},
    "training": {"train_iters": 6},
    "runtime": {"threads_per_rank": 1, "timeout_seconds": 2},
    "checkpoint": {"save": "disk/weights", "save_interval": 2},
    "logging": {"dir": "run", "tensorboard": False, "trace": False}}
ASYNCHRONOUS = "checkpoint.asynchronous=true"


class Faults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trident-faults-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "disk").mkdir()
        (self.folder / "text.txt").write_text("In the beginning was the word, and it was good. " * 60)
        (self.folder / "c.json").write_text(json.dumps(CONFIG))

    def fresh(self):
        subprocess.run(["rm", "-rf", self.folder / "disk/weights", self.folder / "run"], check=True)

    def run_it(self, command, seconds=120):
        done = subprocess.run(command, cwd=self.folder, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=seconds)
        return done.returncode, done.stdout

    def train(self, *overrides):
        return [PROGRAM, "train", "c.json", *[word for one in overrides for word in ("--set", one)]]

    def with_fault(self, call, fault, path):
        """Returns a launcher under which this call fails, only for this file in disk/weights."""
        paths = [f"disk/weights/{path}", self.folder / "disk/weights" / path]
        return ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}",
                *[word for one in paths for word in ("-P", str(one))],
                "-e", f"inject={call}:{fault}"]

    def checkpoints(self):
        return sorted(path.name for path in (self.folder / "disk/weights").glob("iteration-*"))

    def expect_clean(self, complete):
        """Expects that exactly these checkpoints are there and complete, without temporary
        files."""
        self.assertEqual(self.checkpoints(), [f"iteration-{n}" for n in complete])
        left = [str(path) for path in (self.folder / "disk").rglob("*")
                if ".trident-saving" in str(path) or ".tmp-" in path.name]
        self.assertEqual(left, [])
        code, text = self.run_it([PROGRAM, "checkpoint", "verify", "disk/weights"])
        self.assertEqual(code, 0 if complete else 2, text)

    def expect_resumes(self, iteration):
        code, text = self.run_it(self.train("training.train_iters=8"))
        self.assertEqual(code, 0, text)
        self.assertIn(f"weights/iteration-{iteration}: iteration {iteration} of run", text)
        lines = (self.folder / "run/metrics.jsonl").read_text().split("\n")[:-1]
        self.assertEqual([json.loads(line)["iteration"] for line in lines], list(range(1, 9)))

    def test_calls_that_fail(self):
        """The run continues and reports the failure. If the last save failed, so does the exit
        code."""
        state = "trident/state-00001-of-00001.safetensors"
        for call, error, name in (("mkdir", "EROFS", ""), ("pwrite64", "EIO", state),
                                  ("fsync", "EIO", "model.safetensors"), ("fsync", "EDQUOT", state),
                                  ("fallocate", "ENOSPC", state), ("rename", "EIO", "")):
            for overrides, failing in (((), 6), ((ASYNCHRONOUS,), 4)):
                with self.subTest(call=call, error=error, overrides=overrides, failing=failing):
                    self.fresh()
                    path = f".trident-saving-iteration-{failing}/{name}".rstrip("/")
                    code, text = self.run_it(
                        self.with_fault(call, f"error={error}", path) + self.train(*overrides))
                    self.assertIn(f"CHECKPOINT FAILED after iteration {failing}: ", text)
                    self.assertEqual(code, 3 if failing == 6 else 0, text)
                    complete = [n for n in (2, 4, 6) if n != failing]
                    self.expect_clean(complete)
                    self.expect_resumes(complete[-1])

    def test_temporary_failures_are_no_damage(self):
        """A run doesn't skip a checkpoint for a temporary read error, but it does for a lost
        sector."""
        self.assertEqual(self.run_it(self.train())[0], 0)
        longer = self.train("training.train_iters=8")
        for call, error, name in (("openat", "EMFILE", "trident/state-00001-of-00001.safetensors"),
                                  ("openat", "ETIMEDOUT", "trident/manifest.json"),
                                  ("pread64", "ENOMEM", "trident/manifest.json"),
                                  ("openat", "ESTALE", "trident/config.json")):
            with self.subTest(error=error, name=name):
                code, text = self.run_it(
                    self.with_fault(call, f"error={error}", f"iteration-6/{name}") + longer)
                self.assertEqual(code, 3, text)
                self.expect_clean([2, 4, 6])
        lost = self.with_fault("pread64", "error=EIO", "iteration-6/model.safetensors")
        code, text = self.run_it(lost + longer)
        self.assertEqual(code, 0, text)
        self.assertIn("weights/iteration-4: iteration 4 of run", text)
        self.assertTrue((self.folder / "disk/weights/set-aside-iteration-6").is_dir())

    def test_a_full_disk(self):
        """The tmpfs has space for one checkpoint, later for all."""
        for overrides in ((), (ASYNCHRONOUS,)):
            self.fresh()
            one = " ".join(shlex.quote(word) for word in self.train(*overrides))
            longer = " ".join(shlex.quote(word) for word in self.train("training.train_iters=8"))
            script = f"""
                mount -t tmpfs -o size=2M none disk || exit 77
                {one}; echo "code $?"
                find disk | sort
                {PROGRAM} checkpoint verify disk/weights; echo "verified $?"
                mount -o remount,size=100M none disk
                {longer}; echo "then $?"
                {PROGRAM} checkpoint verify disk/weights; echo "verified then $?"
                find disk | sort"""
            code, text = self.run_it(["unshare", "--mount", "--map-root-user", "bash", "-c", script])
            self.assertEqual(code, 0, text)
            self.assertIn("code 3", text)
            self.assertIn("CHECKPOINT FAILED after iteration", text)
            self.assertIn("disk/weights/iteration-2\n", text)
            self.assertIn("verified 0", text)
            self.assertIn("weights/iteration-2: iteration 2 of run", text)
            self.assertIn("then 0", text)
            self.assertIn("verified then 0", text)
            self.assertIn("disk/weights/iteration-8\n", text)
            self.assertNotRegex(text, r"(?m)^disk/\S*(\.trident-saving|\.tmp-)")

    def test_a_folder_that_is_read_only(self):
        """A read-only folder is a wrong request: no file is written, not even a log."""
        script = f"""
            mount -t tmpfs none disk && mount -o remount,ro none disk || exit 77
            {PROGRAM} train c.json; echo "code $?" """
        code, text = self.run_it(["unshare", "--mount", "--map-root-user", "bash", "-c", script])
        self.assertEqual(code, 0, text)
        self.assertIn("code 2", text)
        self.assertIn("config: /checkpoint/save: ", text)
        self.assertFalse((self.folder / "run").exists())

    def test_a_disk_that_takes_30_seconds_for_a_write(self):
        """Ranks wait for each other at most 2 s, but for a disk as long as it takes."""
        path = ".trident-saving-iteration-4/model.safetensors"
        for overrides in ((), (ASYNCHRONOUS,)):
            self.fresh()
            begin = time.monotonic()
            code, text = self.run_it(
                self.with_fault("fsync", "delay_enter=30s", path) + self.train(*overrides))
            self.assertEqual(code, 0, text)
            self.assertNotIn("CHECKPOINT FAILED", text)
            self.assertGreater(time.monotonic() - begin, 30)
            self.expect_clean([2, 4, 6])

    def test_a_rename_that_is_lost(self):
        """A power cut can lose a rename: the resumed run finds no folder of that name."""
        code, text = self.run_it(
            self.with_fault("rename", "retval=0", ".trident-saving-iteration-6") + self.train())
        self.assertEqual(code, 0, text)
        self.assertEqual(self.checkpoints(), ["iteration-2", "iteration-4"])
        self.assertIn("iteration-6", (self.folder / "disk/weights/latest").read_text())
        self.expect_resumes(4)
        self.expect_clean([2, 4, 6, 8])


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=1)
