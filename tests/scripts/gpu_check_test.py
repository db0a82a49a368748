#!/usr/bin/env python3
"""scripts/gpu_check and bench/compare_gpu.py on fake programs: a bundle in a temporary folder whose
programs do what a test has written into behaviour.json, with a fake nvidia-smi and sanitizer.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Each takes its part by its own name; what it was called with goes to calls.
FAKE = f"""#!{sys.executable}
import fnmatch, json, os, pathlib, signal, subprocess, sys, time
here = pathlib.Path(__file__).resolve().parent
while not (here / "behaviour.json").exists():
    here = here.parent
name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
does = json.loads((here / "behaviour.json").read_text()).get(name, {{}})
keep = {{k: v for k, v in os.environ.items() if k.startswith("TRIDENT_")}}
with open(here / "calls", "a") as file:
    file.write(json.dumps([name, words, keep]) + "\\n")
"""
NVIDIA_SMI = FAKE + """
if does.get("refuses") or "clocks_event_reasons" in " ".join(words) and does.get("old"):
    sys.exit("nvidia-smi has failed")
query = words[0].partition("=")[2].split(",")
fields = {"name": "NVIDIA Fake", "driver_version": "590.1"}
for _ in range(does.get("gpus", 1)):
    print(", ".join(fields.get(f, "1") for f in query))
"""
GOOGLE_TEST = FAKE + """
tests = does["tests"]
def matches(test, patterns):
    return any(fnmatch.fnmatchcase(test, p) for p in patterns.split(":") if p)
wanted = next(w.partition("=")[2] for w in words if w.startswith("--gtest_filter="))
positive, _, negative = wanted.partition("-")
chosen = [t for t in tests if matches(t, positive or "*") and not matches(t, negative)]
print("Running main() from gtest_main.cc")
if "--gtest_list_tests" in words:
    last = ""
    for test in chosen:
        suite, _, case = test.partition(".")
        if suite != last:
            print(suite + ".")
        last = suite
        print("  " + case + "  # GetParam() = 1")
    sys.exit()
def say(kind, test):
    print(f"[{kind}] {test} (1 ms)", flush=True)
bad = []
for test in chosen:
    print(f"[ RUN      ] {test}", flush=True)
    what = "sticky" if "sticky" in bad else tests[test]
    if what == "hang":
        time.sleep(60)
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "leave":
        sys.exit(3)
    if what == "sticky":
        print("cuda: copy: an illegal memory access was encountered (cudaErrorIllegalAddress)")
    if what in ("fail", "sticky"):
        bad.append(what)
    say({"skip": "  SKIPPED ", "ok": "       OK "}.get(what, "  FAILED  "), test)
print(f"[  PASSED  ] {len(chosen)} tests.")
sys.exit(does.get("exit", 1 if bad else 0))
"""
TRIDENT = FAKE + """
if "gemm" in words:
    print(json.dumps({"device": "NVIDIA Fake", "products": [{"dtype": "bf16", "gflops": 7e5}],
                      "versions": {"cudnn": "9.19"}}))
elif "step" in words:
    if does.get("step") == "fail" or pathlib.Path(words[2]).stem == does.get("step"):
        sys.exit("trident: no such device")
    print("trident cuda: refused: gelu 8x8", file=sys.stderr)
    print(json.dumps({"milliseconds": 100.0, "tokens_per_second": 1e5, "mfu": 0.5,
                      "device": "NVIDIA Fake", "ledger": {"largest_rank": {"total": 3e9}},
                      "versions": {"nccl": "2.28"}}))
elif "train" in words:
    print("final loss " + ("3" if "runtime.transport=nccl" in words and does.get("other") else "2"))
"""
KERNELS_BENCH = FAKE + """
rows = {"copy/bf16": 0.99, "add/bf16": 0.7, "sum/fp32": 0.3, "gemm/forward/8x8x8/bf16": 0.6,
        "square_sums/fp32": 0.9}
print(json.dumps({"benchmarks": [{"name": f"{k}/threads:1/manual_time", "real_time": 1.0,
                                  "of_limit": v, "B/s": 1e12} for k, v in rows.items()]}))
"""
# As Inductor's do, a worker outlives it and holds its pipes.
GPU_STEP = FAKE + """
kind = words[words.index("--kind") + 1]
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(here)])
if does.get(kind) == "hang":
    time.sleep(60)
if does.get(kind) == "fail":
    sys.exit("ModuleNotFoundError: No module named 'torch'")
print(json.dumps({"milliseconds": 125.0, "peak_bytes": 4e9, "sdpa": ["CUDNN_ATTENTION"],
                  "versions": {"torch": "2.99"}}), flush=True)
os._exit(0)
"""
SANITIZER = FAKE + """
if does.get("silent"):
    sys.exit("Internal error")
print("ERROR SUMMARY: " + does.get("summary", "0 errors"))
sys.stdout.flush()
program = words[words.index("9") + 1:]
os.execv(program[0], program)
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.top = pathlib.Path(holder.name)
        for folder in ("scripts", "bench", "bin", "path", "configs"):
            (self.top / folder).mkdir()
        for name in ("gpu_check", "gpu_table.py"):
            shutil.copy(ROOT / "scripts" / name, self.top / "scripts")
        shutil.copy(ROOT / "bench/compare_gpu.py", self.top / "bench")
        shutil.copytree(ROOT / "configs/gpu", self.top / "configs/gpu")
        (self.top / "commit").write_text("abc123\n")
        self.program("bench/gpu_step.py", GPU_STEP)
        self.program("path/nvidia-smi", NVIDIA_SMI)
        self.program("bin/trident", TRIDENT)
        self.program("bin/kernels_bench", KERNELS_BENCH)
        for name in ("kernels_test", "parallel_collectives_local_test", "parallel_unit_test",
                     "training_zero_test"):
            self.program(f"bin/{name}", GOOGLE_TEST)
        self.behave()
        path = unittest.mock.patch.dict(os.environ, PATH=f"{self.top}/path:{os.environ['PATH']}")
        path.start()
        self.addCleanup(path.stop)
        os.environ.pop("TRIDENT_CUDA_WITHOUT", None)
        sys.path.insert(0, str(self.top / "scripts"))
        self.addCleanup(sys.path.remove, str(self.top / "scripts"))
        loader = importlib.machinery.SourceFileLoader("gpu_check",
                                                      str(self.top / "scripts/gpu_check"))
        self.module = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("gpu_check", loader))
        loader.exec_module(self.module)

    def program(self, name, text):
        (self.top / name).write_text(text)
        (self.top / name).chmod(0o755)

    def behave(self, **does):
        (self.top / "behaviour.json").write_text(json.dumps(does))

    def kernels(self, **tests):
        named = {f"All/K.{name}/cuda": what for name, what in tests.items()}
        self.behave(kernels_test={"tests": named})

    def call(self, *words):
        """Its exit code, and what it printed."""
        (self.top / "calls").write_text("")
        with contextlib.redirect_stdout(io.StringIO()) as out, \
                contextlib.redirect_stderr(io.StringIO()) as errors:
            code = self.module.main([*words, "--results", str(self.top / "results")])
        return code, out.getvalue() + errors.getvalue()

    def part(self, name, *words):
        self.call("--part", name, *words)
        return self.results()[name]

    def results(self):
        return json.loads((self.top / "results/results.json").read_text())

    def calls(self, name):
        lines = (self.top / "calls").read_text().splitlines()
        return [call for call in map(json.loads, lines) if call[0] == name]

    def filters(self, name):
        """Of the runs, not the listings."""
        return [call[1][0] for call in self.calls(name) if "--gtest_list_tests" not in call[1]]

    def running(self):
        """Programs of this bundle that have not ended; a killed one takes a moment to be gone."""
        until = time.monotonic() + 10
        while True:
            left = []
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    if (text := path.read_text(errors="replace")) and str(self.top) in text:
                        left.append(text.replace("\0", " "))
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.1)

    def document(self):
        page = self.top / "gpu.md"
        page.write_text("above\n<!-- gpu_check: begin -->\nold\n<!-- gpu_check: end -->\nbelow\n")
        self.call("--write", str(page))
        return page.read_text()


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

    def test_after_the_time_is_over_the_rest_runs_what_hung_last(self):
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

    def test_what_fails_after_an_illegal_access_runs_in_a_process_of_its_own(self):
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
        self.behave(training_zero_test={"tests": {f"Zero.{n}": "ok" for n in "ABCDE"}})
        found = [self.part(name)["found"]["tests"] for name in ("zero_1", "zero_2")]
        self.assertEqual(found, [["training_zero_test: 3 of 3 passed"],
                                 ["training_zero_test: 2 of 2 passed"]])

    def test_nccl_is_asked_for_what_the_gpus_allow(self):
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

    def test_what_trident_reached_outlives_a_pytorch_that_takes_too_long(self):
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

    def test_a_comparison_that_is_stopped_leaves_what_it_had(self):
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

    def test_a_first_look_goes_on_after_a_config_that_fails(self):
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
        text = self.call("--part", "train_gpt2_1.5b", "--seconds", "300")[1]
        self.assertIn("not begun, it usually takes 400 s", text)
        self.assertEqual(self.calls("trident"), [])

    def test_results_without_a_library_stand_apart_and_prove_nothing(self):
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
        for under, told in (("", "tool a b c\n"), (f"{top}/under -x", "under -x\ntool a b c\n")):
            done = subprocess.run([top / "bin/tool", "a", "b c"], capture_output=True, text=True,
                                  env=environment | {"TRIDENT_UNDER": under}, check=True)
            self.assertEqual(done.stdout, told)


class Document(GpuCheck):
    def test_from_no_results_it_says_that_nothing_has_run(self):
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
        self.assertIn("driver 590.1, nccl 2.28, torch 2.99", page)
        self.assertRegex(page, r"\| gpt2_1.5b \| trident \|.*\| 1.250 \| NVIDIA Fake \| abc123 \| 20")
        self.assertRegex(page, r"Not proven on any GPU: kernels, golden, ")

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
