#!/usr/bin/env python3
"""Tests the start of a job under mpirun, refused starts, and the errors of a running job.

    python3 tests/app/start_test.py build/release/trident
"""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = ""
ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
              "max_position_embeddings": 16, "vocab_size": 256},
    "parallel": {"data_parallel_size": "auto"},
    "batch": {"global_batch_size": 4, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
    "training": {"train_iters": 2},
    "runtime": {"threads_per_rank": 1, "timeout_seconds": 60},
    "logging": {"dir": "run", "tensorboard": False, "trace": False}}
SIZE = "batch.micro_batch_size=\"auto\""


class Job(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text.txt").write_text("In the beginning was the word. " * 60)
        (self.folder / "c.json").write_text(json.dumps(CONFIG))

    def launch(self, *ranks):
        """Starts one process for each command; returns the exit code and the lines that aren't
        mpirun's."""
        command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
        for i, arguments in enumerate(ranks):
            command += ([":"] if i > 0 else []) + ["-n", "1", *arguments]
        run = subprocess.run(command, cwd=self.folder, env=ENVIRONMENT, capture_output=True,
                             text=True, timeout=120)
        lines = [line for line in run.stderr.splitlines()
                 if any(word in line for word in ("config:", "trident:", "rank ", "argument"))
                 and "MPI_ABORT" not in line and "MPI_COMM" not in line]
        return run.returncode, lines

    @staticmethod
    def train(*overrides, command="train"):
        return [PROGRAM, command, "c.json"] + [part for one in overrides for part in ("--set", one)]

    def refuse(self, ranks, expression, code=2):
        got, lines = self.launch(*ranks)
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], f"^{expression}$")
        self.assertEqual(got, code)
        self.assertFalse((self.folder / "run").exists())


class Start(Job):
    def test_the_first_error_of_any_rank_is_shown_with_its_rank_and_host(self):
        self.refuse([self.train(), self.train("model.num_layers=-1")],
                    r"rank 1 on [^ ]+: config: /model/num_layers: -1 is not .*")
        self.refuse([self.train(), self.train("data.train.0.path=none.txt")],
                    r"rank 1 on [^ ]+: .*none\.txt.*")

    def test_an_error_of_all_ranks_is_shown_once(self):
        self.refuse([self.train("model.num_layers=-1")] * 2, r"config: /model/num_layers: .*")

    def test_a_wrong_command_line_of_one_rank_is_shown(self):
        code, lines = self.launch(self.train(), self.train() + ["--nonsense"])
        self.assertEqual(code, 2)
        self.assertRegex(lines[0], r"^rank 1 on [^ ]+: .*there is no option --nonsense; ")

    def test_an_automatic_size_on_one_rank_only_is_refused(self):
        self.refuse([self.train(), self.train(SIZE)],
                    r"config: /batch/micro_batch_size: rank 0 on [^ ]+ has a number, rank 1 on "
                    r"[^ ]+ has \"auto\"; .*")

    def test_different_commands_are_refused(self):
        self.refuse([self.train(), self.train(command="plan")],
                    r"trident: rank 0 on [^ ]+ runs train, rank 1 on [^ ]+ runs plan; .*")
        self.refuse([self.train(), self.train() + ["--dry-run"]],
                    r"trident: rank 0 .* runs train, rank 1 .* runs train --dry-run; .*")

    def test_a_rank_that_never_comes_ends_the_job_in_time(self):
        stopped = ["sh", "-c", "kill -STOP $$"]
        self.refuse([self.train("runtime.timeout_seconds=2"), stopped],
                    r"trident: rank 0 on [^ ]+: waited 2 s for all processes of the job to start "
                    r"MPI; .*", code=3)


class Threads(Job):
    def test_a_missing_permission_is_reported_before_anything_is_written(self):
        # No address space is large enough for this stack: the system refuses every thread.
        command = ["sh", "-c", "ulimit -s 8589934592; exec \"$@\"", "sh"]
        run = subprocess.run(command + self.train("parallel.data_parallel_size=2"), cwd=self.folder,
                             capture_output=True, text=True, timeout=60)
        self.assertRegex(run.stderr, r"^config: /runtime/threads_per_rank: 2 ranks of 1 in one "
                         r"process need 2 threads; the system allows only 0 more here: raise .*ulimit -u.*")
        self.assertEqual(run.returncode, 2)
        self.assertFalse((self.folder / "run").exists())


class Failing(Job):
    """The message is the same as in one process, with rank and host, once; the exit code is the
    same."""

    def fail_alike(self, *overrides):
        alone = subprocess.run(self.train("parallel.data_parallel_size=2", *overrides),
                               cwd=self.folder, capture_output=True, text=True, timeout=60)
        text = alone.stderr.strip()
        self.assertTrue(text.startswith("trident: "), text)
        code, lines = self.launch(*[self.train("logging.overwrite=true", *overrides)] * 2)
        lines = [line for line in lines if not line.startswith("warning")]
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"^trident: rank [01] on [^ ]+: ")
        self.assertEqual(lines[0].split(": ", 2)[2], text.split(": ", 1)[1])
        self.assertEqual((code, alone.returncode), (3, 3))

    def test_a_loss_that_is_not_finite(self):
        self.fail_alike("optimizer.params.lr=1e30", "training.train_iters=9")

    def test_a_token_beyond_the_vocabulary(self):
        tokens = [7] * 800
        tokens[83] = 60000  # in one sample, so on one rank
        (self.folder / "t.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        (self.folder / "t.idx").write_bytes(  # Megatron's: one sequence of uint16, one document
            b"MMIDIDX\0\0" + struct.pack("<QBQQiqqq", 1, 8, 1, 2, len(tokens), 0, 0, 1))
        self.fail_alike("data.train.0.path=t", "data.shuffle=false")


class Pause(Job):
    def wait_for(self, run, iterations):
        metrics = self.folder / "run/metrics.jsonl"
        for _ in range(3000):
            if metrics.exists() and metrics.read_text().count("\n") >= iterations:
                return
            if run.poll() is not None:
                self.fail(f"ended with {run.returncode}: {run.stderr.read()}")
            time.sleep(0.01)
        self.fail(f"iteration {iterations} has not come")

    def test_a_stopped_and_continued_run_comes_to_the_same_result(self):
        results = []
        for stopped in True, False:
            (self.folder / "c.json").write_text(json.dumps(CONFIG | {"training": {"train_iters": 200}}))
            run = subprocess.Popen(
                self.train("parallel.data_parallel_size=2", "parallel.pipeline_model_parallel_size=2",
                           "runtime.timeout_seconds=4", "logging.overwrite=true"),
                cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if stopped:
                self.wait_for(run, 20)
                run.send_signal(signal.SIGSTOP)
                time.sleep(6)
                run.send_signal(signal.SIGCONT)
            _, text = run.communicate(timeout=120)
            self.assertEqual((run.returncode, text), (0, ""))
            results.append([json.loads(line)["loss"]
                            for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()])
        self.assertEqual(*results)


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
