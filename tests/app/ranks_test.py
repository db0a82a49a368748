#!/usr/bin/env python3
"""Tests the agreement between the processes of one job under mpirun.

    python3 tests/app/ranks_test.py build/release/trident

A job whose ranks would compute different things is refused before it writes any file: exit code 2, the
key, both values. Programs that compute start themselves again, so that their threads may sleep where
cores are scarce. Prints `OK` at the end, or an error with the output of mpirun and the program.
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
TEXT = "In the beginning was the word, and the word was good. " * 60
CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 1, "hidden_size": 32, "num_attention_heads": 2,
              "vocab_size": 256},
    "parallel": {"data_parallel_size": 2},
    "batch": {"global_batch_size": 2, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
    "training": {"train_iters": 1},
    "runtime": {"threads_per_rank": 1, "timeout_seconds": 60},
    "logging": {"dir": "run", "tensorboard": False, "trace": False}}


class Job(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text.txt").write_text(TEXT)
        (self.folder / "c.json").write_text(json.dumps(CONFIG))

    def train(self, *ranks, environment=None):
        """Starts one process for each list of overrides; returns the exit code and all output."""
        command = ["mpirun", "--oversubscribe", "--bind-to", "none"]
        for i, overrides in enumerate(ranks):
            command += ([":"] if i > 0 else []) + ["-n", "1"]
            command += [part for override in overrides if override.startswith("ENVIRONMENT:")
                        for part in ("-x", override.removeprefix("ENVIRONMENT:"))]
            command += [PROGRAM, "train", "c.json"]
            for override in overrides:
                if not override.startswith("ENVIRONMENT:"):
                    command += ["--set", override]
        run = subprocess.run(command, cwd=self.folder, env=ENVIRONMENT | (environment or {}),
                             capture_output=True, text=True, timeout=120)
        return run.returncode, run.stdout + run.stderr


class Agreement(Job):
    def expect_refused(self, first, second, *texts, environment=None):
        before = sorted(self.folder.rglob("*"))
        code, text = self.train(first, second, environment=environment)
        self.assertEqual(code, 2, text)
        for one in texts:
            self.assertRegex(text, one)
        self.assertEqual(sorted(self.folder.rglob("*")), before, "something was written")

    def test_a_differing_key_is_refused_with_its_name_and_both_values(self):
        # Each rank has its own value. One job tests several keys, since each key gives a line of
        # its own.
        keys = {"data.seed": (1, 2), "training.seed": (3, 4), "runtime.threads_per_rank": (1, 2),
                "optimizer.params.lr": (0.5, 0.25), "zero_optimization.stage": (0, 1),
                "logging.trace": ("true", "false"), "training.eval_interval": (5, 6),
                "runtime.bf16_products": ('"native"', '"widened"')}
        ranks = [[f"{key}={values[rank]}" for key, values in keys.items()] for rank in (0, 1)]
        self.expect_refused(*ranks, *(
            f"config: /{key.replace('.', '/')}: rank 0 on [^ ]+ has {values[0]}, rank 1 on [^ ]+ has "
            f"{values[1]}; give all ranks the same" for key, values in keys.items()))

    def test_a_layout_is_chosen_for_all_ranks_by_the_first(self):
        # Only rank 0 measures, and it chooses for the other ranks.
        auto = ["parallel=auto", "batch={}", "batch.global_batch_size=4"]
        code, text = self.train(auto, auto)
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("measuring this machine"), 1, text)
        self.assertEqual(text.count("predictions for "), 1, text)
        parallel = json.loads((self.folder / "run/config.json").read_text())["parallel"]
        sizes = [parallel[f"{axis}_parallel_size"]
                 for axis in ("data", "tensor_model", "pipeline_model")]
        self.assertEqual(math.prod(sizes), 2, parallel)

    def test_a_layout_that_only_one_rank_wants_chosen_is_refused(self):
        self.expect_refused(["parallel=auto"], [],
                            'config: /parallel: rank 0 on [^ ]+ has "auto", rank 1 on [^ ]+ has '
                            "sizes; give all ranks the same")
        # The rank that chooses finds the error, which is reported once.
        auto = ["parallel=auto", "batch={}", "batch.micro_batch_size=1"]
        self.expect_refused(auto, auto, "config: /batch/global_batch_size: has to be given")

    def tokenized(self, *more):
        """Returns overrides for a text that a tokenizer.json tokenizes."""
        tokenizer = pathlib.Path(__file__).parent.parent / "golden/tokenizers/byte_level.json"
        return ["data.tokenizer.type=file", f"data.tokenizer.path={tokenizer}",
                "model.vocab_size=600", *more]

    def test_a_text_is_tokenized_once_for_all_ranks(self):
        code, text = self.train(self.tokenized(), self.tokenized())
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count(" tokens of 1 document, "), 1, text)
        self.assertEqual(len(list(self.folder.glob(".trident-cache/*.bin"))), 1)
        # Each rank has its own cache, as on hosts that share no disk.
        for rank in (0, 1):
            (self.folder / f"host{rank}").mkdir()
        code, text = self.train(*(
            self.tokenized(f"data.cache_path=host{rank}/cache", "logging.overwrite=true")
            for rank in (0, 1)))
        self.assertEqual(code, 0, text)
        pairs = [list(self.folder.glob(f"host{rank}/cache/*.bin")) for rank in (0, 1)]
        self.assertEqual([len(pair) for pair in pairs], [1, 1])
        self.assertEqual(*(pair[0].read_bytes() for pair in pairs))

    def test_weights_are_evaluated_by_all_ranks(self):
        code, text = self.train(["checkpoint.save=weights"], ["checkpoint.save=weights"])
        self.assertEqual(code, 0, text)
        (self.folder / "a.jsonl").write_text('{"text": "%s"}\n' % TEXT)
        command = [PROGRAM, "eval", "weights", "--data", "a.jsonl", "--set",
                   "runtime.threads_per_rank=1", "--format", "json"]
        results = []
        for start in ([], ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "3"]):
            run = subprocess.run(start + command, cwd=self.folder, env=ENVIRONMENT,
                                 capture_output=True, text=True, timeout=120)
            self.assertEqual(run.returncode, 0, run.stderr)
            results.append(json.loads(run.stdout)["results"])
        self.assertEqual(*results)
        other = [*command[:-2], "--stride", "7"]
        run = subprocess.run(["mpirun", "--oversubscribe", "-n", "1", *command, ":", "-n", "1",
                              *other], cwd=self.folder, env=ENVIRONMENT, capture_output=True,
                             text=True, timeout=120)
        self.assertEqual(run.returncode, 2, run.stdout)
        self.assertRegex(run.stderr, "--stride: rank 0 on [^ ]+ has 16, rank 1 on [^ ]+ has 7")

    def test_a_text_that_can_not_be_tokenized_is_tried_and_reported_once(self):
        (self.folder / "broken.jsonl").write_text('{"text": "a"}\n{"text": }\n')
        (self.folder / "mine").mkdir()
        broken = self.tokenized("data.train.0.path=broken.jsonl")
        for other in (broken, [*broken, "data.cache_path=mine/cache"]):
            code, text = self.train(broken, other)
            self.assertEqual(code, 2, text)
            self.assertEqual(text.count("broken.jsonl:2: isn't JSON"), 1, text)
        self.assertFalse((self.folder / "run").exists())

    def test_texts_of_other_contents_are_refused_by_their_tokens(self):
        (self.folder / "other.txt").write_text(TEXT.replace("good", "well"))
        code, text = self.train(self.tokenized(), self.tokenized("data.train.0.path=other.txt"))
        self.assertEqual(code, 2, text)
        self.assertRegex(text, "tokens of /data/train/0/path: rank 0 on [^ ]+ has [0-9a-f]{16}, "
                               "rank 1 on [^ ]+ has [0-9a-f]{16}; give all ranks texts and a "
                               "tokenizer of the same contents")
        self.assertFalse((self.folder / "run").exists())

    def test_contents_of_files_are_compared_not_their_paths(self):
        (self.folder / "copy.txt").write_text(TEXT)
        (self.folder / "other.txt").write_text(TEXT.replace("good", "well"))
        path = "data.train.0.path="
        self.expect_refused([path + "text.txt"], [path + "other.txt"],
                            r"file of /data/train/0/path: rank 0 on [^ ]+ has \d+ bytes \(contents "
                            r"[0-9a-f]+\), rank 1 on [^ ]+ has ")
        code, text = self.train([path + "text.txt", "checkpoint.save=weights"],
                                [path + "copy.txt", "checkpoint.save=elsewhere", "logging.dir=mine"])
        self.assertEqual(code, 0, text)
        # The weights are loaded as a model: other weights of the same shape are refused.
        for weights in ("same", "changed"):
            (self.folder / weights).mkdir()
            for file in (self.folder / "weights").iterdir():
                contents = bytearray(file.read_bytes())
                if weights == "changed" and file.suffix == ".safetensors":
                    contents[-1] ^= 1
                (self.folder / weights / file.name).write_bytes(contents)
        load, again = "checkpoint.load=", "logging.dir=again"
        self.expect_refused([load + "weights", again], [load + "changed", again],
                            r"file of /checkpoint/load, model.safetensors: rank 0 ")
        code, text = self.train([load + "weights", again], [load + "same", again])
        self.assertEqual(code, 0, text)

    def test_instructions_and_libraries_settings_are_compared(self):
        """Rank 1 has environment variables of its own."""
        self.expect_refused(
            [], ["ENVIRONMENT:ONEDNN_DEFAULT_FPMATH_MODE=BF16", "ENVIRONMENT:ONEDNN_MAX_CPU_ISA=SSE41",
                 "ENVIRONMENT:OMP_THREAD_LIMIT=1"],
            r"environment: OMP_THREAD_LIMIT: rank 0 on [^ ]+ has none, rank 1 on [^ ]+ has 1; ",
            r"device: rank 0 on [^ ]+ has cpu, .*, rank 1 on [^ ]+ has cpu, sse2",
            r"environment: ONEDNN_DEFAULT_FPMATH_MODE: rank 0 on [^ ]+ has none, rank 1")

    def test_a_missing_file_names_its_rank(self):
        self.expect_refused([], ["data.train.0.path=nowhere.txt"],
                            r"rank 1 on [^ ]+: config: /data/train/0/path: nowhere.txt: no such file")


class Waiting(Job):
    """libgomp prints its settings each time that it is loaded."""
    LOADED = "OPENMP DISPLAY ENVIRONMENT BEGIN"

    def test_a_program_starts_itself_again_with_settings_for_shared_cores(self):
        cores = len(os.sched_getaffinity(0))
        threads = [f"runtime.threads_per_rank={max(2, cores)}"]
        code, text = self.train(threads, threads, environment={"OMP_DISPLAY_ENV": "verbose"})
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count(self.LOADED), 4, text)
        self.assertEqual(text.count("warning: config: /runtime/threads_per_rank: 2 ranks of "), 1, text)

    def test_settings_of_the_user_stay(self):
        for name, value in (("GOMP_SPINCOUNT", "7"), ("OMP_WAIT_POLICY", "ACTIVE")):
            code, text = self.train(["logging.overwrite=true"], ["logging.overwrite=true"],
                                    environment={"OMP_DISPLAY_ENV": "verbose", name: value})
            self.assertEqual(code, 0, text)
            self.assertEqual(text.count(self.LOADED), 2, text)
            self.assertEqual(text.count(f"{name} = '{value}'"), 2, text)
            self.assertNotIn("warning", text)


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
