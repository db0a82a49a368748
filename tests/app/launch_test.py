#!/usr/bin/env python3
"""Tests `trident launch`: killed starts, hosts that come and go, signals, and its report.

    python3 tests/app/launch_test.py build/release/trident
"""

import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = ""
ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
ITERATIONS = 300
CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
              "vocab_size": 256},
    "parallel": {"data_parallel_size": 2},
    "batch": {"global_batch_size": 8, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 64},
    "training": {"train_iters": ITERATIONS},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "runtime": {"threads_per_rank": 1},
    "checkpoint": {"save": "weights", "save_interval": 7},
    "logging": {"dir": "run", "tensorboard": False, "trace": False}}


class LaunchTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.TemporaryDirectory(prefix="trident-launch-")
        self.addCleanup(self.root.cleanup)
        self.folder = self.make("a")

    def make(self, name):
        folder = pathlib.Path(self.root.name) / name
        folder.mkdir()
        (folder / "text.txt").write_text("In the beginning was the word, and the word was good. " * 90)
        (folder / "c.json").write_text(json.dumps(CONFIG))
        return folder

    def start(self, *options, folder=None, environment=None):
        return subprocess.Popen(
            [PROGRAM, "launch", "c.json", "--backoff", "0.1", "--format", "json", *options],
            cwd=folder or self.folder, env=ENVIRONMENT | (environment or {}), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, process, code):
        out, err = process.communicate(timeout=240)
        self.assertEqual(process.returncode, code, err + out)
        document = json.loads(out)  # one document, with the last start's report
        if code == 0:
            self.assertGreater(document["run"]["iterations"], 0)
        return document, err

    def lines(self, folder=None):
        path = (folder or self.folder) / "run" / "metrics.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]]

    def until(self, condition):
        limit = time.monotonic() + 120
        while not condition():
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.005)

    def trained(self, iteration):
        self.until(lambda: (self.lines() or [{"iteration": 0}])[-1]["iteration"] >= iteration)

    def below(self, pid):
        """Returns the program's own ranks among this process's descendants."""
        found = []
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            try:
                words = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                found += [int(child)] if words[1:2] == [b"train"] else self.below(child)
            except OSError:
                pass
        return found

    def reference(self):
        uninterrupted = self.make("uninterrupted")
        subprocess.run([PROGRAM, "train", "c.json"], cwd=uninterrupted, env=ENVIRONMENT, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [line["loss"] for line in self.lines(uninterrupted)]

    def test_killed_starts_resume_and_their_time_is_reported(self):
        uninterrupted = self.reference()
        begin = time.monotonic()
        process = self.start()
        for iteration in (10, 100, 200):
            self.trained(iteration)
            for rank in self.below(process.pid):
                os.kill(rank, signal.SIGKILL)
            self.until(lambda: not self.below(process.pid))
        reported, err = self.end(process, 0)
        wall = time.monotonic() - begin
        self.assertEqual([line["loss"] for line in self.lines()], uninterrupted)
        self.assertGreaterEqual(reported["starts"], 2)
        self.assertIn("ended by signal 9 (Killed)", err)
        self.assertEqual(reported["iterations"], ITERATIONS)
        parts = [reported[key] for key in ("training", "saving", "lost", "starting", "waiting")]
        self.assertAlmostEqual(sum(parts), reported["seconds"], places=6)
        self.assertLess(abs(reported["seconds"] - wall), 0.2 * wall + 0.5)
        self.assertGreaterEqual(reported["waiting"], 0.1 * (reported["starts"] - 1))
        seconds = sum(line["iteration_time_ms"] for line in self.lines()) * 1e-3
        self.assertAlmostEqual(reported["training"], seconds, places=6)

    def test_a_beginning_that_was_asked_for_is_asked_for_once(self):
        """Only the first start goes back or starts over; a later one would discard the saves before
        it."""
        uninterrupted = self.reference()
        self.end(self.start("--set", "training.train_iters=14"), 0)
        for options in (("checkpoint.load=7",),
                        ("checkpoint.resume=never", "logging.overwrite=true",
                         "checkpoint.overwrite=true")):
            process = self.start(*[word for one in options for word in ("--set", one)])
            self.until(lambda: 100 < len(self.lines()) < ITERATIONS)  # lines of its own
            for rank in self.below(process.pid):
                os.kill(rank, signal.SIGKILL)
            reported, err = self.end(process, 0)
            self.assertEqual(reported["starts"], 2, err)
            self.assertLess(reported["lost_iterations"], 20)
            self.assertEqual([line["loss"] for line in self.lines()], uninterrupted)

    def test_a_signal_stops_it_and_the_run_saves(self):
        for options in ((), ("--with", "mpirun --bind-to none")):
            process = self.start("--set", "training.train_iters=1000000", *options)
            self.trained(len(self.lines()) + 3)
            process.send_signal(signal.SIGTERM)
            reported, err = self.end(process, 130)
            self.assertEqual(reported["starts"], 1)
            self.assertIn("SIGTERM: passed on", err)
            last = self.lines()[-1]["iteration"]
            self.assertTrue((self.folder / f"weights/iteration-{last}").is_dir())

    def test_a_signal_that_comes_before_there_are_ranks_stops_it_too(self):
        """mpirun drops a signal that it can't pass on yet."""
        for options in ((), ("--with", "mpirun --bind-to none")):
            for delay in (0.02, 0.1, 0.2, 0.3):
                process = self.start("--set", "training.train_iters=1000000", *options)
                time.sleep(delay)
                process.send_signal(signal.SIGTERM)
                out, err = process.communicate(timeout=60)
                self.assertIn(process.returncode, (130, 3, -signal.SIGTERM), err + out)

    def test_processes_that_a_starter_leaves_behind_are_ended(self):
        """launch ends left-over processes before the next start, because they hold the run's
        folders."""
        wrapper = self.folder / "wrapper"
        wrapper.write_text('#!/bin/bash\nshift 2\n"$@" &\nwait\n')
        wrapper.chmod(0o755)
        process = self.start("--with", str(wrapper))
        self.trained(10)
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        os.kill(int(pathlib.Path(children).read_text().split()[0]), signal.SIGKILL)
        reported, err = self.end(process, 0)
        self.assertIn("ended 1 process(es) that this start had left", err)
        self.assertEqual(reported["starts"], 2)
        self.assertEqual(reported["lost_iterations"], 0)  # launch asked it to save
        # The wrapper doesn't pass signals on; when launch is stopped, the run saves all the same.
        process = self.start("--with", str(wrapper), "--set", "training.train_iters=1000000")
        self.trained(ITERATIONS + 10)
        process.send_signal(signal.SIGTERM)
        reported, err = self.end(process, 130)
        last = self.lines()[-1]["iteration"]
        self.assertTrue((self.folder / f"weights/iteration-{last}").is_dir())

    def test_a_starter_that_hangs_without_ranks_is_ended(self):
        """mpirun hangs in this way if a rank dies while it connects."""
        wrapper = self.folder / "wrapper"
        wrapper.write_text("""#!/bin/bash
shift 2
[ -e hung ] && exec "$@"
touch hung
"$@" &
until [ "$(cat run/metrics.jsonl 2>&1 | wc -l)" -ge 10 ]; do sleep 0.05; done
kill -9 $!
sleep 1000
""")
        wrapper.chmod(0o755)
        reported, err = self.end(self.start("--with", str(wrapper)), 0)
        self.assertIn("has had no ranks here for 20 s and doesn't end: killing it", err)
        self.assertEqual(reported["starts"], 2)

    def test_a_second_generation_is_asked_to_save_as_well(self):
        wrapper = self.folder / "wrapper"
        wrapper.write_text("""#!/bin/bash
shift 2
bash -c '"$@"; true' job "$@" &
until [ "$(cat run/metrics.jsonl 2>&1 | wc -l)" -ge 10 ]; do sleep 0.05; done
exit 1
""")
        wrapper.chmod(0o755)
        begin = time.monotonic()
        process = self.start("--with", str(wrapper), "--max-restarts", "0",
                             "--set", "training.train_iters=1000000")
        reported, err = self.end(process, 3)
        self.assertLess(time.monotonic() - begin, 55)  # no process had to be killed
        last = self.lines()[-1]["iteration"]
        self.assertTrue((self.folder / f"weights/iteration-{last}").is_dir(), err)

    def test_a_start_that_nothing_comes_of_is_tried_again(self):
        """launch reports the first start's failure and tries again: hosts, disks and programs may
        come back."""
        hosts = self.folder / "hosts"
        hosts.write_text("localhost slots=2\n")
        process = self.start("--hostfile", "hosts", "--min-ranks", "1")
        self.trained(10)
        hosts.unlink()
        for rank in self.below(process.pid)[:1]:
            os.kill(rank, signal.SIGKILL)
        self.until(lambda: not self.below(process.pid))
        time.sleep(4)
        hosts.write_text("localhost slots=2\n")
        reported, err = self.end(process, 0)
        self.assertIn("hosts: can't open", err)
        self.assertGreaterEqual(reported["starts"], 3)

    def test_no_more_starts_than_allowed(self):
        reported, err = self.end(self.start("--with", "false", "--max-restarts", "2"), 3)
        self.assertEqual(reported["starts"], 3)
        self.assertIn("--max-restarts is 2", err)

    def test_a_wrong_request_is_not_tried_again(self):
        process = self.start("--set", "data.train.0.path=none.txt")
        self.assertEqual(self.end(process, 2)[0]["starts"], 1)
        (self.folder / "evil").write_text("-oProxyCommand=touch${IFS}pwned slots=1\n")
        for options in (("--set", "checkpoint.save_interval=0"), ("--with", "no-such-program"),
                        ("--min-ranks", "3", "--max-ranks", "3"), ("--hostfile", "evil"),
                        ("--backoff", "nan")):
            process = self.start(*options)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 2)

    def test_iterations_of_another_run_are_not_counted(self):
        """The start is refused, for example because another run holds the folder and continues to
        write there."""
        starter = self.folder / "refused"
        starter.write_text("""#!/bin/sh
            mkdir -p run
            echo '{"iteration": 1, "iteration_time_ms": 1000}' >>run/metrics.jsonl
            exit 2""")
        starter.chmod(0o755)
        reported, err = self.end(self.start("--with", "./refused"), 2)
        self.assertEqual((reported["starts"], reported["iterations"], reported["training"]), (1, 0, 0))
        self.assertAlmostEqual(reported["starting"], reported["seconds"], places=6)
        self.assertNotIn("at iteration", err)

    def test_the_reason_for_no_ranks_is_named(self):
        (self.folder / "hosts").write_text("gone slots=8\naway slots=8\n")
        for options, expected in (
                (("--min-ranks", "4", "--max-ranks", "2"),
                 "--min-ranks: 4 is more than --max-ranks (2)"),
                (("--hostfile", "hosts", "--max-ranks", "8"),
                 "--hostfile: hosts: none of its hosts answers")):
            process = self.start(*options, environment={"OMPI_MCA_plm_rsh_agent": "false"})
            err = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 2)
            self.assertEqual(err.strip().split("\n")[-1], expected)

    def test_the_lock_of_a_dying_run_is_waited_for(self):
        held = self.folder / "weights"
        held.mkdir()
        lock = os.open(held, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = self.start("--set", "training.train_iters=8")
        time.sleep(2)
        self.assertEqual(self.lines(), [])
        os.close(lock)
        reported, err = self.end(process, 0)
        self.assertIn("waiting 15 s at most: ", err)
        self.assertEqual(reported["starts"], 1)
        self.assertEqual(len(self.lines()), 8)

    def test_as_many_ranks_as_there_are(self):
        uninterrupted = self.reference()
        hosts = self.folder / "hosts"
        hosts.write_text("localhost slots=2  # here\ngone slots=8\n")
        process = self.start("--hostfile", "hosts", "--min-ranks", "1", "--max-ranks", "8",
                             environment={"OMPI_MCA_plm_rsh_agent": "false"})
        self.trained(10)
        hosts.write_text("localhost slots=5\ngone slots=8\n")  # 5 and 3 don't divide the batch of 8
        for rank in self.below(process.pid)[:1]:
            os.kill(rank, signal.SIGKILL)
        reported, err = self.end(process, 0)
        self.assertIn("gone does not answer: left out", err)
        self.assertIn("start 1: 2 ranks", err)
        self.assertIn("start 2: 4 ranks", err)
        lines = self.lines()
        self.assertEqual([line["iteration"] for line in lines], list(range(1, ITERATIONS + 1)))
        self.assertEqual(lines[-1]["consumed_tokens"], ITERATIONS * 8 * 64)
        # Sums in another order: the errors in their last digits grow to 1% in 300 iterations, as in
        # uninterrupted runs.
        for line, other in list(zip(lines, uninterrupted))[:60]:
            self.assertAlmostEqual(line["loss"], other, delta=1e-5 * other)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=1)
