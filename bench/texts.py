#!/usr/bin/env python3
"""Compares work on texts with other packages: tokenizing, starting, generating.

    $(scripts/peers_python --llama-cpp) bench/texts.py [tokenize] [vocabulary] [start] [generate] [--program P] [--gigabytes 5]

- tokenize: documents in a .jsonl to tokens on the disk, compared with the `tokenizers` package, which
  reads, parses and encodes the same file with the same number of threads. Our time is the difference
  between the first start of a run and the next one.
- vocabulary: a byte-level BPE tokenizer of 30,000 entries from a text file, compared with
  ByteLevelBPETokenizer.train of `tokenizers` with the same number of threads: total seconds and peak
  memory. Both give the same file.
- start: a text of some gigabytes that was tokenized before: from the command to the end of the first
  iteration, compared with the same run on a small text; and the peak memory of the run that
  tokenizes it.
- generate: GPT-2 124M with drawn weights, tokens a second after the first, compared with transformers
  and, if llama-cpp-python is installed, llama.cpp with the same weights in F32.
Figures are medians of alternating runs. Prints a table for each.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from side_by_side import PROGRAM, ROOT, THREADS, machine

RUNS = 3


def documents(kind, megabytes):
    """Texts of a kind, repeated in other orders, with the given megabytes in total."""
    if kind == "code":
        paths = sorted(pathlib.Path(os.__file__).parent.glob("*.py"))
    elif kind == "languages":
        import pycountry
        paths = sorted(pathlib.Path(pycountry.LOCALES_DIR).glob("*/LC_MESSAGES/iso3166-1.mo"))
    else:
        paths = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")])
    texts = [path.read_text(encoding="utf-8", errors="ignore") for path in paths]
    rng, size = random.Random(1), 0
    while size < megabytes * 1e6:
        rng.shuffle(texts)
        for text in texts:
            yield text
            size += len(text.encode())


def gpt2_tokenizer(folder):
    sys.path.insert(0, str(ROOT / "scripts"))
    import tokenize_corpus
    path = folder / "gpt2.json"
    tokenize_corpus.gpt2_tokenizer().save(str(path))
    return path


def unigram_tokenizer(folder):
    import tokenizers
    tokenizer = tokenizers.SentencePieceUnigramTokenizer()
    tokenizer.train_from_iterator(list(documents("english", 1)), vocab_size=8000,
                                  special_tokens=["<unk>", "</s>"], unk_token="<unk>")
    path = folder / "unigram.json"
    tokenizer.save(str(path))
    return path


def config(data, tokenizer):
    return {"model": {"architecture": "gpt2", "num_layers": 1, "hidden_size": 8,
                      "num_attention_heads": 1, "vocab_size": 50304,
                      "max_position_embeddings": 8},
            "batch": {"micro_batch_size": 1},
            "data": {"train": [{"path": str(data)}], "cache_path": "cache",
                     "tokenizer": {"type": "file", "path": str(tokenizer)}},
            "training": {"train_iters": 1},
            "logging": {"dir": "run", "overwrite": True, "tensorboard": False, "trace": False}}


def train(program, folder, settings):
    """Seconds of a run."""
    (folder / "c.json").write_text(json.dumps(settings))
    begin = time.perf_counter()
    subprocess.run([program, "train", "c.json"], cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - begin


def clear(folder):
    for path in sorted(folder.glob("cache/**/*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


THEIRS = """
import json, sys, time, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
begin, batch, count = time.perf_counter(), [], 0
def encode():
    global count
    count += sum(len(one.ids) for one in tokenizer.encode_batch_fast(batch))
    batch.clear()
for line in open(sys.argv[2], encoding="utf-8"):
    batch.append(json.loads(line)["text"])
    if len(batch) == 1000:
        encode()
encode()
print(time.perf_counter() - begin)
"""


def tokenize(program, folder):
    print(f"| text | tokenizer | `tokenizers`, MB/s | ours, MB/s | ratio |\n|{' --- |' * 5}")
    made = {"GPT-2": gpt2_tokenizer(folder), "Unigram": unigram_tokenizer(folder)}
    for kind in ("english", "code", "languages"):
        data = folder / f"{kind}.jsonl"
        with data.open("w", encoding="utf-8") as file:
            for text in documents(kind, 20):
                file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        megabytes = data.stat().st_size / 1e6
        for name, path in made.items():
            if name == "Unigram" and kind == "languages":
                continue  # its texts would be unknown tokens
            ours, theirs = [], []
            for _ in range(RUNS):
                clear(folder)
                cold = train(program, folder, config(data, path))
                ours.append(cold - train(program, folder, config(data, path)))
                theirs.append(float(subprocess.run(
                    [sys.executable, "-c", THEIRS, path, data], check=True, capture_output=True,
                    text=True, env=os.environ | {"RAYON_NUM_THREADS": str(THREADS)}).stdout))
            own, other = (megabytes / statistics.median(times) for times in (ours, theirs))
            print(f"| {kind} | {name} | {other:.1f} | {own:.1f} | {own / other:.1f} |", flush=True)


TRAINER = """
import sys, tokenizers
tokenizer = tokenizers.ByteLevelBPETokenizer()
tokenizer.train(sys.argv[1], vocab_size=30000, special_tokens=["<|endoftext|>"], show_progress=False)
tokenizer.save(sys.argv[2])
"""


def measured(command):
    """Returns the seconds and the peak MiB."""
    begin = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL,
                               env=os.environ | {"RAYON_NUM_THREADS": str(THREADS)})
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, status
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def vocabulary(program, folder):
    print("| text | MB | `tokenizers`, s | ours, s | ratio | MiB, theirs | MiB, ours |\n|" + " --- |" * 7)
    packages = pathlib.Path(os.__file__).parent
    for kind, paths in (("docs", [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")]),
                        ("sources", [*ROOT.glob("*/*/*.cc"), *packages.glob("*.py")]),
                        ("all of Python", packages.rglob("*.py"))):
        text, ours, theirs = folder / "text.txt", folder / "ours.json", folder / "theirs.json"
        with text.open("w") as file:  # this process stays small, as its peak would count as its children's
            for path in sorted(paths):
                file.write(path.read_text(encoding="utf-8", errors="ignore") + "\n")
        own, other = [], []
        for _ in range(RUNS):
            other.append(measured([sys.executable, "-c", TRAINER, text, theirs]))
            own.append(measured([program, "tokenizer", "train", text, "--out", ours, "--overwrite", "--quiet"]))
        assert ours.read_bytes() == theirs.read_bytes(), f"{kind}: the files differ"
        (a, c), (b, d) = (map(statistics.median, zip(*runs, strict=True)) for runs in (other, own))
        print(f"| {kind} | {text.stat().st_size / 1e6:.1f} | {a:.1f} | {b:.1f} | {a / b:.1f} | {c:.0f} | {d:.0f} |",
              flush=True)


def start(program, folder, gigabytes):
    tokenizer = gpt2_tokenizer(folder)
    small, large = folder / "small.txt", folder / "large.txt"
    block = "\n".join(documents("english", 1))
    small.write_text(block)
    with large.open("w") as file:
        for i in range(int(gigabytes * 1e9 / len(block.encode()))):
            file.write(f"{i}\n{block}\n")
    time.sleep(4)  # a file that changed a moment ago is read again at each start
    (folder / "c.json").write_text(json.dumps(config(large, tokenizer)))
    begin = time.perf_counter()
    process = subprocess.Popen([program, "train", "c.json"], cwd=folder, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, status
    first, memory = time.perf_counter() - begin, usage.ru_maxrss / 1024
    train(program, folder, config(small, tokenizer))
    train(program, folder, config(large, tokenizer))
    times = [[train(program, folder, config(data, tokenizer)) for data in (small, large)]
             for _ in range(RUNS)]
    usual, cached = (statistics.median(column) for column in zip(*times, strict=True))
    size = large.stat().st_size
    print(f"{size / 1e9:.2f} GB of text: tokenized by the first run in {first:.0f} s "
          f"({size / 1e6 / first:.1f} MB/s) with {memory:.0f} MiB at most; later runs of one tiny "
          f"iteration take {cached:.2f} s, on a text of 1 MB {usual:.2f} s")


TRANSFORMERS = """
import sys, time, torch, transformers
torch.set_num_threads(int(sys.argv[2]))
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
def seconds(tokens):
    begin = time.perf_counter()
    with torch.no_grad():
        model.generate(torch.arange(100, 132)[None], max_new_tokens=tokens, do_sample=False,
                       eos_token_id=None, pad_token_id=0)
    return time.perf_counter() - begin
seconds(8)
print(seconds(401) - seconds(1))
"""


# The cache of keys and values is F32 as well.
LLAMA_CPP = """
import sys, time, llama_cpp
model = llama_cpp.Llama(sys.argv[1], n_ctx=512, n_threads=int(sys.argv[2]), type_k=0, type_v=0,
                        verbose=False)
def seconds(tokens):
    model.reset()
    begin = time.perf_counter()
    for i, _ in enumerate(model.generate(list(range(100, 132)), temp=0.0, repeat_penalty=1.0), 1):
        if i == tokens:
            return time.perf_counter() - begin
seconds(8)
print(seconds(401) - seconds(1))
"""


def generate(program, folder):
    import transformers
    weights = folder / "gpt2"
    transformers.GPT2LMHeadModel(
        transformers.GPT2Config(bos_token_id=0, eos_token_id=0)).save_pretrained(weights)

    def seconds(tokens):
        begin = time.perf_counter()
        subprocess.run([program, "generate", weights, "--ids", ",".join(map(str, range(100, 132))),
                        "--tokens", str(tokens), "--temperature", "0", "--ignore-eos", "--format",
                        "json"], check=True, capture_output=True)
        return time.perf_counter() - begin

    others = {"transformers": (TRANSFORMERS, weights)}
    if importlib.util.find_spec("llama_cpp"):
        subprocess.run([program, "export", weights, weights / "x.gguf"], check=True,
                       capture_output=True)
        others["llama.cpp"] = LLAMA_CPP, weights / "x.gguf"
    ours, theirs = [], {name: [] for name in others}
    for _ in range(5):
        seconds(1)  # the first start after another program takes a second longer
        ours.append(400 / (seconds(401) - seconds(1)))
        for name, (script, path) in others.items():
            theirs[name].append(400 / float(subprocess.run(
                [sys.executable, "-c", script, path, str(THREADS)], check=True,
                capture_output=True, text=True).stdout))
    own = statistics.median(ours)
    print(f"GPT-2 124M, fp32, after 32 tokens: ours {own:.1f} tokens/s")
    for name, speeds in theirs.items():
        other = statistics.median(speeds)
        print(f"{name} {other:.1f} tokens/s, ratio {own / other:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["tokenize", "vocabulary", "start", "generate"],
                        choices=["tokenize", "vocabulary", "start", "generate"])
    parser.add_argument("--program", default=str(PROGRAM))
    parser.add_argument("--gigabytes", type=float, default=5)
    arguments = parser.parse_args()
    program = str(pathlib.Path(arguments.program).resolve())
    print(f"{machine()}; {THREADS} threads")
    for what in arguments.what:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            if what == "tokenize":
                tokenize(program, folder)
            elif what == "vocabulary":
                vocabulary(program, folder)
            elif what == "start":
                start(program, folder, arguments.gigabytes)
            else:
                generate(program, folder)


if __name__ == "__main__":
    main()
