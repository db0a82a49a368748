#!/usr/bin/env python3
"""Tests slow disks, and signals under mpirun.

    python3 tests/app/disks_test.py build/release/trident build/release/tests/app/libslow_reads.so

strace slows the calls that read and write files, and slow_reads.cc slows one rank's reads of tokens.
The deadlines of collectives must not count this time.
Prints `OK` at the end, or an error with the program's output.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = SLOW_READS = ""
ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
# mpirun waits this long before it passes a SIGTERM on, and again before it kills.
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "odls_base_sigkill_timeout", "4"]
TEXT = "In the beginning was the word, and the word was good. " * 60
CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 1, "hidden_size": 32, "num_attention_heads": 2,
              "vocab_size": 256},
    "parallel": {"data_parallel_size": 2},
    "batch": {"global_batch_size": 2, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
    "training": {"train_iters": 3},
    "runtime": {"threads_per_rank": 1, "timeout_seconds": 1.5},
    "checkpoint": {"save": "weights"},
    "logging": {"dir": "run", "tensorboard": False}}


def slow(calls, seconds, path=None):
    """Returns a launcher that delays these calls, for one path if it is given."""
    command = ["strace", "-f", "-qq", "-o", os.devnull]
    if path:
        command += ["-P", str(path)]
    return command + ["-e", f"trace={calls}",
                      "-e", f"inject={calls}:delay_enter={int(seconds * 1e6)}"]


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text.txt").write_text(TEXT)
        (self.folder / "c.json").write_text(json.dumps(CONFIG))

    def start(self, command):
        self.addCleanup(lambda: process.poll() is None and process.kill())
        process = subprocess.Popen(command, cwd=self.folder, env=ENVIRONMENT, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return process

    def run_it(self, command):
        process = self.start(command)
        text, _ = process.communicate(timeout=120)
        return process.returncode, text

    def train(self, *overrides):
        return [PROGRAM, "train", "c.json"] + [word for one in overrides for word in ("--set", one)]

    def iterations(self):
        path = self.folder / "run/metrics.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def expect_weights(self, directory="weights"):
        code, text = self.run_it([PROGRAM, "generate", directory, "--prompt", "In ", "--tokens", "1"])
        self.assertEqual(code, 0, text)


class SlowDisk(Run):
    """In each test the disk takes several times as long as the timeout."""

    def test_saving_ends_no_run(self):
        # Under ZeRO 3 ranks gather weights while the writer is busy.
        code, text = self.run_it(slow("pwrite64,fsync,rename", 0.15) + self.train(
            "zero_optimization.stage=3", "logging.dump_gradients_at=[2]",
            "zero_optimization.stage3_param_persistence_threshold=0"))
        self.assertEqual(code, 0, text)
        self.expect_weights()
        self.assertTrue((self.folder / "run/gradients-2.safetensors").exists())
        self.assertTrue((self.folder / "run/report.html").exists())

    def test_logging_holds_up_no_step(self):
        code, text = self.run_it(slow("write", 1, self.folder / "run/metrics.jsonl") +
                                 self.train("runtime.timeout_seconds=0.5"))
        self.assertEqual(code, 0, text)
        self.assertEqual(self.iterations(), 3)
        # The steps' clock contains no second of the disk's time.
        text = (self.folder / "run/metrics.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        self.assertLess(max(line["iteration_time_ms"] for line in lines[1:]), 900, lines)

    def test_reading_data_on_one_rank_is_waited_for(self):
        slow_data = ["env", f"LD_PRELOAD={SLOW_READS}", "SLOW_FILE=text.txt", "SLOW_SECONDS=5"]
        train = self.train("logging.overwrite=true", "checkpoint.overwrite=true")
        for command in (slow_data + train,  # one rank reads first in the first command, too
                        MPIRUN + ["-n", "1"] + train + [":", "-n", "1"] + slow_data + train):
            began = time.monotonic()
            code, text = self.run_it(command)
            self.assertEqual(code, 0, text)
            self.assertGreater(time.monotonic() - began, 5, "nothing was slow")

    def test_loading_on_one_rank_is_waited_for_under_mpirun(self):
        self.assertEqual(self.run_it(self.train())[0], 0)
        os.rename(self.folder / "weights", self.folder / "start")
        load = self.train("checkpoint.load=start", "logging.overwrite=true")
        # Ranks read headers before their rendezvous, under the timeout. The tensors begin with the
        # fourth read.
        late = slow("pread64", 0.3, self.folder / "start/model.safetensors")
        late[-1] += ":when=4+"
        code, text = self.run_it(MPIRUN + ["-n", "1"] + late + load + [":", "-n", "1"] + load)
        self.assertEqual(code, 0, text)
        self.expect_weights()


class Limits(Run):
    def test_a_file_that_may_not_grow_is_a_save_that_fails(self):
        limited = ["bash", "-c", "ulimit -f 40; exec \"$0\" \"$@\""]
        code, text = self.run_it(limited + self.train("checkpoint.save_interval=2"))
        self.assertEqual(code, 3, text)
        self.assertIn("CHECKPOINT FAILED after iteration 2", text)
        self.assertIn("File too large", text)
        self.assertEqual(self.iterations(), 3)
        self.assertEqual([p.name for p in (self.folder / "weights").glob(".trident-saving-*")], [])


class Signals(Run):
    def stop(self, sent, to_rank=False):
        """Sends the signal to mpirun or to a rank of a training job; returns the job's exit
        code."""
        job = self.start(MPIRUN + ["-n", "2"] + self.train(
            "training.train_iters=1000000", "runtime.timeout_seconds=60"))
        deadline = time.monotonic() + 60
        while self.iterations() < 3 and time.monotonic() < deadline and job.poll() is None:
            time.sleep(0.02)
        self.assertIsNone(job.poll(), "the job has ended by itself")
        pid = job.pid
        if to_rank:
            pid = json.loads((self.folder / "run/.trident-run").read_text())["pid"]
        os.kill(pid, sent)
        text, _ = job.communicate(timeout=90)
        self.assertIn("stopping, saving", text)
        self.assertTrue((self.folder / "run/report.html").exists(), text)
        self.expect_weights()
        return job.returncode

    def test_a_reader_that_takes_nothing_holds_no_finished_run(self):
        # The output is larger than a pipe's buffer, and no process reads it, as with `| less` that
        # isn't scrolled.
        job = self.start(self.train("training.train_iters=2000", "logging.log_interval=1"))
        deadline = time.monotonic() + 100
        while self.iterations() < 2000 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(2)
        self.assertIsNone(job.poll(), "its output did fit")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(timeout=20), 130)
        job.stdout.close()
        self.expect_weights()

    def test_sent_to_a_rank_saves_on_all(self):
        self.assertEqual(self.stop(signal.SIGHUP, to_rank=True), 130)

    def end_at_the_start(self, sent, listens, *overrides):
        """Rank 0 waits for another rank that never comes; returns its exit code and text."""
        first = ["sh", "-c", "\"$0\" \"$@\" > said 2>&1 & echo $! > pid; wait $!; "
                 "echo $? > new; mv new code"]
        first += self.train("runtime.timeout_seconds=60", *overrides)
        job = self.start(MPIRUN[:4] + ["-n", "1"] + first + [":", "-n", "1", "sleep", "60"])
        os.kill(self.wait_until(sent, listens), sent)
        deadline = time.monotonic() + 30
        while not (self.folder / "code").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        # On a busy machine mpirun of Open MPI 4.1.4 may stay when a rank has ended this early.
        job.terminate()
        try:
            job.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            job.kill()
            job.communicate()
        self.assertFalse((self.folder / "run").exists())
        (self.folder / "pid").unlink()
        code = self.folder / "code"
        self.assertTrue(code.exists(), "rank 0 has not ended")
        ended = int(code.read_text())
        code.unlink()
        return ended, (self.folder / "said").read_text()

    def wait_until(self, signal_, listens):
        """Waits until the process in the file pid is ready for a signal; returns its id."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            time.sleep(0.02)
            file = self.folder / "pid"
            pid = file.read_text().strip() if file.exists() else ""
            if not pid:
                continue
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            held = int(status.split("SigBlk:")[1].split()[0], 16) & (1 << (signal_ - 1))
            if listens(pid, held):
                break
        return int(pid)

    def test_before_the_start_there_is_nothing_to_save(self):
        for sent in (signal.SIGTERM, signal.SIGUSR1):
            code, text = self.end_at_the_start(sent, lambda pid, held: held,
                                               "batch.micro_batch_size=\"auto\"")
            self.assertEqual(code, 130, text)
            self.assertIn(f"{sent.name}: stopped before the start: no run has begun", text)

    def test_a_refused_rank_that_waits_to_report_it_can_be_ended(self):
        def starts_mpi(pid, _):  # it then talks to mpirun
            # A file may be closed meanwhile.
            listed = subprocess.run(["ls", "-l", f"/proc/{pid}/fd"], capture_output=True, text=True)
            return "socket:" in listed.stdout
        code, text = self.end_at_the_start(signal.SIGTERM, starts_mpi, "batch.global_batch_size=-1")
        self.assertNotEqual(code, 0, text)

    def test_sigterm_sent_to_mpirun_saves_on_all(self):
        self.stop(signal.SIGTERM)

    def test_sigusr1_sent_to_mpirun_saves_on_all(self):
        self.assertEqual(self.stop(signal.SIGUSR1), 130)


if __name__ == "__main__":
    PROGRAM, SLOW_READS = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main()
