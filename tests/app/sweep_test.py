#!/usr/bin/env python3
"""Sweeps a small model and checks the results.

    python3 tests/app/sweep_test.py build/release/trident [--full] [--keep FILE]

Invalid layouts are listed with their reasons. All others reach the same loss and take the memory of
their plans. The same command again runs no point. A point that fails or hangs is recorded, and the
sweep continues with the other points. Headless Chromium shows the report, wide and narrow, light and
dark: `look_at` makes the checks of any page, and this test checks that the table scrolls, that bars and
table agree, and that no figure has a single dot. --full adds sweeps over batches, and measures this
machine and fits its file to a sweep. --keep keeps the report. Prints `N passed` at the end, or an error.
"""

import csv
import fcntl
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from report_test import Look, chromium, look_at

CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 4, "hidden_size": 32, "num_attention_heads": 4,
              "vocab_size": 256},
    "batch": {"micro_batch_size": 1, "global_batch_size": 8},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
    "scheduler": {"type": "cosine", "warmup_iters": 50},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
    "training": {"train_iters": 1000, "eval_interval": 10},
    "checkpoint": {"save": "weights"},
    "runtime": {"threads_per_rank": 1},
    "logging": {"dir": "run"}}
FIGURES = {"scaling": 2, "parts": 3, "memory": 1, "bubble": 1, "pareto": 1,
           "timeline-0-0": 2, "timeline-0-1": 3, "timeline-1-0": 2, "timeline-1-1": 3}
# Scrolls the table, sorts it and reads the bars.
TRY = r"""<script>{
const scroll = document.querySelector("#table .scroll"), shadow = () => getComputedStyle(scroll.parentElement, "::after").content !== "none";
const first = () => scroll.querySelector("tbody tr").firstElementChild.getBoundingClientRect().left - scroll.getBoundingClientRect().left;
const column = name => [...scroll.querySelectorAll("thead th")].findIndex(th => th.textContent.startsWith(name));
const cells = name => [...scroll.querySelectorAll("tbody tr")].map(row => row.children[column(name)].textContent).sort();
const tried = window.tried = {};
const button = scroll.querySelectorAll("thead button")[1];
button.focus(); button.click();
tried.sorted = button.closest("th").getAttribute("aria-sort"); tried.focus = document.activeElement === button && button.isConnected;
tried.steps = cells("ms a step");
tried.bars = [...document.querySelectorAll("#parts svg text:not([text-anchor])")].map(t => t.textContent).sort();
tried.idle = getComputedStyle(document.querySelector("#timeline-0-1 svg .idle")).fill;
scroll.dispatchEvent(new Event("scroll"));  // a browser looks by itself once the page stands
tried.more = shadow(); scroll.scrollLeft = 150; tried.sticks = first();
}</script>
"""


class Folder:
    def __init__(self, program, path):
        self.program, self.path = program, path
        (path / "text.txt").write_text("In the beginning was the word & the <word>. " * 200)
        (path / "c.json").write_text(json.dumps(CONFIG))

    def sweep(self, *arguments, code=0):
        run = subprocess.run([self.program, "sweep", "c.json", *arguments], cwd=self.path,
                             env={**os.environ, "XDG_CACHE_HOME": str(self.path / "cache")},
                             capture_output=True, text=True, timeout=300)
        assert run.returncode == code, f"{arguments}: {run.returncode}\n{run.stdout}\n{run.stderr}"
        return run

    def result(self, out):
        return json.loads((self.path / out / "sweep.json").read_text())


def layouts(folder):
    grid = "tp=1,2,3 pp=1,2 schedule=1f1b,zb_h1"
    arguments = ("--grid", grid, "--out", "out", "--iterations", "2", "--warm-up", "1",
                 "--repeats", "1", "--overwrite")
    dry = folder.sweep(*arguments, "--dry-run").stdout
    assert not (folder.path / "out").exists() and "invalid" in dry
    folder.sweep(*arguments)
    result = folder.result("out")
    points = result["points"]
    assert points[0]["ranks"] == 1 and points[0]["point"].startswith("tp=1 pp=1 schedule=1f1b")
    assert abs(points[0]["efficiency"] - 1) < 1e-12
    assert len(points) + len(result["invalid"]) == 3 * 2 * 2
    assert any("tp=3" in p["point"] and "does not divide" in p["reason"] for p in result["invalid"])
    losses = [p["loss"] for p in points]
    assert max(losses) - min(losses) < 1e-5, losses
    for point in points:
        name = point["point"]
        assert point["status"] == "ok" and point["runs"] == 1 and not point["loss_differs"], name
        planned, peak = point["planned_memory"], point["peak_memory"]
        assert 0.99 * planned <= peak <= 1.01 * planned, (name, planned, peak)
        parts = point["parts_ms"]
        assert all(parts[part] > 0 for part in ("products", "kernels", "rest")), (name, parts)
        speed = point["tokens_per_second"]
        assert speed["least"] <= speed["all"] <= speed["most"], name
        # The table, the bars and the speed show the same iterations.
        assert abs(sum(parts.values()) / point["step_ms"] - 1) < 1e-6, (name, parts)
        assert abs(speed["all"] * point["step_ms"] / 1e3 / point["tokens"] - 1) < 1e-6, name
        assert 0 < point["mfu"] <= 1, name
        if point["axes"]["pp"] > 1:
            assert 0 < point["bubble_predicted"] < 0.5 and point["bytes_sent"]["pipeline"] > 0, name
    rows = list(csv.DictReader((folder.path / "out/sweep.csv").open()))
    assert len(rows) == len(points) + len(result["invalid"])
    assert float(rows[3]["step_ms"]) == points[3]["step_ms"]
    # The machine's rates are kept for the next run.
    rates = json.loads((folder.path / "cache/trident/product_rates.json").read_text())
    assert rates and all(kind.endswith(", fp32") and rate > 0 for kind, rate in rates.items()), rates
    # No point is left to run.
    before = (folder.path / "out/runs.jsonl").read_text()
    again = folder.sweep(*[a for a in arguments if a != "--overwrite"])
    assert (folder.path / "out/runs.jsonl").read_text() == before and "[1/" not in again.stdout
    # The mean of one run is bitwise that run's value: (0.1 + 0.2) * 1000.1 / (0.1 + 0.2) isn't.
    runs = [json.loads(line) for line in before.splitlines()]
    for run in runs:
        run.update(iteration_time_ms=[0.1, 0.2], tokens_per_second=1000.1)
    (folder.path / "out/runs.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    folder.sweep(*[a for a in arguments if a != "--overwrite"])
    assert all(p["tokens_per_second"]["all"] == 1000.1 for p in folder.result("out")["points"])
    (folder.path / "out/runs.jsonl").write_text(before)
    # The sweep repeats each point once more.
    more = [a for a in arguments if a != "--overwrite"]
    more[more.index("--repeats") + 1] = "2"
    folder.sweep(*more)
    assert len((folder.path / "out/runs.jsonl").read_text().splitlines()) == 2 * len(points)
    assert all(p["runs"] == 2 for p in folder.result("out")["points"])
    return 1


def weak(folder):
    (folder.path / "grid.json").write_text('{"dp": [1, 2, 4]}')
    folder.sweep("--grid", "grid.json", "--out", "weak", "--scaling", "weak", "--iterations", "1",
                 "--warm-up", "0", "--repeats", "1", "--machine",
                 str(pathlib.Path(__file__).parents[2] / "configs/machines/dgx_a100.json"))
    result = folder.result("weak")
    assert [p["global_batch_size"] for p in result["points"]] == [8, 16, 32]
    assert result["scaling"] == "weak" and result["predicted_for"].startswith("DGX")
    assert not any(p["loss_differs"] for p in result["points"])
    assert all(p["predicted_ms"] > 0 for p in result["points"])
    return 1


def asynchronous(folder):
    """If ranks outnumber devices, an asynchronous schedule can't be compared with a prediction: the
    sweep names it with the reason."""
    machine = json.loads((pathlib.Path(__file__).parents[2] / "configs/machines/dgx_a100.json").read_text())
    machine["devices_per_node"] = machine["nodes"] = 1
    (folder.path / "one.json").write_text(json.dumps(machine))
    text = folder.sweep("--grid", "pp=2 schedule=1f1b,pipedream_2bw", "--out", "async", "--iterations",
                        "2", "--warm-up", "1", "--repeats", "1", "--machine", "./one.json").stdout
    result = folder.result("async")
    point = next(p for p in result["points"] if p["schedule"] == "pipedream_2bw")
    assert point["replayed_ms"] is None and "compared_ms" not in point, point
    assert abs(sum(point["parts_ms"].values()) / point["step_ms"] - 1) < 1e-6, point
    (reason, points), = result["agreement"]["left_out"].items()
    assert points == [point["point"]] and "no replayed step" in reason, result["agreement"]
    assert f"left out: {point['point']}: {reason}" in text, text
    assert result["agreement"]["points"] == len(result["points"]) - 1
    return 1


def batches(folder):
    """The global batch stays, however the config gives it, and grows with weak scaling."""
    config = json.loads((folder.path / "c.json").read_text())
    config["batch"] = {"micro_batch_size": 2, "gradient_accumulation_steps": 4}
    base = (folder.path / "c.json").read_text()
    (folder.path / "c.json").write_text(json.dumps(config))
    folder.sweep("--grid", "dp=1,2 micro_batch_size=1,2", "--out", "strong", "--iterations", "1",
                 "--warm-up", "0", "--repeats", "1")
    (folder.path / "c.json").write_text(base)
    points = folder.result("strong")["points"]
    assert [p["global_batch_size"] for p in points] == [8] * 4, points
    # Losses are compared only within a dtype.
    folder.sweep("--grid", "dtype=fp32,bf16 tp=1,2", "--out", "types", "--iterations", "3",
                 "--warm-up", "0", "--repeats", "1")
    assert not any(p["loss_differs"] for p in folder.result("types")["points"])
    return 1


def as_they_stand(folder):
    """Settings of a config that layouts can't share, and points with a different amount of work."""
    base = (folder.path / "c.json").read_text()

    def sweep_of(change, grid, **more):
        config = json.loads(base)
        for section, keys in change.items():
            config.setdefault(section, {}).update(keys)
        (folder.path / "c.json").write_text(json.dumps(config))
        return folder.sweep("--grid", grid, "--out", "stands", "--overwrite", "--iterations", "1",
                            "--warm-up", "0", "--repeats", "1", **more)
    # A schedule file excludes a grid of schedules.
    text = sweep_of({"pipeline": {"schedule_file": "mine.json"}}, "schedule=1f1b,zb_h1", code=2)
    assert "schedule_file replaces it" in text.stderr, text.stderr
    # No weights are loaded, so a missing folder is no error.
    sweep_of({"checkpoint": {"load": "nowhere"}, "batch": {"micro_batch_size": "auto"}}, "dp=1,2")
    points = folder.result("stands")["points"]
    assert [p["status"] for p in points] == ["ok", "ok"], points
    assert [p["micro_batch_size"] for p in points] == [8, 4], points
    # As in `train`: if a schedule needs more micro-batches, "auto" chooses smaller ones.
    auto = {"batch": {"micro_batch_size": "auto"}}
    sweep_of(auto, "pp=2 schedule=zb_h2")
    shutil.copytree(folder.path / "stands", folder.path / "alone")
    last = folder.result("stands")["points"][-1]
    assert last["status"] == "ok" and last["micro_batches"] >= 4, last
    for grid, *scaling in (["batch.gradient_accumulation_steps=1,2"], ["dp=1,2", "--scaling", "weak"]):
        refused = folder.sweep("--grid", grid, *scaling, "--out", "refused", code=2)
        assert '"auto" needs a fixed global batch' in refused.stderr, refused.stderr
    # Other models have no efficiency relative to the base line's.
    sweep_of({}, "model.num_layers=2,4 dp=1,2")
    for point in folder.result("stands")["points"]:
        assert ("efficiency" in point) == ("num_layers=2" not in point["point"]), point
    (folder.path / "c.json").write_text(base)
    return 1


def fitted(folder):
    """Measures this machine's own file, predicts with it, and fits its constants to a sweep."""
    run = subprocess.run([folder.program, "bench", "machine", "c.json", "--grid", "tp=1,2 pp=1,2",
                          "--rounds", "1", "--iterations", "1", "--out", "m.json"],
                         cwd=folder.path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    machine = json.loads((folder.path / "m.json").read_text())
    kernels = {row[0] for row in machine["device"]["kernels"]}
    assert {"gemm nt", "gemm nn", "gemm tn", "adam", "attention_forward"} <= kernels, kernels
    # The file says that products are fifty times slower than measured, so a fit moves, even if
    # other programs use most of the machine during one of the two measurements.
    machine["efficiency"]["products"] = 0.02
    (folder.path / "m.json").write_text(json.dumps(machine))
    # A dtype that is rare on a CPU has a rate if the config asks for it.
    run = subprocess.run([folder.program, "bench", "machine", "c.json", "--grid", "tp=1", "--rounds",
                          "1", "--iterations", "1", "--set", "precision.dtype=fp16", "--out",
                          "half.json"], cwd=folder.path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert "fp16" in json.loads((folder.path / "half.json").read_text())["device"]["peak"]
    assert "fp16" not in machine["device"]["peak"]
    text = folder.sweep("--grid", "tp=1,2 pp=1,2 dp=1,2", "--out", "fit", "--iterations", "3",
                        "--warm-up", "1", "--repeats", "1", "--machine", "m.json",
                        "--fit", "fitted.json").stdout
    assert "Spearman" in text and "fitted: products" in text
    result = folder.result("fit")
    agreement = result["agreement"]
    assert agreement["points"] == len(result["points"]) == 8
    assert {p["compared"] for p in result["points"]} == {"step", "replayed step"}
    after = json.loads((folder.path / "fitted.json").read_text())["efficiency"]
    assert after == result["fit"]["after"] != result["fit"]["before"], result["fit"]

    def error(key):
        return sum(math.log(p[key] / p["compared_ms"]) ** 2 for p in result["points"])
    assert error("predicted_ms") < error("predicted_before_fit_ms")
    # The fitted file gives the predictions that the sweep prints.
    one = next(p for p in result["points"] if p["ranks"] == 2)
    sets = [word for key in one["set"] for word in ("--set", key)]
    run = subprocess.run([folder.program, "simulate", "c.json", "--machine", "./fitted.json",
                          "--format", "json", *sets], cwd=folder.path, capture_output=True,
                         text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    seconds = json.loads(run.stdout)["step_seconds"]
    assert abs(1e3 * seconds / one["predicted_ms"] - 1) < 1e-6, (seconds, one["predicted_ms"])
    return 1


def measured(folder):
    """The machine is measured between the runs, in rounds that a stopped sweep continues."""
    sweep = ("--grid", "tp=1,2", "--out", "measured", "--iterations", "1", "--warm-up", "0",
             "--measure", "own.json", "--repeats")
    folder.sweep(*sweep, "1")
    first = (folder.path / "measured/machines/1.json").read_text()
    text = folder.sweep(*sweep, "2").stdout
    assert "Spearman" in text
    assert (folder.path / "measured/machines/1.json").read_text() == first
    rounds = [json.loads(first), json.loads((folder.path / "measured/machines/2.json").read_text())]
    own = json.loads((folder.path / "own.json").read_text())

    def times(machine):
        return {tuple(row[:-1]): row[-1] for row in machine["device"]["kernels"]}
    assert times(own).keys() == times(rounds[0]).keys() == times(rounds[1]).keys()
    for kernel, seconds in times(own).items():
        low, high = sorted(times(one)[kernel] for one in rounds)
        assert low <= seconds <= high, (kernel, low, seconds, high)
    predicted = {p["point"]: p["predicted_ms"] for p in folder.result("measured")["points"]}
    assert len(predicted) == 2 and all(ms > 0 for ms in predicted.values()), predicted
    # A sweep that starts over measures again, once.
    runs = (folder.path / "measured/runs.jsonl").read_text()
    folder.sweep(*sweep, "1", "--overwrite")
    assert (folder.path / "measured/machines/1.json").read_text() != first
    again = (folder.path / "measured/runs.jsonl").read_text().splitlines()
    assert len(again) == len(runs.splitlines()) // 2 == 2, again
    run = folder.sweep("--grid", "threads=1,2", "--out", "no", "--measure", "m2.json", code=2)
    assert "runtime.threads_per_rank" in run.stderr and not (folder.path / "no").exists()
    return 1


def broken(folder):
    """Tests half a line, a folder of another program, a second sweep at the same time, and repeated
    points."""
    grid = ("--grid", "dp=1,2", "--out", "cut", "--iterations", "1", "--warm-up", "0", "--repeats")
    folder.sweep(*grid, "1")
    runs = folder.path / "cut/runs.jsonl"
    runs.write_text(runs.read_text()[:-40])
    folder.sweep(*grid, "1")
    assert "[1/" not in folder.sweep(*grid, "1").stdout
    folder.sweep(*grid, "2")
    assert all(p["runs"] == 2 for p in folder.result("cut")["points"])
    folder.sweep(*grid, "1")
    assert all(p["runs"] == 1 for p in folder.result("cut")["points"])
    own = folder.path / "own"
    own.mkdir()
    (own / "settings.json").write_text('{"mine": 1}')
    for more in ((), ("--overwrite",)):
        run = folder.sweep("--grid", "dp=1", "--out", "own", *more, code=2)
        assert "that no sweep wrote" in run.stderr and (own / "settings.json").read_text() == '{"mine": 1}'
    with (folder.path / "cut/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another sweep is running" in folder.sweep(*grid, "1", code=2).stderr
    # The launcher fails first and works later.
    mpi = ("--grid", "transport=mpi dp=1,2", "--out", "again", "--iterations", "1", "--warm-up", "0",
           "--repeats", "1", "--mpirun")
    folder.sweep(*mpi, "false")
    folder.sweep(*mpi, "mpirun --oversubscribe")
    assert [p["status"] for p in folder.result("again")["points"]].count("failed") == 2
    folder.sweep(*mpi, "mpirun --oversubscribe", "--retry")
    points = folder.result("again")["points"]
    assert all(p["status"] == "ok" for p in points), points
    # The page is drawn whatever characters a label has.
    odd = "<!--<script>.txt"
    (folder.path / odd).write_text((folder.path / "text.txt").read_text())
    (folder.path / "odd.json").write_text(
        json.dumps({"dp": [1, 2], "data.train": [[{"path": odd}]]}))
    folder.sweep("--grid", "odd.json", "--out", "odd", "--iterations", "1", "--warm-up", "0",
                 "--repeats", "1")
    dom = chromium("--dump-dom", (folder.path / "odd/report.html").as_uri())
    assert 'data-ready="yes"' in dom
    return 1


def failures(folder):
    """Tests a launcher that fails and a launcher that hangs."""
    hang = folder.path / "hang"
    hang.write_text("#!/bin/sh\nsleep 100\n")
    hang.chmod(0o755)
    for launcher, status in (("false", "failed"), (str(hang), "timeout")):
        folder.sweep("--grid", "transport=local,mpi dp=1,2", "--out", status, "--iterations", "1",
                     "--warm-up", "0", "--repeats", "2", "--mpirun", launcher, "--timeout", "3")
        points = folder.result(status)["points"]
        bad = [p for p in points if "mpi" in p["point"]]
        assert len(bad) == 2 and all(p["status"] == status and p["reason"] for p in bad), bad
        assert sum(p["status"] == "ok" for p in points) == 2
        assert len((folder.path / status / "runs.jsonl").read_text().splitlines()) == 2 * 2 + 2
    return 1


def refusals(folder):
    for grid, expected in (
            ("shedule=1f1b", "grid: shedule: no such key; did you mean schedule?"),
            ("tp=", "grid: tp: has no value"),
            ("tp=1,1", "grid: tp: has the value 1 twice"),
            ("tp=1 tp=2", "grid: tp: is given twice"),
            ("", '--grid: needs a value, not ""'),
            (" ", "--grid: has no key"),
            ("tensor_parallel_size=2", "here it is parallel.tensor_model_parallel_size"),
            ("tp", "grid: tp: needs KEY=VALUE"),
            ("schedule=1f1b,zigzag", "grid: schedule: config: /pipeline/schedule: \"zigzag\""),
            ("tp=3,5", "/parallel/tensor_model_parallel_size: 3 does not divide"),
            ("model.num_layer=2", "/model/num_layer"),
            ("absent.json", "absent.json")):
        run = folder.sweep("--grid", grid, "--out", "refused", code=2)
        assert expected in run.stderr, f"{grid}: {run.stderr}"
        assert not (folder.path / "refused").exists(), grid
    run = folder.sweep("--grid", "tp=1,2", "--out", "out", code=2)
    assert "holds another sweep" in run.stderr
    run = folder.sweep("--grid", "tp=1,2", "--out", "odd\udcff", code=2)
    assert "--out" in run.stderr and "needs a path in UTF-8" in run.stderr, run.stderr
    run = folder.sweep("--grid", "tp=1,2", "--out", ".", code=2)
    assert "that no sweep wrote" in run.stderr
    return 1


def ineffective(folder):
    """Tests a key without effect in some layouts, texts by a pattern, and equal layouts."""
    (folder.path / "texts").mkdir()
    (folder.path / "texts/a.txt").write_text("In the beginning was the word. " * 200)
    config = CONFIG | {"parallel": {"sequence_parallel": True}}
    config["data"] = CONFIG["data"] | {"train": [{"path": "texts/*.txt"}]}
    base = (folder.path / "c.json").read_text()
    (folder.path / "c.json").write_text(json.dumps(config))
    arguments = ("--grid", "tp=1,2 pp=1,2", "--out", "ineffective", "--iterations", "1", "--warm-up", "0",
                 "--repeats", "1")
    dry = folder.sweep(*arguments, "--dry-run", "--format", "json")
    listed = {p["point"]: p for p in json.loads(dry.stdout)["points"]}
    note = "config: /parallel/sequence_parallel: true has no effect"
    assert dry.stderr.count(note) == 1, dry.stderr
    assert all(p["notes"][0].startswith(note) == (name[:4] == "tp=1")
               for name, p in listed.items() if p["notes"]), listed
    folder.sweep(*arguments)
    points = folder.result("ineffective")["points"]
    assert len(points) == 4 and all(p["status"] == "ok" for p in points), points
    assert max(p["loss"] for p in points) - min(p["loss"] for p in points) < 1e-5
    text = folder.sweep("--grid", "tp=1 sp=true,false pp=1,2", "--out", "same", "--dry-run").stdout
    assert "tp=1 sp=false pp=2: runs as tp=1 sp=true pp=2" in text, text
    assert text.count(" a rank\n") == 2, text
    missing = folder.sweep("--grid", "tp=1", "--set", "data.train.0.path=texts/*.jsonl", "--out",
                           "none", code=2)
    assert "config: /data/train/0/path: texts/*.jsonl: no file matches" in missing.stderr
    (folder.path / "c.json").write_text(base)
    return 1


def for_simulate(folder):
    """`simulate` uses the kernels that `bench machine` measured for a config, also with more ranks
    than processors."""
    machine = folder.path / "this.json"
    for more in (["parallel.pipeline_model_parallel_size=2", "pipeline.schedule=zbv",
                  "model.hidden_dropout=0.1", "activation_checkpointing.granularity=full"],
                 ["parallel.data_parallel_size=2", "parallel.tensor_model_parallel_size=2",
                  "parallel.pipeline_model_parallel_size=4", "parallel.sequence_parallel=true",
                  "pipeline.schedule=pipedream_2bw", "precision.dtype=fp16",
                  "optimizer.type=Adafactor"]):
        machine.unlink(missing_ok=True)
        sets = [word for one in more for word in ("--set", one)]

        def program(*words):
            run = subprocess.run([folder.program, *words, *sets], cwd=folder.path, text=True,
                                 capture_output=True, timeout=300)
            assert run.returncode == 0, f"{words} {more}: {run.stderr}"
            return run.stdout
        program("bench", "machine", "c.json", "--rounds", "1", "--iterations", "1", "--out", machine)
        step = json.loads(program("simulate", "c.json", "--machine", machine, "--format", "json"))
        file = json.loads(machine.read_text())
        crowded = step["world_size"] > file["devices_per_node"] * file["nodes"]
        assert ("shared_devices" in step) == crowded, step
        if crowded:
            assert step["replayed"] and step["shared_step_seconds"] >= step["step_seconds"] > 0, step
    return 1


def report(folder):
    html = (folder.path / "out/report.html").read_text()
    looks = [Look("wide", html, "figure", FIGURES, "1260,6000"), Look("narrow", html, "figure", FIGURES, "390,6000", "dark"),
             Look("tried", html, "figure", FIGURES, "390,6000", "dark", TRY, picture=False)]
    # The sweep has a single pipeline layout next to the base line: no figure of the bubble.
    few = {name: count for name, count in FIGURES.items() if name not in ("bubble", "timeline-1-0", "timeline-1-1")}
    alone = (folder.path / "alone/report.html").read_text()
    looks.append(Look("alone", alone, "figure", few, "390,6000", "light", picture=False))
    measured = look_at(folder.path, looks)
    for name, one in measured.items():
        assert all(count != 1 for _, count in one["dots"]), f"{name}: {one['dots']}"
    tried = measured["tried"]["tried"]
    assert tried["more"] and tried["sticks"] == 0 and measured["tried"]["beyond"][0][1] > 0, tried
    assert tried["sorted"] == "ascending" and tried["focus"], tried
    assert tried["bars"] == tried["steps"] and len(tried["bars"]) == len(folder.result("out")["points"]), tried
    assert tried["idle"] == "rgb(42, 45, 49)", tried  # dark, as the page is
    page = html.split("<script")[0]
    assert "LOSS" not in page and "The loss of" not in page
    return sum(len(one.wanted) for one in looks)


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if not shutil.which("chromium"):
        sys.exit("sweep_test: chromium is not installed (scripts/packages_browser.txt)")
    with tempfile.TemporaryDirectory() as name:
        folder, passed = Folder(program, pathlib.Path(name)), 0
        parts = [layouts, weak, asynchronous, batches, as_they_stand, fitted, measured, broken, failures,
                 refusals, ineffective, for_simulate, report]
        if "--full" not in sys.argv:
            parts = [part for part in parts if part not in (batches, fitted, measured)]
        for part in parts:
            passed += part(folder)
        if "--keep" in sys.argv:  # the report, for a person
            shutil.copy(folder.path / "out/report.html", sys.argv[sys.argv.index("--keep") + 1])
    print(f"{passed} passed")


if __name__ == "__main__":
    main()
