#!/usr/bin/env python3
"""Tests scripts/gpu_check and bench/compare_gpu.py with fake programs (fake_bundle.py)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import unittest

from fake_bundle import GpuCheck, ROOT, SANITIZER, TRIDENT


class Tests(GpuCheck):
    def test_all_pass_and_are_not_run_again_on_this_commit(self):
        self.kernels(A="ok", B="ok")
        result = self.part("kernels")
        self.assertEqual(result["status"], "passed")
        self.assertEqual(result["found"], {"tests": ["kernels_test: 2 of 2 passed"]})
        self.assertEqual((result["device"], result["commit"]), ("NVIDIA Fake", "abc123"))
        self.assertEqual(result["versions"], {"driver": "590.1"})
        self.assertEqual(result["proven"]["found"], result["found"])
        self.call("--part", "kernels")
        self.assertEqual(self.calls("kernels_test"), [])
        self.call("--part", "kernels", "--again")
        self.assertEqual(len(self.filters("kernels_test")), 1)
        self.module.commit = lambda: "later"
        self.call("--part", "kernels")
        self.assertEqual(len(self.filters("kernels_test")), 1)

    def test_a_failure_is_named_and_only_it_is_run_again(self):
        self.kernels(A="ok", B="fail", C="ok")
        code, text = self.call("--part", "kernels")
        self.assertEqual(code, 1)
        self.assertIn("failed", text)
        self.assertIn("All/K.B/cuda;", self.results()["kernels"]["reason"])
        self.kernels(A="ok", B="ok", C="ok")
        self.assertEqual(self.part("kernels")["found"], {"tests": ["kernels_test: 3 of 3 passed"]})
        self.assertEqual(self.filters("kernels_test"), ["--gtest_filter=All/K.B/cuda"])

    def test_the_last_success_outlives_a_failure(self):
        self.kernels(A="ok")
        self.part("kernels")
        self.module.commit = lambda: "later"
        self.kernels(A="fail")
        result = self.part("kernels")
        self.assertEqual((result["status"], result["commit"]), ("failed", "later"))
        self.assertEqual(result["proven"]["commit"], "abc123")
        row = next(line for line in self.document().splitlines() if line.startswith("| kernels "))
        self.assertIn("failed", row)
        self.assertRegex(row, r"NVIDIA Fake \| later \| .*NVIDIA Fake, abc123, ")

    def test_skipped_ones_are_not_green(self):
        self.kernels(A="ok", B="skip")
        result = self.part("kernels")
        self.assertEqual(result["status"], "not finished")
        self.assertIn("skipped: All/K.B/cuda", result["reason"])
        self.assertNotIn("proven", result)

    def test_no_test_of_that_name_is_a_failure(self):
        self.behave(kernels_test={"tests": {"K.A": "ok"}})
        self.assertEqual(self.part("kernels")["status"], "failed")

    def test_after_the_time_is_over_the_rest_runs_hung_tests_last(self):
        self.module.LIMIT = 5
        self.kernels(A="ok", B="hang", C="ok")
        result = self.part("kernels")
        self.assertEqual(result["status"], "not finished")
        self.assertIn("1 of 3 passed", result["reason"])
        self.assertEqual(result["done"], {"kernels_test": ["All/K.A/cuda"]})
        self.kernels(A="fail", B="ok", C="ok")
        self.assertEqual(self.part("kernels")["status"], "passed")
        self.assertEqual(self.filters("kernels_test"),
                         ["--gtest_filter=All/K.C/cuda", "--gtest_filter=All/K.B/cuda"])

    def test_a_crash_and_a_silent_test_cost_only_themselves(self):
        self.module.STALL = 4  # longer than a program takes to start on a busy machine
        self.kernels(A="crash", B="ok", C="hang", D="ok")
        result = self.part("kernels")
        self.assertEqual(result["status"], "failed")
        self.assertIn("All/K.A/cuda (exit code -11), All/K.C/cuda (no output for 4 s)",
                      result["reason"])
        self.assertEqual(result["done"], {"kernels_test": ["All/K.B/cuda", "All/K.D/cuda"]})

    def test_tests_after_an_illegal_access_run_in_a_process_of_their_own(self):
        self.kernels(A="sticky", B="ok", C="ok")
        result = self.part("kernels")
        self.assertTrue(result["reason"].startswith("All/K.A/cuda;"), result["reason"])
        self.assertEqual(result["done"], {"kernels_test": ["All/K.B/cuda", "All/K.C/cuda"]})

    def test_a_program_that_fails_after_its_tests_has_failed_and_stays_so(self):
        self.behave(kernels_test={"tests": {"K.A/cuda": "ok"}, "exit": 7})
        for _ in range(2):
            result = self.part("kernels")
            self.assertEqual(result["status"], "failed")
            self.assertIn("exit code 7", result["reason"])

    def test_halves_are_all_tests(self):
        self.behave(engine_zero_test={"tests": {f"Zero.{n}": "ok" for n in "ABCDE"}})
        found = [self.part(name)["found"]["tests"] for name in ("zero_1", "zero_2")]
        self.assertEqual(found, [["engine_zero_test: 3 of 3 passed"],
                                 ["engine_zero_test: 2 of 2 passed"]])

    def test_nccls_tests_are_those_that_the_gpus_allow(self):
        local = {"Cuda2.A": "ok", "G/NcclAlone.B/0": "ok"}
        errors = {"D/LocalErrors.A/cuda": "ok", "D/LocalErrors.A/nccl": "ok"}
        suites = {"parallel_collectives_local_test": {"tests": local},
                  "parallel_unit_test": {"tests": errors}}
        for gpus, tests in ((1, 1), (8, 2)):
            self.behave(**suites, **{"nvidia-smi": {"gpus": gpus}})
            self.assertEqual(self.part("collectives", "--again")["found"]["tests"][1],
                             f"parallel_unit_test: {tests} of {tests} passed")
            self.assertIn("not run" if gpus == 1 else "over 8 GPUs",
                          self.part("nccl", "--again")["found"]["training"])
        self.behave(**suites, **{"nvidia-smi": {"gpus": 8}, "trident": {"other": 1}})
        self.assertEqual(self.part("nccl", "--again")["status"], "failed")


class Training(GpuCheck):
    def test_both_sides_are_measured_and_figures_come_from_them(self):
        result = self.part("train_gpt2_124m")
        self.assertEqual(result["status"], "passed", result.get("reason"))
        found = result["found"]
        self.assertAlmostEqual(found["ratio"], 1.25)
        self.assertEqual(found["ways"]["pytorch bf16"]["rounds"], 2)
        self.assertAlmostEqual(found["ways"]["pytorch bf16"]["mfu"], 0.4)
        self.assertEqual(result["versions"], {"driver": "590.1", "nccl": "2.28", "torch": "2.99"})
        self.assertEqual(result["refused"], ["gelu 8x8"])
        self.assertEqual(result["gpu_before"][0]["temperature.gpu"], "1")
        self.assertEqual(len(self.calls("trident")), 2)
        self.assertEqual(self.running(), [])

    def test_tridents_figures_outlive_a_pytorch_that_takes_too_long(self):
        self.behave(**{"gpu_step.py": {"bf16": "hang"}})
        self.module.LIMIT = 16  # of which compare_gpu.py gets 6 seconds
        result = self.part("train_gpt2_1.5b")
        self.assertEqual(result["status"], "partial")
        self.assertIn("longer than", result["reason"])
        self.assertGreater(result["found"]["ways"]["trident"]["tokens_per_second"], 0)
        self.assertNotIn("proven", result)
        self.assertIn("| gpt2_1.5b | trident |", self.document())
        self.behave()
        self.assertEqual(self.part("train_gpt2_1.5b")["status"], "passed")

    def test_a_stopped_comparison_leaves_its_first_figures(self):
        self.behave(**{"gpu_step.py": {"bf16": "hang"}})
        timer = threading.Timer(6, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        result = self.part("train_gpt2_1.5b")
        self.assertEqual(result["status"], "partial")
        self.assertIn("still ran", result["reason"])
        self.assertIn("tokens_per_second", result["found"]["ways"]["trident"])
        self.assertEqual(self.running(), [])

    def test_without_pytorch_it_is_partial_without_trident_failed(self):
        self.behave(**{"gpu_step.py": {"bf16": "fail", "autocast": "fail"}})
        result = self.part("train_llama_1b")
        self.assertEqual(result["status"], "partial")
        self.assertIn("No module named 'torch'", result["reason"])
        self.behave(trident={"step": "fail"})
        result = self.part("train_llama_1b")
        self.assertEqual((result["status"], result["reason"]), ("failed", "trident: no such device"))

    def test_a_first_look_continues_after_a_config_that_fails(self):
        self.behave(trident={"step": "gpt2_124m"})
        result = self.part("first_look")
        self.assertEqual(result["status"], "failed")
        self.assertIn("gpt2_124m: exit code 1: ", result["reason"])
        self.assertEqual(list(result["found"]["steps"]), ["gpt2_1.5b", "llama_1b"])


class Tools(GpuCheck):
    def test_the_sanitizer_starts_the_program_and_not_its_script(self):
        self.program("path/compute-sanitizer", SANITIZER)
        self.program("bin/trident.py", TRIDENT)
        self.program("bin/trident",
                     f'#!/bin/sh\nexec $TRIDENT_UNDER {self.top}/bin/trident.py "$@"\n')
        result = self.part("memcheck")
        self.assertEqual(result["status"], "passed", result.get("reason"))
        self.assertEqual(result["found"], {"summary": "ERROR SUMMARY: 0 errors"})
        self.assertIn("memcheck", self.calls("compute-sanitizer")[0][1])
        self.behave(**{"compute-sanitizer": {"summary": "3 errors"}})
        self.assertEqual(self.part("racecheck")["status"], "failed")
        self.behave(**{"compute-sanitizer": {"silent": True}})
        self.assertEqual(self.part("racecheck")["status"], "not run")

    def test_a_machine_without_a_gpu_is_refused(self):
        self.behave(**{"nvidia-smi": {"refuses": True}})
        code, text = self.call()
        self.assertEqual(code, 2)
        self.assertIn("no GPU", text)

    def test_saves_are_measured_and_a_run_that_resumes_with_other_bits_fails(self):
        result = self.part("saves")
        self.assertEqual(result["found"]["saves"],
                         {"bytes": 4, "usual_ms": 50, "beside_first_ms": 51,
                          "beside_second_ms": 51, "pauses_ms": [2], "staging_bytes": 4})
        self.assertIn("training waited for 2 ms", self.document())
        self.behave(trident={"diff": 3})
        self.assertEqual(self.part("saves", "--again")["status"], "failed")

    def test_an_old_nvidia_smi_is_tolerated(self):
        self.behave(**{"nvidia-smi": {"old": True}})
        result = self.part("first_look")
        self.assertEqual((result["status"], result["gpu_before"]), ("passed", []))

    def test_an_error_of_a_part_leaves_the_others(self):
        (self.top / "bin/kernels_bench").write_text(f"#!{sys.executable}\nprint('[')\n")
        self.assertEqual(self.call("--part", "streaming", "--part", "device")[0], 1)
        self.assertIn("ValueError", self.results()["streaming"]["reason"])
        self.assertEqual(self.results()["device"]["status"], "passed")

    def test_nothing_is_begun_that_takes_longer_than_is_left(self):
        text = self.call("--part", "train_gpt2_1.5b", "--seconds", "150")[1]
        self.assertIn("not begun, it usually takes 200 s", text)
        self.assertEqual(self.calls("trident"), [])

    def test_results_without_a_library_are_listed_apart_and_verify_nothing(self):
        self.call("--part", "first_look")
        self.call("--part", "first_look", "--without", "timing,cudnn")
        name = "first_look without cudnn,timing"
        result = self.results()[name]
        self.assertEqual((result["status"], result["without"]), ("passed", "cudnn,timing"))
        self.assertNotIn("proven", result)
        self.assertEqual(self.calls("trident")[0][2]["TRIDENT_CUDA_WITHOUT"], "cudnn,timing")
        page = self.document()
        self.assertIn(f"| {name} |", page)
        self.assertEqual(page.count("MFU of gpt2_1.5b"), 1)
        with self.assertRaises(SystemExit):
            self.call("--without", "cublas")

    def test_the_log_has_a_limit(self):
        self.module.LOG_BYTES = 1 << 10
        self.kernels(**{f"Name{i:04}": "ok" for i in range(100)})
        self.assertIn("no more is written", self.call("--part", "kernels")[1])
        self.assertLess((self.top / "results/log.txt").stat().st_size, 2 << 10)
        self.assertEqual(self.results()["kernels"]["status"], "passed")

    def test_a_bundled_program_runs_under_a_command(self):
        top = self.top / "bundle"
        for folder in ("bin", "programs", "lib/glibc", "cuda"):
            (top / folder).mkdir(parents=True)
        for library in ("libcublasLt.so.13", "libnvrtc.so.13", "libcudnn.so.9", "libnccl.so.2"):
            (top / "cuda" / library).touch()
        (top / "lib/glibc/needed").write_text("2.1\n")
        shutil.copy(ROOT / "scripts/run_bundled", top / "lib/run")
        (top / "bin/tool").symlink_to("../lib/run")
        self.program("bundle/programs/tool", '#!/bin/sh\necho tool "$@"\n')
        self.program("bundle/under", '#!/bin/sh\necho under "$1"\nshift\n"$@"\n')
        environment = {**os.environ, "LD_LIBRARY_PATH": str(top / "cuda")}
        for under, expected in (("", "tool a b c\n"), (f"{top}/under -x", "under -x\ntool a b c\n")):
            done = subprocess.run([top / "bin/tool", "a", "b c"], capture_output=True, text=True,
                                  env=environment | {"TRIDENT_UNDER": under}, check=True)
            self.assertEqual(done.stdout, expected)


class Document(GpuCheck):
    def test_without_results_it_reports_that_nothing_has_run(self):
        page = self.document()
        self.assertTrue(page.startswith("above\n") and page.endswith("below\n"))
        self.assertEqual(page.count("| never run on a GPU |"), len(self.module.PARTS))
        self.assertNotIn("\nold\n", page)

    def test_figures_versions_and_verdicts_are_in_it(self):
        for name in ("device", "first_look", "train_gpt2_1.5b", "streaming"):
            self.assertEqual(self.part(name)["status"], "passed")
        page = self.document()
        self.assertIn("- 2 of 3 streaming kernels at or above 0.85 of the copy rate; below: "
                      "add/bf16 0.7.", page)
        self.assertIn("- MFU of gpt2_1.5b (trident) 0.500 (aim 0.55).", page)
        self.assertIn("- ratio to PyTorch of gpt2_1.5b 1.250 (aim 1.15).", page)
        self.assertIn("- gelu 8x8", page)
        self.assertIn("driver 590.1, cudnn 9.19, nccl 2.28, torch 2.99", page)
        self.assertRegex(page, r"\| gpt2_1.5b \| trident \|.*\| 1.250 \| NVIDIA Fake \| abc123 \| 20")
        self.assertRegex(page, r"Not verified on any GPU: kernels, golden, ")

    def test_of_several_folders_the_newest_counts_with_the_last_success(self):
        self.kernels(A="ok")
        self.part("kernels")
        shutil.copytree(self.top / "results", self.top / "other")
        other = json.loads((self.top / "other/results.json").read_text())
        other["kernels"].update(run="2999", status="failed", reason="B", commit="later")
        del other["kernels"]["proven"]
        (self.top / "other/results.json").write_text(json.dumps(other))
        for order in (("results", "other"), ("other", "results")):
            all_results = [self.module.read(self.top / name) for name in order]
            result = self.module.gpu_table.merged(all_results)["kernels"]
            self.assertEqual((result["status"], result["proven"]["commit"]), ("failed", "abc123"))

    def test_the_list_names_every_part(self):
        text = self.call("--list")[1]
        self.assertEqual([line.split()[0] for line in text.splitlines()], list(self.module.PARTS))


if __name__ == "__main__":
    unittest.main()
