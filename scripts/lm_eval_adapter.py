#!/usr/bin/env python3
"""Runs EleutherAI's lm-evaluation-harness on weights of this program.

    python3 -m pip install lm_eval tokenizers
    python3 scripts/lm_eval_adapter.py --model_args weights=runs/my/weights --tasks arc_easy,lambada_openai

Takes the options of `lm_eval`. --model_args: `weights=` a Hugging Face directory with a
tokenizer.json; `program=` the program (build/release/trident); `prefix_token=` an id
for texts without a context, where the model has neither a first nor a last token.

Choices are scored by `trident eval --score`, a process for all of a task; texts are generated
greedily, a process for each. Texts are tokenized as the harness does it for transformers, without
special tokens.
"""

import json
import pathlib
import subprocess
import sys

import lm_eval.__main__
import tokenizers
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

ROOT = pathlib.Path(__file__).resolve().parent.parent


@register_model("trident")
class Trident(TemplateLM):
    def __init__(self, weights, program=str(ROOT / "build/release/trident"), prefix_token=None,
                 batch_size=None, max_batch_size=None, device=None, **others):
        super().__init__()
        if others:
            raise ValueError(f"--model_args: there is no {', '.join(others)}")
        self.program = program
        self.directory = pathlib.Path(weights)
        config = json.loads((self.directory / "config.json").read_text())
        if "training" in config and "checkpoint" in config:
            raise ValueError(f"{weights} is a run's folder: name that of its weights, which was "
                             f"checkpoint.save: {config['checkpoint']['save']}")
        self.max_length = config.get("n_positions") or config["max_position_embeddings"]
        self.tokenizer = tokenizers.Tokenizer.from_file(str(self.directory / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        first, self.eos = (self.special_token(name, config) for name in ("bos", "eos"))
        self.prefix = (int(prefix_token) if prefix_token is not None
                       else first if first is not None else self.eos)

    def special_token(self, name, config):
        """The token's id by tokenizer_config.json, which the harness uses, else by config.json."""
        path = self.directory / "tokenizer_config.json"
        tokens = json.loads(path.read_text()) if path.exists() else {}
        if "bos_token" in tokens or "eos_token" in tokens:
            token = tokens.get(f"{name}_token")
            token = token["content"] if isinstance(token, dict) else token
            return None if token is None else self.tokenizer.token_to_id(token)
        ids = config.get(f"{name}_token_id")
        return ids[0] if isinstance(ids, list) else ids

    @property
    def eot_token_id(self):
        return self.eos

    @property
    def prefix_token_id(self):
        if self.prefix is None:
            raise ValueError(f"{self.directory} names neither bos_token_id nor eos_token_id: give "
                             "prefix_token= in --model_args")
        return self.prefix

    def tok_encode(self, string, add_special_tokens=False, **_):
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens).ids

    def run(self, *arguments, text=None):
        done = subprocess.run([self.program, *arguments], input=text, capture_output=True,
                              text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return done.stdout

    def scores(self, pairs):
        """For each (context, continuation) of ids: the log-likelihood, and whether greedy decoding
        gives the continuation."""
        requests, places, pairs = [], [], list(pairs)
        for i, (context, continuation) in enumerate(pairs):
            if not continuation:
                continue  # certain
            places.append(i)
            if len(continuation) > self.max_length:
                raise ValueError(f"a continuation of {len(continuation)} tokens is longer than the "
                                 f"model's {self.max_length} positions")
            requests.append(json.dumps({"context": context, "continuation": continuation}))
        results = [(0.0, True)] * len(pairs)
        if requests:
            lines = self.run("eval", str(self.directory), "--score", "-", text="\n".join(requests))
            for i, line in zip(places, lines.splitlines(), strict=True):
                score = json.loads(line)
                results[i] = score["log_likelihood"], score["greedy"]
        return results

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, **_):
        results = self.scores((context, continuation) for _, context, continuation in requests)
        for (strings, _, _), result in zip(requests, results, strict=True):
            if strings is not None:
                self.cache_hook.add_partial("loglikelihood", strings, result)
        return results

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        windows = [[*map(make_disjoint_window, get_rolling_token_windows(
            token_list=self.tok_encode(request.args[0]), prefix_token=self.prefix_token_id,
            max_seq_len=self.max_length, context_len=1))] for request in requests]
        scores = iter(self.scores(window for text in windows for window in text))
        return [sum(next(scores)[0] for _ in text) for text in windows]

    def generate_until(self, requests, disable_tqdm=False):
        results = []
        for context, settings in (request.args for request in requests):
            if settings.get("do_sample") and settings.get("temperature") != 0:
                raise ValueError("only greedy decoding is compared: do_sample false, temperature 0")
            until = settings.get("until") or []
            until = [until] if isinstance(until, str) else until
            count = settings.get("max_gen_toks", 256)
            ids = self.tok_encode(context) or [self.prefix_token_id]
            ids = ids[-max(1, self.max_length - count):]
            stops = [f"--stop={stop}" for stop in until if stop]
            answer = self.run("generate", str(self.directory), "--ids", "-", "--tokens", str(count),
                              "--temperature", "0", "--format", "json", *stops,
                              text=",".join(map(str, ids)))
            # The harness also decodes the new tokens without the context.
            text = self.tokenizer.decode(json.loads(answer)["tokens"][len(ids):])
            for stop in filter(None, until):
                text = text.split(stop)[0]
            results.append(text)
        return results


if __name__ == "__main__":
    if not any(argument.split("=")[0] in ("--model", "-m") for argument in sys.argv):
        sys.argv += ["--model", "trident"]
    lm_eval.__main__.cli_evaluate()
