#!/usr/bin/env python3
"""Compares evaluation and generation live with transformers and lm-evaluation-harness.

    python tests/peers/evaluation_peer.py [--full] [--seed N] [--program build/release/trident] [--keep DIR]

A GPT-2 and a Llama (--full: a model of each family) with drawn weights, each with a tokenizer trained
on the spot:
- `trident eval` of .jsonl and .parquet, all of it and a split, in drawn layouts, against the loss
  and bits a byte by transformers' model and the `tokenizers` package;
- `trident generate` against transformers' 200 greedy tokens, and text after a prompt of text;
- a byte model's tokenizer.json as transformers reads it;
- lm-evaluation-harness on local tasks (choices, perplexity, generation): scripts/lm_eval_adapter.py
  against the harness's own model of transformers; without --full on the GPT-2 alone.
A failure prints the seed. Ends with `N passed, 0 failed`.
"""

import argparse
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ |= {
    "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
    # The program reads .parquet by `python3`, which must be this Python.
    "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]}

import lm_eval
import lm_eval.tasks
import pyarrow
import pyarrow.parquet
import tokenizers
import torch
import transformers
from lm_eval.models.huggingface import HFLM

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import lm_eval_adapter

TOLERANCE = 1e-5  # of losses, relative
EOS = "<|endoftext|>"
WORDS = ("the of and to in is it that was for on are as with his they at be this from have or by "
         "one had not but what all were when we there can an your which their said if do will each "
         "naïve 日本 über 🙂 1984 x=3; don't").split()


def text(rng, words):
    """Sentences and lines of drawn words."""
    parts = []
    for i in range(words):
        parts.append(rng.choice(WORDS))
        parts.append(rng.choice([" ", " ", " ", ", ", ". ", "\n"]) if i + 1 < words else "")
    return "".join(parts)


def make_tokenizer(rng, architecture):
    if architecture == "gpt2":
        tokenizer = tokenizers.ByteLevelBPETokenizer()
        tokenizer.train_from_iterator([text(rng, 5000)], vocab_size=400, special_tokens=[EOS])
        return tokenizer._tokenizer
    tokenizer = tokenizers.SentencePieceBPETokenizer()
    tokenizer.train_from_iterator([text(rng, 5000)], vocab_size=400,
                                  special_tokens=["<unk>", "<s>", "</s>"])
    return tokenizer._tokenizer


def make_model(rng, architecture, vocabulary):
    """Makes a model in fp32, with weights large enough for predictions to differ between positions."""
    torch.manual_seed(rng.randrange(2**31))
    if architecture == "gpt2":
        config = transformers.GPT2Config(
            n_layer=3, n_embd=48, n_head=4, n_positions=256, vocab_size=vocabulary,
            initializer_range=0.15, bos_token_id=0, eos_token_id=0)
        return transformers.GPT2LMHeadModel(config).eval()
    window = {"sliding_window": rng.choice((5, 24))}
    some = window | {"use_sliding_window": True, "max_window_layers": 1}
    kind, own = {"llama": (transformers.LlamaConfig, {}),
                 "mistral": (transformers.MistralConfig, window),
                 "qwen2": (transformers.Qwen2Config, some),
                 "qwen3": (transformers.Qwen3Config, some | {"head_dim": 20})}[architecture]
    config = kind(
        num_hidden_layers=3, hidden_size=48, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=96, max_position_embeddings=256, vocab_size=vocabulary,
        initializer_range=0.15, bos_token_id=1, eos_token_id=2, **own)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


class Case:
    def __init__(self, program, folder, seed, architecture):
        self.program, self.folder, self.architecture = program, folder, architecture
        self.rng = random.Random(f"{seed} {architecture}")
        self.tokenizer = make_tokenizer(self.rng, architecture)
        self.weights = folder / architecture
        self.model = make_model(self.rng, architecture, self.tokenizer.get_vocab_size())
        self.model.save_pretrained(self.weights)
        end = EOS if architecture == "gpt2" else "</s>"
        self.end = self.tokenizer.token_to_id(end)
        self.fast = transformers.PreTrainedTokenizerFast(
            tokenizer_object=self.tokenizer, eos_token=end, clean_up_tokenization_spaces=False)
        self.fast.save_pretrained(self.weights)

    def run(self, *arguments, text=None):
        done = subprocess.run([self.program, *map(str, arguments)], input=text, text=True,
                              capture_output=True, cwd=self.folder)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout

    def ids(self, documents):
        """The ids of the documents, with an end token after each."""
        return [i for document in documents
                for i in [*self.tokenizer.encode(document, add_special_tokens=False).ids, self.end]]

    def loss_sum(self, ids, sequence, stride):
        """Sums the loss of each token but the first once, in the program's windows."""
        total, done = 0.0, 1
        while done < len(ids):
            # The first window counts all its predictions, each later window only `stride` more.
            end = min(sequence + 1 if done == 1 else done + stride, len(ids))
            begin = max(0, end - sequence - 1)
            window = torch.tensor([ids[begin:end]])
            with torch.no_grad():
                logits = self.model(window[:, :-1]).logits[0].double()
            losses = torch.nn.functional.cross_entropy(logits, window[0, 1:], reduction="none")
            total += losses[done - end:].sum().item()
            done = end
        return total

    def test_loss(self):
        documents = [text(self.rng, self.rng.randrange(1, 90)) for _ in range(40)]
        (self.folder / "data.jsonl").write_text(
            "".join(json.dumps({"id": i, "body": d}) + "\n" for i, d in enumerate(documents)))
        # The column has strings in all forms of Arrow.
        strings = pyarrow.array(documents)
        for name, column in (("data", strings), ("large", strings.cast(pyarrow.large_string())),
                             ("view", strings.cast(pyarrow.string_view())),
                             ("dictionary", strings.dictionary_encode())):
            pyarrow.parquet.write_table(pyarrow.table({"id": list(range(40)), "body": column}),
                                        self.folder / f"{name}.parquet", row_group_size=7)
        ids = self.ids(documents)
        sequence = self.rng.randrange(20, 200)
        stride = self.rng.randrange(1, sequence + 1)
        layout = self.rng.choice([[], ["--ranks", 2],
                                  ["--set", "parallel.tensor_model_parallel_size=2"],
                                  ["--set", "parallel.pipeline_model_parallel_size=3"]])
        for name, window in (("data.jsonl", sequence), ("data.parquet", stride),
                             ("large.parquet", stride), ("view.parquet", stride),
                             ("dictionary.parquet", stride)):
            out = self.run("eval", self.weights, "--data", name, "--format", "json",
                           "--stride", window, "--set", f"data.sequence_length={sequence}",
                           "--set", "data.json_key=body", *layout)
            row, = json.loads(out)["results"]
            expected = self.loss_sum(ids, sequence, window)
            assert row["tokens"] == len(ids) - 1, (row, len(ids))
            assert abs(row["loss"] * row["tokens"] / expected - 1) < TOLERANCE, (row, expected)
            # The bytes of the texts without those of the first token.
            size = sum(len(d.encode()) for d in documents) - \
                len(self.tokenizer.decode(ids[:1], skip_special_tokens=True).encode())
            assert abs(row["bytes"] - size) <= 1, (row, size)
            bits = expected / math.log(2) / row["bytes"]
            assert abs(row["bits_per_byte"] / bits - 1) < TOLERANCE, (row, bits)
        out = self.run("eval", self.weights, "--data", "data.jsonl", "--split", "8,1,1",
                       "--format", "json", "--set", "data.json_key=body", *layout)
        edges = [math.floor(share * len(ids) + 0.5) for share in (0.8, 0.9, 1)]
        for row, begin, end in zip(json.loads(out)["results"], edges, edges[1:], strict=False):
            expected = self.loss_sum(ids[begin:end], 256, 256)
            assert abs(row["loss"] * row["tokens"] / expected - 1) < TOLERANCE, (row, expected)

    def greedy(self, ids, count):
        with torch.no_grad():
            out = self.model.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False,
                                      eos_token_id=None, pad_token_id=0)
        return out[0].tolist()

    def test_greedy_tokens(self):
        prompt = text(self.rng, 12)
        ids = self.tokenizer.encode(prompt, add_special_tokens=False).ids[:50]
        out = self.run("generate", self.weights, "--ids", ",".join(map(str, ids)), "--tokens", 200,
                       "--temperature", 0, "--ignore-eos", "--format", "json")
        expected = self.greedy(ids, 200)
        assert json.loads(out)["tokens"] == expected, (out, expected)
        # The same by text. The package decodes the last bytes in its own way.
        out = self.run("generate", self.weights, "--tokens", 40, "--temperature", 0,
                       "--ignore-eos", "--format", "json", text=prompt + "\n")
        ids = self.tokenizer.encode(prompt).ids
        expected = self.greedy(ids, 40)
        answer = json.loads(out)
        assert answer["tokens"] == expected, (answer, expected)
        whole = self.tokenizer.decode(expected, skip_special_tokens=True)
        assert answer["text"].startswith(prompt) and whole.endswith(answer["text"][len(prompt):]), \
            (answer["text"], whole)

    def test_harness(self):
        rng = self.rng
        lines = [{"question": text(rng, 9), "choices": [text(rng, 3) for _ in range(4)],
                  "answer": rng.randrange(4), "text": text(rng, rng.randrange(5, 300))}
                 for _ in range(12)]
        tasks = self.folder / f"tasks_{self.architecture}"
        tasks.mkdir()
        (tasks / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        common = {"dataset_path": "json", "test_split": "test",
                  "dataset_kwargs": {"data_files": {"test": str(tasks / "data.jsonl")}}}
        measured = [{"metric": name, "aggregation": "mean", "higher_is_better": True}
                    for name in ("acc", "acc_norm")]
        for task in (
                common | {"task": "choices", "output_type": "multiple_choice",
                          "doc_to_text": "{{question}}\nAnswer:", "doc_to_target": "answer",
                          "doc_to_choice": "choices", "metric_list": measured},
                common | {"task": "texts", "output_type": "loglikelihood_rolling",
                          "doc_to_text": "", "doc_to_target": "{{text}}",
                          "metric_list": [{"metric": "bits_per_byte"},
                                          {"metric": "word_perplexity"}]},
                common | {"task": "continuations", "output_type": "generate_until",
                          "doc_to_text": "{{question}}", "doc_to_target": "{{choices[0]}}",
                          "generation_kwargs": {"until": ["\n"], "max_gen_toks": 20,
                                                "do_sample": False},
                          "metric_list": [{"metric": "exact_match", "aggregation": "mean",
                                           "higher_is_better": True}]}):
            (tasks / f"{task['task']}.yaml").write_text(json.dumps(task))
        names = ["choices", "texts", "continuations"]
        manager = lm_eval.tasks.TaskManager(include_path=str(tasks), include_defaults=False)

        def outcome(model):
            return lm_eval.simple_evaluate(model=model, tasks=names, task_manager=manager,
                                           log_samples=True, bootstrap_iters=0)

        theirs = outcome(HFLM(pretrained=self.model, tokenizer=self.fast, batch_size=1,
                              max_length=256))
        ours = outcome(lm_eval_adapter.Trident(weights=self.weights, program=self.program))
        for name in names:
            for own, other in zip(ours["samples"][name], theirs["samples"][name], strict=True):
                for a, b in zip(own["resps"], other["resps"], strict=True):
                    self.same_response(a[0], b[0])
            for metric, value in theirs["results"][name].items():
                if isinstance(value, float):
                    mine = ours["results"][name][metric]
                    assert abs(mine - value) <= 1e-4 * abs(value), (name, metric, mine, value)

    def same_response(self, own, other):
        if isinstance(other, str):
            assert own == other, (own, other)
        elif isinstance(other, float):
            assert abs(own - other) <= 1e-4 * abs(other), (own, other)
        else:
            assert abs(own[0] - other[0]) <= 1e-4 * abs(other[0]), (own, other)
            assert bool(own[1]) == bool(other[1]), (own, other)


def test_byte_model(program, folder):
    """Loads a model that the program has trained on bytes into transformers."""
    config = {"model": {"architecture": "gpt2", "num_layers": 1, "hidden_size": 16,
                        "num_attention_heads": 2},
              "batch": {"micro_batch_size": 2},
              "data": {"train": [{"path": "bytes.txt"}], "sequence_length": 64},
              "training": {"train_iters": 2}, "checkpoint": {"save": "bytes"},
              "logging": {"dir": "bytes_run"}}
    content = text(random.Random(1), 400)
    (folder / "bytes.txt").write_text(content)
    (folder / "bytes.json").write_text(json.dumps(config))
    subprocess.run([program, "train", "bytes.json"], check=True, cwd=folder, capture_output=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "bytes")
    assert tokenizer.encode(content) == list(content.encode())
    assert tokenizer.decode(list(content.encode())) == content
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "bytes").eval()
    with torch.no_grad():
        out = model.generate(torch.tensor([list(b"the")]), max_new_tokens=20, do_sample=False,
                             pad_token_id=0)
    ours = subprocess.run([program, "generate", "bytes", "--prompt", "the", "--tokens", "20",
                           "--temperature", "0", "--format", "json"], cwd=folder, check=True,
                          capture_output=True, text=True).stdout
    assert json.loads(ours)["tokens"] == out[0].tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--program", default=str(ROOT / "build/release/trident"))
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--full", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # more of them would wait for each other while other tests run
    program = str(pathlib.Path(arguments.program).resolve())
    passed = failed = 0

    def check(name, test):
        nonlocal passed, failed
        try:
            test()
            passed += 1
            print(f"ok {name}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED {name} (--seed {arguments.seed}): {type(error).__name__}: {error}")

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        families = ["gpt2", "llama"]
        if arguments.full:
            families += ["mistral", "qwen2", "qwen3"]
        for architecture in families:
            case = Case(program, folder, arguments.seed, architecture)
            names = ["loss", "greedy_tokens"]
            if architecture == "gpt2" or (architecture == "llama" and arguments.full):
                names.append("harness")
            for name in names:
                check(f"{architecture} {name}", getattr(case, f"test_{name}"))
        check("byte model", lambda: test_byte_model(program, folder))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
