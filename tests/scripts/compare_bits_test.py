#!/usr/bin/env python3
"""Tests scripts/compare_bits with the program itself, and with fake ones that differ by a test's choice.

compare_bits_test.py PROGRAM
"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None

# Acts as a build that runs the config with the faults in `does`.
FAKE = f"""#!{sys.executable}
import json, os, pathlib, sys, time
does = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
iterations = json.loads(pathlib.Path("config.json").read_text())["training"]["train_iters"]
time.sleep(does.get("seconds", 0))
if "fails" in does:
    sys.exit(does["fails"])
os.mkdir("run"), os.mkdir("weights")
with open("run/metrics.jsonl", "w") as file:
    for i in range(1, does.get("iterations", iterations) + 1):
        line = dict(iteration=i, loss=1 / i, grad_norm=does.get("norm", 0.1), iteration_time_ms=time.time())
        file.write(json.dumps(line) + chr(10))
weights = bytearray(1000)
weights[999] = does.get("byte", 0)
pathlib.Path("weights/" + does.get("file", "model.safetensors")).write_bytes(weights)
"""


def load():
    loader = importlib.machinery.SourceFileLoader("compare_bits", str(ROOT / "scripts/compare_bits"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare_bits", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


class CompareBits(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def build(self, name, **does):
        folder = self.folder / name
        folder.mkdir()
        program = folder / "trident"
        program.write_text(FAKE)
        program.chmod(0o755)
        (folder / "trident.json").write_text(json.dumps(does))
        return folder

    def compare(self, *words):
        run = subprocess.run([sys.executable, ROOT / "scripts/compare_bits", *map(str, words)],
                             capture_output=True, text=True, timeout=600)
        return run.returncode, run.stdout + run.stderr

    def differ(self, what, timeout=100, **does):
        code, said = self.compare(self.build("old"), self.build("new", **does), "--only", "^zero 1 dp2$",
                                  "--timeout", timeout)
        self.assertEqual(code, 1, said)
        self.assertRegex(said, what)
        self.assertRegex(said, r"(?m)^0 of 1 configs train to the same bits")

    def test_equal_builds_are_equal(self):
        code, said = self.compare(self.build("old"), self.build("new"), "--only", "^zero 1")
        self.assertEqual(code, 0, said)
        self.assertIn("5 of 5 configs train to the same bits (5 local)", said)

    def test_one_byte_of_the_weights(self):
        self.differ("DIFFERS zero 1 dp2: model.safetensors differs", byte=1)

    def test_weights_by_another_name(self):
        self.differ("weights lie in", file="model-1-of-1.safetensors")

    def test_a_figure_of_an_iteration(self):
        self.differ("iteration 1: grad_norm 0.1 and 0.10000000000000002", norm=0.1 + 2e-17)

    def test_nan_is_no_zero(self):
        self.differ("grad_norm 0.1 and NaN", norm=float("nan"))

    def test_a_run_that_is_shorter(self):
        self.differ("4 and 3 iterations", iterations=3)

    def test_a_build_that_fails(self):
        self.differ("fails in new only: exit code 1: no room", fails="no room")

    def test_a_build_that_hangs(self):
        self.differ("fails in new only: hasn't ended after 10.0 s", timeout=10, seconds=100)

    def test_two_failures_are_not_equal(self):
        code, said = self.compare(self.build("old", fails="a"), self.build("new", fails="a"),
                                  "--only", "^zero 1 dp2$")
        self.assertEqual(code, 1, said)
        self.assertIn("fails in both: exit code 1: a", said)

    def test_wrong_requests(self):
        old = self.build("old")
        for words in ([old], [old, self.folder / "none"], [old, old], [old, old, "--only", "^no"],
                      [old, old, "--without", "tpu"], [old, old, "--keep", self.folder]):
            code, said = self.compare(*words)
            self.assertEqual(code, 2, said)  # [old, old]: the emulated GPU's program is missing

    def test_the_configs_are_many_and_differ(self):
        cases = load().cases()
        self.assertGreaterEqual(len(cases), 60)
        self.assertEqual(len({json.dumps(case.config) for case in cases}), len(cases))

    @unittest.skipIf(PROGRAM is None, "needs the program")
    def test_the_program_takes_every_config(self):
        script = load()
        script.write_texts(self.folder)
        for case in script.cases():
            if case.kind != "local":
                continue
            (self.folder / "config.json").write_text(json.dumps(case.config))
            run = subprocess.run([PROGRAM, "train", "config.json", "--dry-run"], cwd=self.folder,
                                 capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 0, f"{case.name}: {run.stderr}")

    @unittest.skipIf(PROGRAM is None, "needs the program")
    def test_the_program_equals_itself(self):
        code, said = self.compare(PROGRAM, PROGRAM, "--only", "^(schedule zbv|mpi pp4|fp16 overflow$)",
                                  "--timeout", 120)
        self.assertEqual(code, 0, said)
        self.assertIn("4 of 4", said)


if __name__ == "__main__":
    os.environ.pop("OMPI_COMM_WORLD_SIZE", None)
    unittest.main()
