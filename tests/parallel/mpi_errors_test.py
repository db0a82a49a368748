#!/usr/bin/env python3
"""Tests how an MPI job ends when one of its ranks fails, is late or stops.

    python3 tests/parallel/mpi_errors_test.py build/release/tests/parallel/parallel_collectives_mpi_test

Each scenario of that program runs on three ranks. The job has to end with the scenario's exit code, its
error has to be shown completely and once, whatever mpirun adds, and no rank may survive.
"""

import pathlib
import re
import subprocess
import sys
import time
import unittest

PROGRAM = ""
WORLD = r"group 'world' \(ranks 0,1,2\): "
SUM = r"all_reduce\(fp32\[1024\], sum\)"


class MpiErrors(unittest.TestCase):
    def run_scenario(self, name, *options, ranks=3):
        """Returns the exit code and Trident's lines."""
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", *options, "-n", str(ranks), PROGRAM,
                   name]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=60)
        self.no_rank_is_left(name)
        return run.returncode, [line for line in run.stdout.splitlines() if "trident: " in line]

    def no_rank_is_left(self, name):
        for _ in range(100):
            left = [p for p in pathlib.Path("/proc").glob("[0-9]*/exe") if self.is_rank(p, name)]
            if not left:
                return
            time.sleep(0.1)
        self.fail(f"ranks live on: {left}")

    @staticmethod
    def is_rank(link, name):
        """Whether the process is of this scenario, as other tests run the same program concurrently."""
        try:
            words = (link.parent / "cmdline").read_text().split("\0")
            return link.readlink() == pathlib.Path(PROGRAM).resolve() and name in words[1:]
        except OSError:
            return False

    def expect(self, name, code, text, *options):
        got, lines = self.run_scenario(name, *options)
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], "^trident: rank [0-2] on [^ ]+: " + text + "$")
        self.assertEqual(got, code)

    def test_different_operations_are_both_named(self):
        other = r"broadcast\(fp32\[1024\], root 1\)"
        self.expect("mismatch", 3, WORLD + "operation #1: rank (0|1) called "
                    f"({SUM}, rank 1 called {other}|{other}, rank 2 called {SUM})")

    def test_work_on_files_does_not_count(self):
        self.assertEqual(self.run_scenario("files"), (0, []))
        # Time after the work on files counts.
        self.expect("late_after_files", 3,
                    WORLD + f"operation #1: {SUM}: rank [02] waited 1000 ms for ranks? [012,]+"
                    r"(; rank [02] waits for rank [012].*)?")

    def test_a_late_rank_is_named(self):
        self.expect("late", 3,
                    WORLD + f"operation #1: {SUM}: rank [02] waited 1000 ms for ranks? [012,]+"
                    r"(; rank [02] waits for rank [012].*)?")

    def test_mpis_own_reduction_names_late_and_differing_ranks(self):
        world = r"group 'world' \(ranks 0,1,2,3,4,5,6,7\): operation #"
        code, lines = self.run_scenario("late_by_mpi", ranks=8)
        self.assertEqual((code, len(lines)), (3, 1), lines)
        self.assertRegex(lines[0], world + "3: " + SUM + r": rank \d waited 1000 ms for rank \d")
        self.assertRegex(lines[0], "for rank 5($|;)")
        code, lines = self.run_scenario("late_by_mpi_first", ranks=8)
        self.assertEqual((code, len(lines)), (3, 1), lines)
        self.assertRegex(lines[0], "for rank 4($|;)")
        code, lines = self.run_scenario("mismatch_by_mpi", ranks=8)
        self.assertEqual((code, len(lines)), (3, 1), lines)
        self.assertRegex(lines[0], world + r"1: rank \d called .*\(fp32\[1024\], (sum|average)\), rank \d "
                         r"called .*\(fp32\[1024\], (sum|average)\)$")

    def test_a_rank_that_is_late_for_a_carried_sum_is_named(self):
        for name in "late_carried_1", "late_carried_2", "late_carried_first_3":
            code, lines = self.run_scenario(name, ranks=4)
            self.assertEqual((code, len(lines)), (3, 1), lines)
            self.assertRegex(lines[0], f"waited 1000 ms for rank {name[-1]}($|;)")

    def test_where_a_late_rank_waits_itself_the_end_of_the_chain_is_named(self):
        self.expect("chain", 3, WORLD + r"message #0 from rank 1 to rank 0 on channel 0: "
                    r"fp32\[1024\]: rank 0 waited 1000 ms for rank 1; rank 1 waits for rank 2")

    def test_the_reason_of_an_exception_is_shown(self):
        self.expect("throw", 3, "disk full")

    def test_of_several_ranks_that_fail_at_once_a_slow_one_still_reports(self):
        for _ in range(4):
            self.expect("together", 3, "disk full")

    def test_a_wrong_request_ends_with_its_own_exit_code(self):
        self.expect("request", 2, "config: /model: another")

    def test_a_rank_that_has_ended_is_named(self):
        self.expect("ended", 3, WORLD + r"message #0 from rank 1 to rank [02] on channel 0: "
                    r"fp32\[1024\]: rank [02] waits for rank 1, which has ended")

    def test_an_abort_shows_its_reason(self):
        self.expect("abort", 3, "loss is not finite")

    def test_a_frozen_rank_ends_the_job_during_any_operation(self):
        late = r"group .* waited 1000 ms for .*"
        silent = r"rank 1 on [^ ]+ has not been heard of for 2000 ms: .*"
        for options in [], ["--mca", "btl", "tcp,self"]:
            for _ in range(2):
                self.expect("frozen", 3, f"({late}|{silent})", *options)

    def test_a_rank_that_does_not_open_the_transport_is_named(self):
        self.expect("unopened", 3, "waited 5 s for rank 1 to open the MPI transport")

    def test_waits_of_a_group_without_a_timeout_outlast_it(self):
        self.assertEqual(self.run_scenario("without_timeout"), (0, []))


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
