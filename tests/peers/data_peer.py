#!/usr/bin/env python3
"""Compares our files with the programs that define them, with random contents.

    python tests/peers/data_peer.py [--seed N] [--helper build/release/tests/datasets/data_helper]

- .bin/.idx: megatron-core reads the files of scripts/tokenize_corpus.py, and we read the files of
  megatron-core in each integer type; the tokens equal those of the tokenizers package
- blending: our order of weighted sources equals megatron-core's
- safetensors: the package reads our files and we read its files
- TensorBoard: the tensorboard package reads our event files, also after a resume
Ends with `N passed, 0 failed`.
"""

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import numpy
import safetensors
import safetensors.torch
import tokenizers
import tokenize_corpus
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about optional packages of megatron-core's GPU parts
    from megatron.core.datasets import helpers_cpp, indexed_dataset
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2


class Peers:
    def __init__(self, helper, seed, folder):
        self.helper, self.random, self.folder = helper, random.Random(seed), folder
        self.seed, self.passed, self.failed = seed, 0, 0

    def expect(self, good, message):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAILED: {message}", file=sys.stderr)

    def ours(self, *command, text=None):
        """The helper's standard output."""
        result = subprocess.run([str(c) for c in (self.helper, *command)], input=text, check=False,
                                capture_output=True, text=True, timeout=120)
        if result.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: {result.stderr}")
        return result.stdout

    def our_tokens(self, prefix, vocab_size):
        return [int(line) for line in self.ours("tokens", prefix, vocab_size).split()]

    def text(self):
        words = ["light", "Ünïcode", "✓ and 日本", "the earth", "12,345.6", "\t", "  two", "don't"]
        return " ".join(self.random.choice(words) for _ in range(self.random.randrange(1, 60)))

    # --- .bin/.idx ---------------------------------------------------------------------------------

    def tokenize(self, prefix, *arguments):
        result = subprocess.run(
            [sys.executable, ROOT / "scripts/tokenize_corpus.py", *map(str, arguments),
             "--output", prefix, "--workers", "2"],
            capture_output=True, text=True, timeout=300, check=False)
        return result.returncode, result.stderr

    def check_corpus(self, prefix, documents, what):
        """`documents`: the token ids of each, by the tokenizers package itself."""
        peer = indexed_dataset.IndexedDataset(str(prefix), mmap=True)
        self.expect([list(map(int, peer[i])) for i in range(len(peer))] == documents,
                    f"{what}: megatron-core reads other documents")
        self.expect(list(peer.document_indices) == list(range(len(documents) + 1)),
                    f"{what}: document indices {list(peer.document_indices)}")
        tokens = self.our_tokens(prefix, 1 << 20)
        self.expect(tokens == [t for d in documents for t in d], f"{what}: we read other tokens")
        return peer

    def tokenized_by_us(self):
        gpt2 = tokenize_corpus.gpt2_tokenizer()
        encode = lambda text: gpt2.encode(text).ids
        texts = [self.text() for _ in range(300)]

        lines = self.folder / "lines.txt"
        lines.write_text("".join(t + "\n" for t in texts), encoding="utf-8")
        code, errors = self.tokenize(self.folder / "lines", lines, "--gpt2", "--document", "line",
                                     "--end-of-document", "<|endoftext|>")
        self.expect(code == 0, f"tokenize lines: {errors}")
        peer = self.check_corpus(self.folder / "lines", [encode(t) + [50256] for t in texts],
                                 "GPT-2, lines")
        self.expect(peer[0].dtype == numpy.uint16, f"GPT-2's ids take {peer[0].dtype}")

        blocks = self.folder / "blocks.txt"
        filled = [t for t in texts if t.strip()]  # a line of white space would end a block
        pairs = ["\n".join(filled[i : i + 2]) for i in range(0, 100, 2)]
        blocks.write_text("\n\n\n".join(pairs) + "\n", encoding="utf-8")
        code, errors = self.tokenize(self.folder / "blocks", blocks, "--gpt2", "--document", "block")
        self.expect(code == 0, f"tokenize blocks: {errors}")
        self.check_corpus(self.folder / "blocks", [encode(t) for t in pairs], "GPT-2, blocks")

        code, errors = self.tokenize(self.folder / "files", lines, blocks, "--gpt2")
        self.expect(code == 0, f"tokenize files: {errors}")
        self.check_corpus(self.folder / "files",
                          [encode(f.read_text(encoding="utf-8")) for f in (lines, blocks)],
                          "GPT-2, files")

        # The tokenizer has more than 65,536 ids and is saved as a tokenizer.json.
        words = sorted({w for t in texts for w in t.split()})
        vocabulary = {w: 70000 + i for i, w in enumerate(words)} | {"[UNK]": 0}
        wide = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
        wide.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        wide.save(str(self.folder / "tokenizer.json"))
        rows = self.folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"body": t, "n": 1}) + "\n" for t in texts))
        code, errors = self.tokenize(self.folder / "rows", rows, "--json-key", "body",
                                     "--tokenizer", self.folder / "tokenizer.json")
        self.expect(code == 0, f"tokenize JSON lines: {errors}")
        ids = [i for i in (wide.encode(t).ids for t in texts) if i]
        peer = self.check_corpus(self.folder / "rows", ids, "32-bit ids, JSON lines")
        self.expect(peer[0].dtype == numpy.int32, f"32-bit ids take {peer[0].dtype}")

    def refused_corpora(self):
        (self.folder / "bad.txt").write_bytes(b"fine\n\xff\xfe\n")
        (self.folder / "bad.jsonl").write_text('{"text": "a"}\n{"body": "b"}\n')
        (self.folder / "empty.txt").write_text("\n")
        before = sorted(self.folder.iterdir())
        for arguments, words in (
                (["bad.txt", "--gpt2"], "byte 5 is not UTF-8 (line 2)"),
                (["bad.jsonl", "--gpt2", "--json-key", "text"], 'bad.jsonl:2: needs an object with'),
                (["empty.txt", "--gpt2", "--document", "line"], "no text"),
                (["none.txt", "--gpt2"], "no such file"),
                (["bad.txt", "--tokenizer", self.folder / "bad.jsonl"], "not a tokenizer.json"),
                (["lines.txt", "--gpt2", "--end-of-document", "[none]"], "no such token")):
            code, errors = self.tokenize(self.folder / "refused", self.folder / arguments[0],
                                         *arguments[1:])
            self.expect(code == 2 and words in errors, f"{arguments}: exit {code}, {errors!r}")
        code, errors = self.tokenize(self.folder / "lines", self.folder / "lines.txt", "--gpt2")
        self.expect(code == 2 and "--overwrite" in errors, f"overwriting: exit {code}, {errors!r}")
        self.expect(sorted(self.folder.iterdir()) == before, "a refused request left files")

    def written_by_megatron(self):
        for dtype in (numpy.uint8, numpy.int8, numpy.int16, numpy.int32, numpy.int64, numpy.uint16):
            prefix = str(self.folder / f"megatron-{dtype.__name__}")
            top = min(numpy.iinfo(dtype).max, 2**31 - 2)
            builder = indexed_dataset.IndexedDatasetBuilder(prefix + ".bin", dtype=dtype)
            tokens = []
            for _ in range(self.random.randrange(1, 6)):
                lengths = [self.random.randrange(0, 20) for _ in range(self.random.randrange(1, 4))]
                lengths.append(3)
                ids = [self.random.randint(0, top) for _ in range(sum(lengths))]
                builder.add_document(torch.tensor(ids, dtype=torch.int64), lengths)
                tokens += ids
            builder.finalize(prefix + ".idx")
            self.expect(self.our_tokens(prefix, 2**31 - 1) == tokens, f"{prefix}: we read other tokens")

    # --- the order of weighted sources ---------------------------------------------------------------

    def blending(self):
        samples = 5000
        for weights in ([1], [1, 1], [3, 4, 1], [5, 2, 1, 8],
                        [self.random.randrange(1, 64) for _ in range(5)]):
            weights = weights if len(weights) < 5 else [*weights, 512 - sum(weights)]
            total = sum(weights)
            # Powers of two keep the peer's arithmetic, in doubles, exact.
            exact = total & (total - 1) == 0
            index = numpy.zeros(samples, dtype=numpy.int16)
            sample = numpy.zeros(samples, dtype=numpy.int64)
            helpers_cpp.build_blending_indices(
                index, sample, numpy.array([w / total for w in weights]), len(weights), samples,
                False)
            ours = [tuple(map(int, line.split()))
                    for line in self.ours("interleave", samples, *weights).splitlines()]
            self.expect(exact, f"blending {weights}: the sum is no power of two")
            self.expect(ours == list(zip(index.tolist(), sample.tolist())),
                        f"blending {weights}: the orders differ")

    # --- safetensors ---------------------------------------------------------------------------------

    def safetensors(self):
        torch.manual_seed(self.seed)
        size = lambda: self.random.randrange(1, 9)
        tensors = {
            "f64": torch.randn(size(), size(), dtype=torch.float64), "f32": torch.randn(size(), 7),
            "bf16": torch.randn(size(), 3, 5).bfloat16(), "f16": torch.randn(size(), 1).half(),
            "i64": torch.randint(-2**62, 2**62, (size(),)),
            "i32": torch.randint(-2**31, 2**31 - 1, (size(), 2)).int(),
            "u8": torch.randint(0, 256, (size(), 3)).to(torch.uint8),
            "scalar": torch.tensor(1.25), "empty": torch.zeros(0, 4), "näme/\"quoted\"": torch.ones(2),
        }
        metadata = {"format": "pt", "näme": "ü\n\"quoted\""}
        theirs, ours = self.folder / "theirs.safetensors", self.folder / "ours.safetensors"
        safetensors.torch.save_file(tensors, theirs, metadata)
        self.ours("copy-safetensors", theirs, ours)
        with safetensors.safe_open(ours, "pt") as file:
            self.expect(file.metadata() == metadata, f"safetensors: metadata {file.metadata()}")
            self.expect(set(file.keys()) == set(tensors), f"safetensors: names {file.keys()}")
            for name in file.keys():
                got, want = file.get_tensor(name), tensors[name]
                self.expect(got.dtype == want.dtype and got.shape == want.shape
                            and torch.equal(got, want), f"safetensors: {name} differs")

    # --- TensorBoard ---------------------------------------------------------------------------------

    def tensorboard(self):
        directory = self.folder / "events"
        directory.mkdir()
        values = {(tag, step): self.random.uniform(-1e3, 1e3)
                  for tag in ("train/loss", "learning_rate") for step in (1, 2, 300, 5_000_000_000)}
        lines = lambda: "".join(f"{s} {t} {v!r}\n" for (t, s), v in values.items())
        self.ours("events", directory, text=lines())
        self.check_events(directory, values, "events")
        # A run that resumes at step 300 replaces the events from that step on. Event files are
        # ordered by the second in their names.
        time.sleep(1.1)
        for tag, step in list(values):
            if step >= 300:
                values.pop((tag, step))
        self.ours("events", directory, 300, text="300 train/loss 0.5\n")
        values["train/loss", 300] = 0.5
        self.check_events(directory, values, "resumed events")

    def check_events(self, directory, values, what):
        peer = EventAccumulator(str(directory))
        peer.Reload()
        got = {(tag, e.step): e.value for tag in peer.Tags()["scalars"] for e in peer.Scalars(tag)}
        want = {key: float(numpy.float32(value)) for key, value in values.items()}
        self.expect(got == want, f"{what}: got {got}, need {want}")
        self.expect(peer.file_version == 2.0, f"{what}: file version {peer.file_version}")
        texts = [e.tensor_proto.string_val[0].decode() for e in peer.Tensors("config")]
        self.expect(texts[-1] == '    {"größe": 1}', f"{what}: texts {texts}")
        plugin = peer.SummaryMetadata("config").plugin_data.plugin_name
        self.expect(plugin == "text", f"{what}: the text's plugin is {plugin}")

        def hparams(tag):
            data = peer.SummaryMetadata(f"_hparams_/{tag}").plugin_data
            self.expect(data.plugin_name == "hparams", f"{what}: {tag} of {data.plugin_name}")
            return plugin_data_pb2.HParamsPluginData.FromString(data.content)
        session = hparams("session_start_info").session_start_info.hparams
        got = {name: getattr(value, value.WhichOneof("kind")) for name, value in session.items()}
        self.expect(got == {"optimizer.params.lr": 0.25, "model.tied": True, "type": "AdamW"},
                    f"{what}: hyperparameters {got}")
        experiment = hparams("experiment").experiment
        kinds = {info.name: info.type for info in experiment.hparam_infos}
        types = api_pb2.DataType
        self.expect(kinds == {"optimizer.params.lr": types.Value("DATA_TYPE_FLOAT64"),
                              "model.tied": types.Value("DATA_TYPE_BOOL"),
                              "type": types.Value("DATA_TYPE_STRING")}, f"{what}: kinds {kinds}")
        self.expect([info.name.tag for info in experiment.metric_infos] ==
                    ["train/loss", "learning_rate"], f"{what}: metrics {experiment.metric_infos}")

    def run(self):
        for check in (self.tokenized_by_us, self.refused_corpora, self.written_by_megatron,
                      self.blending, self.safetensors, self.tensorboard):
            try:
                check()
            except Exception as error:  # one peer's failure doesn't hide the others
                self.expect(False, f"{check.__name__}: {type(error).__name__}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--helper", type=pathlib.Path,
                        default=ROOT / "build/release/tests/datasets/data_helper")
    arguments = parser.parse_args()
    print(f"data peer: seed {arguments.seed}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trident-data-peer-"))
    try:
        peers = Peers(arguments.helper.resolve(), arguments.seed, folder)
        peers.run()
    finally:
        shutil.rmtree(folder)
    print(f"{peers.passed} passed, {peers.failed} failed")
    if peers.failed:
        sys.exit(f"data peer failed; again with: tests/peers/data_peer.py --seed {arguments.seed}")


if __name__ == "__main__":
    main()
