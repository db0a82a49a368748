#!/usr/bin/env python3
"""Compares the program with PyTorch in fp64, on a model of random sizes of each family.

    python tests/peers/live_peer.py [--seed N] [--program build/release/trident] [--keep DIR]

For each model: `trident train` in three drawn layouts (`--layouts`), with AdamW at least once, against
the reference's losses and first gradients; the saved weights loaded by transformers against the
program's own loss on them; `trident import` of transformers' folder; and `trident generate` against
transformers' most probable tokens. Then a text longer than a model's window. A failure prints the
seed, with which the same sizes and layouts are drawn again. Ends with `N passed, 0 failed`.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import make_golden
import safetensors.torch
import torch
import transformers

FAMILIES = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe",
            "olmoe", "deepseek_v3", "gpt_oss"]
LONG_FAMILIES = ["mistral", "qwen2", "qwen3"]  # of texts longer than the window
NEAR = 3e-6  # logits of a router that fp32 may order otherwise
NEAR_TOKENS = 1e-4  # logits of two tokens that fp32 may order otherwise
TOLERANCE = 1e-5  # losses: relative; gradients: norm of the difference over the norm


def draw_window(rng, architecture, layers):
    if architecture in ("mistral", "mixtral", "qwen3_moe"):
        window = rng.choice([None, 3, 8])
        return window, tuple(range(layers)) if window else ()
    if architecture in ("qwen2", "qwen3", "qwen2_moe", "gpt_oss") and rng.random() < 0.6:
        slide = [i for i in range(layers) if rng.random() < 0.5] or [layers - 1]
        return rng.choice([2, 5, 9]), tuple(slide)  # with 1 no score has a gradient
    return None, ()


def draw_scaling(rng):
    """Numbers with which short heads and sequences have pairs of each kind."""
    factor = rng.choice([1.5, 4.0, 8.0])
    return rng.choice([
        {"rope_type": "linear", "factor": factor},
        {"rope_type": "llama3", "factor": factor, "low_freq_factor": 0.5, "high_freq_factor": 2.0,
         "original_max_position_embeddings": rng.randrange(6, 40)},
        {"rope_type": "yarn", "factor": factor, "beta_fast": 2.0, "beta_slow": 0.25,
         "original_max_position_embeddings": rng.randrange(16, 40),
         **rng.choice([{}, {"attention_factor": 0.8}, {"mscale": 0.7, "mscale_all_dim": 1.3},
                       {"truncate": False}])}])


def draw_experts(rng, architecture, layers, ffn):
    if architecture not in ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v3", "gpt_oss"):
        return None
    if architecture == "deepseek_v3":
        groups = rng.choice([1, 2, 3])
        count = groups * rng.choice([2, 4])
        group_topk = rng.randrange(1, groups + 1)
        most = count // groups * group_topk
        width = 4 * rng.randrange(3, 12)
        return {"num": count, "topk": rng.choice([1, min(3, most), most]), "ffn": width,
                "shared": rng.choice([1, 2]) * width, "norm": rng.random() < 0.7,
                "aux": rng.choice([0.0, 0.05, 1.0]), "z": rng.choice([0.0, 0.02, 0.3]),
                "dense": tuple(range(rng.randrange(0, layers))), "groups": groups,
                "group_topk": group_topk, "scaling": rng.choice([1.0, 2.5]),
                "rate": rng.choice([0.0, 2.0**-7, 2.0**-10])}
    count = rng.choice([4, 6, 8, 12])
    free = architecture not in ("mixtral", "gpt_oss")
    some = free and architecture != "olmoe"  # layers may have experts, of any width
    dense = [i for i in range(layers) if some and rng.random() < 0.3]
    return {"num": count, "topk": rng.choice([1, 2, 3, count]),
            "ffn": 4 * rng.randrange(3, 20) if some else ffn,
            "shared": 4 * rng.randrange(3, 20) if architecture == "qwen2_moe" else 0,
            "norm": rng.random() < 0.5 if free else True,
            # Large factors, as the usual ones would hide an error.
            "aux": rng.choice([0.0, 0.05, 1.0]), "z": rng.choice([0.0, 0.02, 0.3]),
            "dense": tuple(dense[:layers - 1])}


def draw_latent(rng, architecture):
    if architecture != "deepseek_v3":
        return None
    return {"q_rank": rng.choice([None, 6, 20]), "kv_rank": rng.choice([4, 12, 24]),
            "nope": rng.choice([4, 10, 16]), "rope": rng.choice([2, 4, 8]),
            "value": rng.choice([3, 8, 20])}


def draw_case(rng, architecture, iterations):
    heads = rng.choice([4, 6, 8, 4, 6, 8, 3, 5, 7, 9])  # tensor parallelism needs divisors
    hidden = heads * rng.choice([4, 6, 8, 10])
    rotary = architecture != "gpt2"
    layers = rng.randrange(2, 7)
    head_dim = rng.choice([None, 4, 6, 12]) if rotary else None
    window, window_layers = draw_window(rng, architecture, layers)
    latent = draw_latent(rng, architecture)
    if latent or architecture == "olmoe":
        head_dim = None
    grouped = rotary and not latent
    groups = rng.choice([g for g in range(1, heads + 1) if heads % g == 0]) if grouped else heads
    sequence = rng.randrange(9, 25)
    ffn = 4 * rng.randrange(9, 40)
    global_batch = rng.choice([4, 6, 8, 12])
    return make_golden.Case(
        architecture, layers=layers, hidden=hidden, heads=heads, groups=groups,
        ffn=ffn, vocab=rng.randrange(101, 700),
        positions=sequence + rng.randrange(0, 9), sequence=sequence,
        samples=iterations * global_batch - rng.randrange(1, 10),
        tied=not rotary or rng.random() < 0.5, seed=rng.randrange(2**31),
        norm_epsilon=rng.choice([1e-5, 1e-6]), global_batch=global_batch,
        micro_batch=rng.choice([1, 2]), iterations=iterations, warmup=3,
        # Llama's stacked projections are one matrix here and three in transformers, so Adafactor
        # would factor them differently.
        optimizer=rng.choice(["AdamW", "Adam"] if rotary else ["AdamW", "Adam", "Adafactor"]),
        # Padding is one of the data's most frequent tokens. Its row gets no gradient from the
        # look-up.
        padding=rng.choice([0, 1, 2]) if rotary and rng.random() < 0.8 else None,
        head_dim=head_dim, window=window, window_layers=window_layers,
        rope_scaling=draw_scaling(rng) if rotary and rng.random() < 0.6 else None,
        attention_bias=(architecture in ("llama", "qwen3", "qwen3_moe", "olmoe", "deepseek_v3")
                        and rng.random() < 0.5),
        mlp_bias=architecture == "llama" and rng.random() < 0.5,
        experts=draw_experts(rng, architecture, layers, ffn), latent=latent,
        mtp=rng.choice([0, 1, 2]) if latent else 0, mtp_factor=rng.choice([0.1, 1.0]),
        mtp_tables=rng.random() < 0.5)


def draw_layouts(rng, case, count=3):
    """`count` different layouts of at most 8 ranks that these sizes allow, as --set values."""
    layouts = []
    for dp in (1, 2, 3, 4):
        if case.global_batch % (dp * case.micro_batch):
            continue
        micro_batches = case.global_batch // (dp * case.micro_batch)
        for tp in (1, 2, 3, 4):
            if any(size % tp for size in (case.heads, case.groups, case.ffn,
                                          case.experts["shared"] if case.experts else 0)):
                continue
            for pp in range(1, 5):
                for chunks in (1, 2):
                    if dp * tp * pp > 8 or pp * chunks > case.layers:
                        continue
                    if chunks > 1 and (pp == 1 or micro_batches % pp):
                        continue
                    if pp > micro_batches:
                        continue
                    layouts.append((dp, tp, pp, chunks))
    wide = [layout for layout in layouts if math.prod(layout[:3]) >= 4]
    drawn = rng.sample(wide if len(wide) >= count else layouts,
                       min(count, max(len(wide), len(layouts))))
    own = random.Random(case.seed)  # so that seeds draw the same cases as before

    def context_of(dp, tp, pp):
        """The ranks that share samples, and how: a2a where they divide the heads."""
        sizes = [cp for cp in (1, 2, 3, 4)
                 if dp * tp * pp * cp <= 8 and 2 * cp <= case.sequence]
        cp = own.choice([size for size in sizes if size > 1 and own.random() < 0.5] or [1])
        divides = case.heads // tp % cp == 0 and case.groups // tp % cp == 0
        way = own.choice(["p2p", "all_gather"] + 2 * ["a2a"] * divides)
        if cp == 4 and case.heads // tp % 2 == 0 and case.groups // tp % 2 == 0:
            way = own.choice([way, "a2a+p2p"])
        return cp, way

    def expert_sizes(dp, tp):
        if not case.experts:
            return {}
        sizes = [(ep, etp) for ep in (1, 2, 3, 4) for etp in (1, 2, 3, 4)
                 if dp * tp % (ep * etp) == 0 and case.experts["num"] % ep == 0
                 and case.experts["ffn"] % etp == 0]
        ep, etp = rng.choice([size for size in sizes if size[0] > 1] or sizes)
        return {"parallel.expert_model_parallel_size": ep,
                "parallel.expert_tensor_parallel_size": etp}
    return [{
        **expert_sizes(dp * cp, tp),
        "parallel.data_parallel_size": dp,
        "parallel.context_parallel_size": cp,
        "parallel.cp_comm_type": way if cp > 1 else "p2p",
        "parallel.hierarchical_context_parallel_sizes": [2, 2] if way == "a2a+p2p" else [],
        "parallel.tensor_model_parallel_size": tp,
        "parallel.pipeline_model_parallel_size": pp,
        "parallel.virtual_pipeline_model_parallel_size": chunks,
        "parallel.sequence_parallel": (tp > 1 and case.sequence % (2 * cp * tp if cp > 1 else tp) == 0
                                       and rng.random() < 0.5),
        "pipeline.schedule": "interleaved_1f1b" if chunks > 1 else rng.choice(["1f1b", "gpipe"]),
        "zero_optimization.stage": rng.choice([0, 1, 2, 3]),
        "zero_optimization.reduce_each_micro_batch": rng.random() < 0.5,
        "zero_optimization.stage3_param_persistence_threshold": rng.choice([0, 300, 100_000]),
        "activation_checkpointing.granularity": rng.choice(["none", "selective", "full"]),
    } for dp, tp, pp, chunks in drawn for cp, way in [context_of(dp, tp, pp)]]


class Checks:
    """Counts comparisons and prints those that fail."""

    def __init__(self):
        self.passed = 0
        self.failed = 0

    def expect(self, good, message):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAILED: {message}", file=sys.stderr)

    def expect_close(self, got, want, what):
        self.expect(abs(got - want) <= TOLERANCE * abs(want), f"{what}: got {got}, need {want}")


def run_program(command):
    result = subprocess.run([str(c) for c in command], cwd=ROOT, capture_output=True, text=True,
                            timeout=300)
    if result.returncode:
        raise RuntimeError(f"exit {result.returncode}: {' '.join(map(str, command))}\n"
                           f"{result.stdout[-2000:]}{result.stderr[-4000:]}")
    return result.stdout


def train(program, config, run, settings):
    """Runs `trident train`; returns the lines of its metrics.jsonl."""
    settings = {**settings, "logging.dir": str(run)}
    options = [part for key, value in settings.items()
               for part in ("--set", f"{key}={json.dumps(value)}")]
    run_program([program, "train", config, *options])
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def plain_names(tensors, architecture):
    """GPT-2's names with and without the leading `transformer.` are both in use. In memory
    transformers has one tensor for all experts of a layer, in files one for each."""
    plain = {}
    block = "block_sparse_moe" if architecture == "mixtral" else "mlp"
    gate, up, down = (("w1", "w3", "w2") if architecture == "mixtral"
                      else ("gate_proj", "up_proj", "down_proj"))
    for name, tensor in tensors.items():
        name, tensor = name.removeprefix("transformer."), tensor.double()
        head, _, tail = name.partition(".mlp.")
        if architecture == "gpt_oss":
            plain[name] = tensor
        elif tail == "experts.gate_up_proj":
            for i, both in enumerate(tensor):
                plain[f"{head}.{block}.experts.{i}.{gate}.weight"] = both[:len(both) // 2]
                plain[f"{head}.{block}.experts.{i}.{up}.weight"] = both[len(both) // 2:]
        elif tail == "experts.down_proj":
            for i, one in enumerate(tensor):
                plain[f"{head}.{block}.experts.{i}.{down}.weight"] = one
        elif tail == "gate.weight":
            plain[f"{head}.{block}.gate.weight"] = tensor
        else:
            plain[name] = tensor
    return plain


def relative_error(got, want, least=0.0):
    """The norm of the difference over the norm, or over `least` if that is more."""
    return float((got - want).norm() / max(float(want.norm()), least))


def mean_column(weight):
    """The root mean square of the norms of the columns of a gradient (out, in)."""
    return float(weight.norm()) / math.sqrt(weight.shape[1])


def gradient_error(got, want, case, name):
    """The relative error of the gradient `name`. A key's bias adds almost the same to all scores of
    a query (without rotary positions exactly the same), which the softmax ignores: its gradient is
    a small difference of large terms, and fp32 rounds the terms. A bias is the weight of an input
    of 1, and behind a norm the other inputs have an RMS near 1. A column of the projection's weight
    therefore has terms of the same size, which don't cancel, and the error is related to it."""
    one, other = got[name], want[name]
    weight = want.get(name.removesuffix("bias") + "weight")
    if name.endswith("attn.k_proj.bias"):
        return relative_error(one, other, mean_column(weight))
    if case.architecture == "gpt2" and name.endswith("attn.c_attn.bias"):
        parts = zip(one.chunk(3), other.chunk(3), weight.T.chunk(3))
        return max(relative_error(a, b, mean_column(w) if i == 1 else 0.0)
                   for i, (a, b, w) in enumerate(parts))  # of queries, keys, values
    return relative_error(one, other)


def noise(case, tokens, golden):
    """What one rounding of the weights changes, computed once and kept in `golden`."""
    if "noise" not in golden:
        golden["noise"] = make_golden.noise(case, tokens)
    return golden["noise"]


def check_gradient(checks, case, tokens, golden, got, want, name, what):
    """Within the tolerance, or within what one rounding of the weights changes: the gradient of a
    norm of four elements is a sum over all tokens whose terms can cancel."""
    error = gradient_error(got, want, case, name)
    allowed = TOLERANCE
    if error > TOLERANCE:
        rounded = [plain_names(one, case.architecture)
                   for one in noise(case, tokens, golden)["gradients"]]
        allowed = max(allowed, 3 * max(gradient_error(one, want, case, name) for one in rounded))
        print(f"  {what}: gradient of {name} is off by {error:.1e}; allowed by the reference's own "
              f"noise: {allowed:.1e}")
    checks.expect(error <= allowed, f"{what}: gradient of {name} is off by {error:.2e}")


def check_curve(checks, case, tokens, golden, name, got, what):
    """Each value within the tolerance, or within what one rounding of the weights changes."""
    for k, (one, want) in enumerate(zip(got, golden[name])):
        if name in ("losses", "grad_norms") and abs(one - want) > TOLERANCE * abs(want):
            allowed = 3 * noise(case, tokens, golden)[name][k]
            print(f"  {what}: {name} of {k + 1} is off by {abs(one / want - 1):.1e}; "
                  f"allowed by the reference's own noise: {allowed:.1e}")
            checks.expect(abs(one - want) <= allowed * abs(want),
                          f"{what}: {name} of {k + 1}: got {one}, need {want}")
        else:
            checks.expect_close(one, want, f"{what}: {name} of {k + 1}")


def check_training(checks, case, tokens, golden, gradients, metrics, run, what):
    checks.expect([m["iteration"] for m in metrics] == list(range(1, case.iterations + 1)),
                  f"{what}: iterations {[m['iteration'] for m in metrics]}")
    for key, name in (("loss", "losses"), ("grad_norm", "grad_norms"),
                      ("learning_rate", "learning_rates")):
        check_curve(checks, case, tokens, golden, name, [line[key] for line in metrics], what)
    for line, want in zip(metrics, golden.get("mtp_losses", [])):
        checks.expect_close(line["auxiliary_losses"]["mtp_loss"], want,
                            f"{what}: mtp_loss of {line['iteration']}")
    for line, want in zip(metrics, golden.get("router_entropies", [])):
        entropies = [value for layer in line["statistics"]["router_entropy"] for value in layer]
        checks.expect(len(entropies) == len(want), f"{what}: entropies {entropies}")
        for layer, (one, other) in enumerate(zip(entropies, want)):
            checks.expect(math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-6),
                          f"{what}: entropy {layer} of {line['iteration']}: got {one}, need {other}")
    for line, want in zip(metrics, golden.get("load_balancing_losses", [])):
        checks.expect_close(line["statistics"]["load_balancing_loss"][0][0], want,
                            f"{what}: load_balancing_loss of {line['iteration']}")
    got = plain_names(safetensors.torch.load_file(run / "gradients-1.safetensors"),
                      case.architecture)
    want = plain_names(gradients, case.architecture)
    checks.expect(got.keys() == want.keys(),
                  f"{what}: gradient names differ by {sorted(got.keys() ^ want.keys())}")
    for name in got.keys() & want.keys():
        if got[name].shape != want[name].shape:
            checks.expect(False, f"{what}: {name} {tuple(got[name].shape)}, "
                                 f"need {tuple(want[name].shape)}")
            continue
        if case.padding is not None and name == "model.embed_tokens.weight" and not case.tied:
            checks.expect(not got[name][case.padding].any(), f"{what}: the padding's row moves")
        if want[name].norm() < 1e-12:
            # An expert without tokens, or the router of a single expert whose weight is always 1.
            checks.expect(got[name].norm() < 1e-7, f"{what}: gradient of {name} isn't zero")
            continue
        check_gradient(checks, case, tokens, golden, got, want, name, what)


def is_of_mtp_layer(name, case):
    return any(name.startswith(f"model.layers.{case.layers + i}.") for i in range(case.mtp))


def check_weights(checks, program, config, case, tokens, trained, saved, run, what):
    """transformers and the program load the directory under checkpoint.save, and their losses agree."""
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
        saved, dtype=torch.float32, output_loading_info=True)
    for kind, names in info.items():
        if kind == "unexpected_keys":
            names = {n for n in names if not is_of_mtp_layer(n, case)}
        checks.expect(not names, f"{what}: transformers reports {kind}: {names}")
    loaded = make_golden.use_float64(loaded)
    with torch.no_grad():
        inputs, labels = make_golden.batch(case, tokens, 0)
        by_transformers = float(make_golden.mean_loss(loaded, inputs, labels))
        by_reference = float(make_golden.mean_loss(trained, inputs, labels))
    checks.expect_close(by_transformers, by_reference, f"{what}: loss of the saved weights")
    again = train(program, config, run, {"checkpoint.load": str(saved), "training.train_iters": 1,
                                         "scheduler.warmup_iters": 0})
    checks.expect_close(again[0]["loss"], by_transformers, f"{what}: loss of the loaded weights")
    return loaded


def check_fused(checks, program, case, saved, folder, what):
    """The program reads the experts of a layer in one tensor, as transformers 5 can write them."""
    model = transformers.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32)
    model.save_pretrained(folder / "fused", save_original_format=False)
    names = safetensors.torch.load_file(folder / "fused" / "model.safetensors")
    checks.expect(any(name.endswith("experts.gate_up_proj") for name in names), f"{what}: fused")
    run_program([program, "import", folder / "fused", folder / "parted"])
    want = {name: tensor for name, tensor
            in safetensors.torch.load_file(saved / "model.safetensors").items()
            if not is_of_mtp_layer(name, case)}
    got = safetensors.torch.load_file(folder / "parted" / "model.safetensors")
    checks.expect(got.keys() == want.keys() and all(torch.equal(got[n], want[n]) for n in want),
                  f"{what}: fused experts differ from separate ones")


def check_import(checks, program, folder, what):
    """A folder of transformers keeps every name and bit when the program reads and writes it."""
    run_program([program, "import", folder / "model", folder / "imported"])
    want, got = (safetensors.torch.load_file(folder / name / "model.safetensors")
                 for name in ("model", "imported"))
    want, got = ({name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
                 for tensors in (want, got))
    checks.expect(got.keys() == want.keys(),
                  f"{what}: names of imported tensors differ by {sorted(got.keys() ^ want.keys())}")
    for name in got.keys() & want.keys():
        checks.expect(got[name].dtype == want[name].dtype and torch.equal(got[name], want[name]),
                      f"{what}: {name} differs after an import")


def check_biases(checks, trained, saved, what):
    """The biases that balanced the experts are bit-equal to the reference's."""
    got = safetensors.torch.load_file(saved / "model.safetensors")
    for name, module in trained.named_modules():
        if isinstance(module, make_golden.Float64SigmoidRouter):
            bias = got[f"{name}.e_score_correction_bias"]
            checks.expect(bias.dtype == torch.float32 and torch.equal(bias, module.bias.float()),
                          f"{what}: biases of {name}: got {bias}, need {module.bias}")


def check_generate(checks, program, case, tokens, model, saved, what):
    """Each token of a greedy continuation is the most probable one by transformers, to the end of text."""
    prompt = [int(t) for t in tokens[:4]]
    count = case.positions - len(prompt)
    output = run_program([program, "generate", saved, "--ids", ",".join(map(str, prompt)),
                          "--tokens", count, "--temperature", 0, "--format", "json",
                          "--samples", 2])  # the second text begins in the first one's cache
    want = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            logits = model(input_ids=torch.tensor([want]), use_cache=False).logits[0, -1]
            want.append(int(logits.argmax()))
            if want[-1] == model.config.eos_token_id:
                break
    for text in json.loads(output)["texts"]:
        got = text["tokens"]
        checks.expect(got in (want, want[len(prompt):]), f"{what}: generated {got}, need {want}")


def make_references(case, folder):
    """The files of `case` and the reference's runs: that of its optimizer and, if that is another,
    of AdamW. Returns (case, config, golden, trained model) of each, the first gradients, the tokens."""
    while True:
        print(f"  {case}")
        golden, gradients, trained, tokens = make_golden.make_case(case, folder, str(folder),
                                                                   str(folder / "run"))
        references = [(case, folder / "config.json", golden, trained)]
        if case.optimizer != "AdamW":
            other = dataclasses.replace(case, optimizer="AdamW")
            config = folder / "adamw.json"
            make_golden.write_json(config, make_golden.trident_config(other, str(folder),
                                                                      str(folder / "run")))
            model = make_golden.use_float64(make_golden.draw_model(other))
            references.append((other, config, make_golden.reference_run(model, other, tokens)[0],
                               model))
        if all(router.gap > NEAR for *_, model in references
               for router in make_golden.routers(model)):
            return references, gradients, tokens
        case.seed += 1  # two experts have almost the same score


def check_case(checks, rng, program, case, folder, count):
    references, gradients, tokens = make_references(case, folder)
    layouts = draw_layouts(rng, case, count)
    # The last reference is AdamW's; of two references it has the last layout.
    runs = [(references[0], layout) for layout in layouts]
    runs[-1] = (references[-1], layouts[-1])
    if len(runs) == 1 < len(references):
        runs.insert(0, (references[0], layouts[0]))
    for i, ((drawn, config, golden, trained), layout) in enumerate(runs):
        what = f"{case.architecture} {drawn.optimizer} " + " ".join(
            f"{key.split('.')[1]}={value}" for key, value in layout.items())
        print(f"  {what}")
        run, saved = folder / f"run-{i}", folder / f"saved-{i}"
        metrics = train(program, config, run, {**layout, "checkpoint.save": str(saved)})
        check_training(checks, drawn, tokens, golden, gradients, metrics, run, what)
        check_biases(checks, trained, saved, what)
    loaded = check_weights(checks, program, config, drawn, tokens, trained, saved,
                           folder / "run-again", what)
    check_generate(checks, program, case, tokens, loaded, saved, what)
    if not case.experts:
        check_import(checks, program, folder, what)
    elif case.architecture != "gpt_oss":  # whose files have no other form
        check_fused(checks, program, case, saved, folder, what)


def greedy_text(model, prompt, count):
    """The likeliest tokens after `prompt`, none from a cache, and the least distance between the
    logits of one and of the next likeliest."""
    with torch.no_grad():
        inputs = torch.tensor([prompt])
        # Without a mask, generate masks the prompt's tokens that are pad_token_id.
        output = model.generate(inputs, attention_mask=torch.ones_like(inputs),
                                max_new_tokens=count, do_sample=False, use_cache=False,
                                eos_token_id=None, output_logits=True,
                                return_dict_in_generate=True)
    best = torch.cat(output.logits).topk(2, dim=-1).values
    return output.sequences[0].tolist(), float((best[:, 0] - best[:, 1]).min())


def draw_long_case(rng, architecture):
    case = draw_case(rng, architecture, 8)
    layers = min(case.layers, 3)
    return dataclasses.replace(
        case, layers=layers, positions=160, tied=False,
        # A table of its own and large weights: a text doesn't end in a short cycle.
        weight_std=0.3, window=rng.randrange(2, 25),
        window_layers=tuple(range(layers)) if architecture == "mistral" else
        tuple(sorted(rng.sample(range(layers), rng.randrange(1, layers + 1)))))


def check_long_text(checks, rng, program, architecture, folder):
    """100 greedy tokens of a model with a short window are transformers', which has no cache there."""
    case = draw_long_case(rng, architecture)
    prompt = [rng.randrange(case.vocab) for _ in range(rng.choice([1, 7, 40]))]
    while True:
        wide = dataclasses.replace(case, window=None, window_layers=())
        texts = []
        for one in (case, wide):
            model = make_golden.draw_model(one)
            if one is case:
                make_golden.save_model(model, case, folder)
            texts.append(greedy_text(make_golden.use_float64(model).eval(), prompt, 100))
        (want, gap), (other, _) = texts
        if gap > NEAR_TOKENS and want != other:
            break
        case.seed += 1  # two tokens are almost as likely, or the window changes no token
    print(f"  {case}\n  a text of {len(want)} tokens, window {case.window}")
    output = run_program([program, "generate", folder, "--ids", ",".join(map(str, prompt)),
                          "--tokens", 100, "--temperature", 0, "--format", "json", "--ignore-eos"])
    got = json.loads(output)["tokens"]
    checks.expect(got in (want, want[len(prompt):]),
                  f"{architecture}: generated {got}, need {want}, behind {len(prompt)} tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/trident")
    parser.add_argument("--layouts", type=int, default=3, help="of each model")
    parser.add_argument("--steps", type=int, default=8, help="of each run")
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--long-texts", type=int, default=1, help="of each family with windows")
    parser.add_argument("--keep", type=pathlib.Path, help="keep the files in this new folder")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(arguments.seed)
    checks = Checks()
    print(f"live peer: seed {arguments.seed}")
    with tempfile.TemporaryDirectory() as temporary:
        base = (arguments.keep or pathlib.Path(temporary)).resolve()
        program = arguments.program.resolve()
        for architecture in arguments.families:
            try:
                check_case(checks, rng, program, draw_case(rng, architecture, arguments.steps),
                           base / architecture, arguments.layouts)
                for i in range(arguments.long_texts if architecture in LONG_FAMILIES else 0):
                    check_long_text(checks, rng, program, architecture,
                                    base / f"{architecture}-long-{i}")
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                checks.expect(False, f"{architecture}: {error}")
    print(f"{checks.passed} passed, {checks.failed} failed")
    if checks.failed:
        sys.exit(f"live peer failed; again with: tests/peers/live_peer.py --seed {arguments.seed}")


if __name__ == "__main__":
    main()
