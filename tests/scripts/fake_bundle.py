"""A bundle of fake programs for gpu_check_test.py, in a temporary folder. They follow the test's
behaviour.json. It has a fake nvidia-smi and sanitizer, too.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Each program plays its part by its own name, and appends its arguments to `calls`.
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
elif "train" in words and "checkpoint.save=whole" in words:
    pathlib.Path("whole/iteration-60").mkdir(parents=True)
    pathlib.Path("whole/iteration-60/model.safetensors").write_text("1234")
    pathlib.Path("whole-log").mkdir()
    lines = [{"iteration": i, "iteration_time_ms": 50 + (i > 60), "save_pause_ms": 2 * (i == 61),
              "peak_memory": {"staging": 4 * (i > 60)}} for i in range(1, 181)]
    with open("whole-log/metrics.jsonl", "w") as file:
        for line in lines:
            print(json.dumps(line), file=file)
elif "diff" in words:
    sys.exit(does.get("diff", 0))
elif "train" in words:
    print("final loss " + ("3" if "runtime.transport=nccl" in words and does.get("other") else "2"))
"""
KERNELS_BENCH = FAKE + """
rows = {"copy/bf16": 0.99, "add/bf16": 0.7, "sum/fp32": 0.3, "gemm/forward/8x8x8/bf16": 0.6,
        "square_sums/fp32": 0.9}
print(json.dumps({"benchmarks": [{"name": f"{k}/threads:1/manual_time", "real_time": 1.0,
                                  "of_limit": v, "B/s": 1e12} for k, v in rows.items()]}))
"""
# Like Inductor's workers, one worker outlives the program and holds its pipes.
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
                     "engine_zero_test"):
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
        """Returns its exit code and its output."""
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
        """The filters of the runs, without the listings."""
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
