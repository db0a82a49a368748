#!/usr/bin/env python3
"""Writes docs/memory.md's tables and docs/memory.svg: memory by the papers' formulas, by the plan,
by the ledgers of runs, and by the system.

    $(scripts/peers_python) bench/memory.py [--program build/release/trident] [--out docs]

Every row is a run of `trident bench step` (two warm-up steps and one more) and `trident plan` with
the same settings. Figures of memory don't depend on the machine, except for the last table.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

from side_by_side import CONFIG, PROGRAM, ROOT, machine, run, step_command

STATES = ("parameter", "gradient", "optimizer")
SMALL = {"model.architecture": "llama", "model.num_layers": 2, "model.hidden_size": 128,
         "model.num_attention_heads": 4, "model.num_query_groups": 2,
         "model.ffn_hidden_size": 384, "model.vocab_size": 512, "model.tie_word_embeddings": "false",
         "model.max_position_embeddings": 64, "data.sequence_length": 32,
         "batch.micro_batch_size": 1, "batch.gradient_accumulation_steps": 1,
         "runtime.threads_per_rank": 1,
         "zero_optimization.stage3_param_persistence_threshold": 0}
LAYERED = {"model.hidden_size": 64, "model.num_attention_heads": 4, "model.vocab_size": 515,
           "model.max_position_embeddings": 64, "data.sequence_length": 64,
           "batch.micro_batch_size": 2, "batch.global_batch_size": 2,
           "runtime.threads_per_rank": 1}
BEGIN, END = "<!-- written by bench/memory.py -->", "<!-- end -->"


class Measured:
    """A run's ledger and its plan."""

    def __init__(self, program, settings):
        self.run = run(step_command(program, CONFIG, 1, settings))
        words = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
        plan = json.loads(subprocess.run([program, "plan", CONFIG, "--format", "json", *words],
                                         check=True, capture_output=True, text=True).stdout)
        self.parameters = plan["parameters"]
        self.library = sum(r["count"] * r["bytes"]["library"] for r in plan["ranks"])
        self.planned = max(r["peak_bytes"] - r["bytes"]["library"] for r in plan["ranks"])
        self.largest = self.run["ledger"]["largest_rank"]
        self.ratio = self.planned / self.largest["total"]

    def states(self):
        return sum(self.largest[name] for name in STATES)


def table(head, rows):
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    return "\n".join(f"| {line} |" for line in lines + [" | ".join(row) for row in rows])


def model_states(program, rows, every):
    """Rajbhandari 2019: 2 bytes of weights, 2 of gradients, 12 of optimizer a parameter."""
    bars = {}
    for ranks in (1, 2, 4, 8, 16):
        for stage in range(4):
            found = Measured(program, SMALL | {
                "precision.dtype": "bf16", "precision.grad_accum_dtype": "bf16",
                "parallel.data_parallel_size": ranks, "batch.global_batch_size": ranks,
                "zero_optimization.stage": stage})
            every.append((f"data {ranks}, stage {stage}", found))
            formula = (2 / (ranks if stage == 3 else 1) + 2 / (ranks if stage >= 2 else 1)
                       + 12 / (ranks if stage >= 1 else 1))
            measured = found.states() / found.parameters
            bars[ranks, stage] = [found.largest[name] / found.parameters for name in STATES]
            rows.append([str(ranks), str(stage), f"{formula:.3f}", f"{measured:.3f}",
                         f"{measured / formula:.4f}"])
    return bars


def activation_formula(tensor, sequence, granularity):
    """Bytes of a layer in bf16, after Korthikanti 2022, without dropout's masks and scores."""
    s, b, h, a = 64, 2, 64, 4
    shared = tensor if sequence else 1
    if granularity == "full":
        return 2 * s * b * h / shared
    selective = granularity == "selective"
    between = 2 / shared + (2 if sequence and not selective else 2 / shared)
    inside = (3 + (0 if selective else 1) + 8) / tensor
    return (2 * s * b * h * (between + inside) + 4 * s * b * 4 / shared
            + (0 if selective else 4 * s * b * a / tensor))


def activations(program, rows, every):
    for tensor, sequence in ((1, False), (2, False), (2, True), (4, False), (4, True)):
        for granularity in ("none", "selective", "full"):
            found = [Measured(program, LAYERED | {
                "model.num_layers": layers, "parallel.tensor_model_parallel_size": tensor,
                "parallel.sequence_parallel": json.dumps(sequence), "precision.dtype": "bf16",
                "activation_checkpointing.granularity": granularity}) for layers in (4, 8)]
            what = f"tensor {tensor}{', sequence' if sequence else ''}, {granularity}"
            every.append((what, found[1]))
            layer = (found[1].largest["activation"] - found[0].largest["activation"]) / 4
            formula = activation_formula(tensor, sequence, granularity)
            rows.append([str(tensor), "yes" if sequence else "no", granularity, f"{formula:.0f}",
                         f"{layer:.0f}", f"{layer / formula:.4f}"])


def layouts(program, every):
    for layout, schedule, chunks in (((2, 2, 2), "1f1b", 1), ((1, 1, 4), "zb_h1", 1),
                                     ((2, 1, 2), "interleaved_1f1b", 2), ((2, 1, 2), "zbv", 2),
                                     ((4, 1, 2), "gpipe", 1)):
        for stage in (0, 2, 3):
            data, tensor, pipeline = layout
            every.append((f"data {data}, tensor {tensor}, {schedule} {pipeline}, stage {stage}",
                          Measured(program, LAYERED | {
                              "model.num_layers": 8, "parallel.data_parallel_size": data,
                              "parallel.tensor_model_parallel_size": tensor,
                              "parallel.pipeline_model_parallel_size": pipeline,
                              "parallel.virtual_pipeline_model_parallel_size": chunks,
                              "pipeline.schedule": schedule,
                              "batch.global_batch_size": 16 * data,
                              "zero_optimization.stage": stage})))


def resident(program, rows):
    base = {"data.sequence_length": 256, "runtime.threads_per_rank": 1,
            "parallel.data_parallel_size": 2, "batch.micro_batch_size": 4}
    sequence = [("bf16", stage, "none", 8) for stage in range(4)] + [
        ("fp32", 0, "none", 8), ("fp32", 3, "full", 16), ("bf16", 3, "full", 16)]
    for dtype, stage, granularity, batch in sequence:
        found = Measured(program, base | {
            "precision.dtype": dtype, "zero_optimization.stage": stage,
            "activation_checkpointing.granularity": granularity,
            "batch.global_batch_size": batch})
        ledgers = found.run["ledger"]["peak_bytes"]
        grown = found.run["peak_rss_bytes"] - found.run["rss_bytes_before"]
        mib = 2.0**-20
        rows.append([dtype, str(stage), granularity, str(batch // 8),
                     f"{found.planned * 2 * mib:.0f}", f"{ledgers * mib:.0f}",
                     f"{grown * mib:.0f}", f"{grown / ledgers:.3f}",
                     f"{(found.planned * 2 + found.library) * mib:.0f}",
                     f"{found.run['peak_rss_bytes'] * mib:.0f}"])


def draw(bars, path):
    matplotlib.rcParams.update({"svg.hashsalt": "memory", "svg.fonttype": "none"})
    figure, axes = pyplot.subplots(figsize=(8, 3.6))
    ranks = sorted({r for r, _ in bars})
    for stage in range(4):
        places = [i + 0.2 * (stage - 1.5) for i in range(len(ranks))]
        below = [0.0] * len(ranks)
        for index, (name, color) in enumerate(zip(STATES, ("#4269d0", "#efb118", "#6cc5b0"))):
            heights = [bars[r, stage][index] for r in ranks]
            axes.bar(places, heights, 0.18, below, color=color, label=name if stage == 0 else None)
            below = [a + b for a, b in zip(below, heights)]
        for x, y in zip(places, below):
            axes.text(x, y + 0.15, str(stage), ha="center", fontsize=8)
    axes.set_xticks(range(len(ranks)), [str(r) for r in ranks])
    axes.set_xlabel("data-parallel ranks; bars: ZeRO stages 0 to 3")
    axes.set_ylabel("bytes a parameter, by the ledger")
    axes.spines[["top", "right"]].set_visible(False)
    # The legend goes above the bars.
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs")
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    states, layers, system, every = [], [], [], []
    bars = model_states(program, states, every)
    activations(program, layers, every)
    layouts(program, every)
    resident(program, system)
    worst = max(every, key=lambda row: abs(row[1].ratio - 1))
    text = "\n\n".join([
        "### Model states, bytes a parameter (bf16 with bf16 gradients)",
        table(["ranks", "stage", "formula", "ledger", "ratio"], states),
        "### Activations, bytes a layer (bf16)",
        table(["tensor", "sequence parallel", "recomputation", "formula", "ledger", "ratio"],
              layers),
        f"### The plan's peak of the largest rank, {len(every)} configs",
        f"Furthest from the ledger: {worst[1].ratio:.4f} of it ({worst[0]}).",
        table(["config", "plan, bytes", "ledger, bytes", "ratio"],
              [[name, str(m.planned), str(m.largest["total"]), f"{m.ratio:.4f}"]
               for name, m in every]),
        "### Resident memory, GPT-2 124M, two ranks in a process, MiB",
        f"{machine()}. \"grown\" is the peak resident size less what the process had before.",
        table(["dtype", "stage", "recomputation", "micro-batches", "plan", "ledgers", "grown",
               "grown / ledgers", "plan with library", "peak resident"], system)])
    path = arguments.out / "memory.md"
    old = path.read_text()
    if BEGIN not in old or END not in old:
        sys.exit(f"{path}: needs the lines {BEGIN} and {END}")
    path.write_text(old[:old.index(BEGIN)] + BEGIN + "\n\n" + text + "\n\n" + old[old.index(END):])
    draw(bars, arguments.out / "memory.svg")


if __name__ == "__main__":
    main()
