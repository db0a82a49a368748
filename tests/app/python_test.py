#!/usr/bin/env python3
"""Runs the program through the Python package, as a notebook does.

    python3 tests/app/python_test.py [build/release/trident]

Without an argument it tests the installed package with the program in it.
Prints `N passed` at the end, or an error with its place.
"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

if len(sys.argv) > 1:
    os.environ["TRIDENT_PROGRAM"] = os.path.abspath(sys.argv[1])
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import trident

CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 2, "hidden_size": 16, "num_attention_heads": 2},
    "batch": {"global_batch_size": 4, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
    "training": {"train_iters": 5, "eval_interval": 0},
    "logging": {"dir": "runs/mine", "tensorboard": False}}


def refused(call, code, text):
    try:
        call()
    except trident.TridentError as error:
        assert error.code == code and text in str(error), (error.code, str(error))
        return
    raise AssertionError(f"not refused: {text}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("text.txt").write_text("In the beginning there was a text. " * 100)
        pathlib.Path("c.json").write_text(json.dumps(CONFIG))

        plan = trident.plan("c.json", set={"parallel.pipeline_model_parallel_size": 2})
        assert plan["world_size"] == 2 and len(plan["ranks"]) == 2, plan
        assert trident.plan(CONFIG) == trident.plan("c.json")

        schedule = trident.schedule("zbv", stages=2, microbatches=4, times="F=1,B=2,W=1")
        assert schedule["kind"] == "zbv" and len(schedule["ranks"]) == 2, schedule
        refused(lambda: trident.schedule("zvb", stages=2, microbatches=4), 2, "zbv")
        pathlib.Path("own.csv").write_text("0F0,0F1,0B0,0B1\n")
        assert trident.schedule(file="own.csv")["ranks"], "a list of one's own"

        run = trident.run(CONFIG, set={"optimizer.params.lr": 0.01})
        assert run.result["iterations"] == 5 and run.directory == pathlib.Path("runs/mine").absolute(), run
        lines = run.metrics()
        assert [line["iteration"] for line in lines] == [1, 2, 3, 4, 5]
        assert lines[-1]["loss"] == run.result["loss"] < lines[0]["loss"]
        assert run.config()["optimizer"]["params"]["lr"] == 0.01
        assert "loss" in repr(run) and run.report().is_file()
        refused(lambda: trident.run(CONFIG), 2, "metrics.jsonl")
        refused(lambda: trident.plan({"model": {}}), 2, "/model/num_layers: is missing")
        before = set(os.listdir("runs"))
        refused(lambda: trident.run({"model": {}}), 2, "/model/num_layers: is missing")
        assert not list(pathlib.Path().glob("config-*")), "files of dicts stay"
        assert set(os.listdir("runs")) == before, "a refused run's folder stays"
        refused(lambda: trident.plan("-c.json"), 2, "-c.json: can't open")

        shown = io.StringIO()
        with contextlib.redirect_stderr(shown):
            trained = trident.run(CONFIG, set={"logging.dir": "runs/trained", "logging.log_interval": 1,
                                            "checkpoint.save": "weights"})
            trident.run(CONFIG, set={"logging.dir": "runs/still"}, progress=False)
        assert len([line for line in shown.getvalue().splitlines() if line.startswith("5/5")]) == 1, shown.getvalue()

        more = trident.generate(trained, "In", tokens=3, temperature=0)
        assert more["text"].startswith("In") and len(more["tokens"]) == 5, more
        two = trident.generate("weights", ids=[73, 110], tokens=2, samples=2, ignore_eos=True)["texts"]
        assert [len(one["tokens"]) for one in two] == [4, 4], two
        loss = trident.eval("weights", "text.txt")["results"][0]["loss"]
        assert 0 < loss < 6 and trident.eval("weights", ["text.txt", "text.txt"])["results"][1]["loss"] == loss
        assert (trident.export(trained, "copy") / "model.safetensors").is_file()
        refused(lambda: trident.export(trained, "copy"), 2, "copy")
        machine = {"set": {"precision.dtype": "bf16"}}
        assert trident.simulate("c.json", "h200", **machine)["step_seconds"] > 0
        assert trident.search(CONFIG, "dgx_h100", ranks=[1, 2], plans=1, **machine)["plans"]
        grid = trident.sweep(CONFIG, {"tp": [1, 2]}, out="swept", iterations=1, warm_up=0, repeats=1,
                             set={"logging": {}}, progress=False)
        assert len(grid["points"]) == 2, grid
        assert trident.train_tokenizer("text.txt", vocab_size=260, progress=False)["merges"] == 3
        if importlib.util.find_spec("pandas"):
            frame = trained.dataframe()
            assert list(frame.index) == [1, 2, 3, 4, 5] and frame["loss"].iloc[-1] == trained.result["loss"]
            assert "peak_memory.total" in frame, list(frame)
        else:
            refused(trained.dataframe, 2, "needs pandas")

        # Without TRIDENT_PROGRAM the package uses its own program, or else the one in PATH.
        named, path = os.environ.pop("TRIDENT_PROGRAM", None), os.environ["PATH"]
        if named:
            refused(trident.program, 2, "none is in PATH") if not shutil.which("trident") else None
            os.mkdir("bin")
            os.symlink(named, "bin/trident")
            os.environ["PATH"] = os.path.abspath("bin") + os.pathsep + path
            assert trident.plan("c.json")["world_size"] == 1
            os.environ["TRIDENT_PROGRAM"], os.environ["PATH"] = named, path

        # Only Python gets the interrupt: the run stops, and the caller gets the exception.
        def interrupt():
            while not os.path.exists("runs/long/metrics.jsonl") or not trident.metrics("runs/long"):
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
        threading.Thread(target=interrupt).start()
        try:
            trident.run(CONFIG, set={"logging.dir": pathlib.Path("runs/long"), "training.train_iters": 10**6})
        except KeyboardInterrupt:
            assert 0 < len(trident.Run("runs/long").metrics()) < 10**6
        else:
            raise AssertionError("an interrupt is swallowed")

        unnamed = {key: value for key, value in CONFIG.items() if key != "logging"}
        drawn = trident.run(unnamed, set={"logging.tensorboard": False}).directory
        assert drawn.parent.name == "runs" and drawn.name.startswith("run-"), drawn

        # An unfinished line doesn't count yet.
        with open("runs/mine/metrics.jsonl", "a") as file:
            file.write('{"iteration": 6, "lo')
        assert len(trident.metrics("runs/mine")) == 5
        two = trident.run(CONFIG, set={"logging.dir": "runs/two", "training.seed": 5})
        page = trident.report(run.directory, two.directory, out="both.html")
        assert "2 Trident runs" in page.read_text()
    print("1 passed")


if __name__ == "__main__":
    main()
