#!/usr/bin/env python3
"""Tests the output of `trident train` on terminals of several widths, as tmux records them.

    python3 tests/app/terminal_test.py build/release/trident

No line may be longer than the terminal is wide. The newest iteration is redrawn in its place. NO_COLOR
and pipes get no colour codes. Prints `N passed` at the end, or an error with its place.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
CONFIG = {
    "model": {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2},
    "batch": {"global_batch_size": 2, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "split": "8,2,0", "sequence_length": 16},
    "training": {"train_iters": 400, "eval_interval": 200, "eval_iters": 1},
    "checkpoint": {"save": "weights"},
    "logging": {"dir": "run", "overwrite": True}}


class Tmux:
    """A terminal of its own, with one command in it."""

    def __init__(self, folder, columns, command):
        self.home = tempfile.TemporaryDirectory()
        self("new-session", "-d", "-x", str(columns), "-y", "50", "-c", str(folder), command)

    def __call__(self, *arguments):
        return subprocess.run(
            ["tmux", "-S", self.home.name + "/socket", "-f", "/dev/null", *arguments],
            capture_output=True, text=True, check=True).stdout

    def shown(self, *more):
        return self("capture-pane", "-p", "-S", "-", *more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if pathlib.Path(self.home.name, "socket").exists():  # it disappears with its last command
            subprocess.run(["tmux", "-S", self.home.name + "/socket", "kill-server"],
                           capture_output=True)
        self.home.cleanup()


def recorded(folder, columns, more=(), environment=(), joined=False):
    """Returns the lines of a complete run on a terminal of this width, with their colours, and its
    exit code."""
    ended = folder / "ended"
    ended.unlink(missing_ok=True)
    command = " ".join(map(shlex.quote, ["env", *environment, PROGRAM, "train", "c.json", *more]))
    with Tmux(folder, columns, f"{command}; echo $? > ended; sleep 1000") as tmux:
        limit = time.monotonic() + 120
        while not ended.exists() or not ended.read_text().strip():
            assert time.monotonic() < limit, tmux.shown()
            time.sleep(0.1)
        time.sleep(0.3)
        assert ended.read_text().strip() == "0", tmux.shown()
        return (tmux.shown().rstrip().split("\n"), tmux.shown("-J").rstrip().split("\n"),
                tmux.shown("-e"))


def check_width(folder, columns):
    plain, whole, coloured = recorded(folder, columns)
    own = "\n".join(whole).replace(re.search("\nsample:\n(.*?)\nspeed ", "\n".join(whole),
                                             re.S).group(1), "")  # without the model's text
    for line in own.split("\n"):
        assert len(line) <= columns, (columns, line)
    progress = [line for line in plain if "/400" in line]
    assert 2 <= len(progress) <= 8, progress  # both evaluations, and four a minute
    for line in progress:
        assert "loss" in line and "tokens/s" in line, line
        # The line shows the parts that fit the width.
        assert ("[#" in line) == (columns >= 200), line
        assert ("grad norm" in line) == (columns >= 200), line
        assert (re.search(r"\d\d:\d\d:\d\d", line) is not None) == (columns >= 200), line
    assert "400/400" in progress[-1], progress
    plot = [line for line in plain if re.match(r" *-?\d+\.\d+ \|", line)]
    assert len(plot) == 12, plain
    assert ("\033[36m" in coloured) == (columns >= 200)
    print(f"ok {columns} columns")


def check_no_colour(folder):
    *_, coloured = recorded(folder, 100, environment=["NO_COLOR=1"])
    assert "\033[36m" not in coloured
    *_, coloured = recorded(folder, 100, environment=["TERM=dumb"])
    assert "\033" not in coloured
    print("ok no colour")


def check_pipe(folder):
    run = subprocess.run([PROGRAM, "train", "c.json", "--set", "logging.log_interval=100"],
                         cwd=folder, capture_output=True, text=True, check=True)
    assert "\033" not in run.stdout and "\r" not in run.stdout
    progress = re.findall(r"^(\d+)/400 ", run.stdout, re.M)
    assert progress == ["1", "100", "200", "300", "400"], run.stdout
    print("ok pipe")


def check_long_run(folder):
    """For three seconds a run of a million iterations shows only the line that is redrawn."""
    command = " ".join(map(shlex.quote, [
        PROGRAM, "train", "c.json", "--set", "training.train_iters=1000000", "--set",
        "training.eval_interval=0", "--set", "checkpoint.save=null"]))
    with Tmux(folder, 80, command) as tmux:
        limit = time.monotonic() + 60
        while "/1000000" not in tmux.shown():
            assert time.monotonic() < limit
            time.sleep(0.1)
        time.sleep(3)
        shown = tmux.shown()
        assert shown.count("/1000000") == 1, shown
        tmux("send-keys", "C-c")
        time.sleep(0.5)
    print("ok long run")


def check_schedule(folder):
    command = " ".join(map(shlex.quote, [PROGRAM, "schedule", "--kind", "1f1b", "--stages", "4",
                                         "--microbatches", "12"]))
    with Tmux(folder, 72, f"{command}; sleep 1000") as tmux:
        limit = time.monotonic() + 60
        while "makespan" not in tmux.shown():
            assert time.monotonic() < limit
            time.sleep(0.1)
        rows = [line for line in tmux.shown().split("\n") if line.startswith("rank ")]
        assert len(rows) == 4 and all(len(r) <= 72 and r.endswith("|") for r in rows), rows
    print("ok schedule")


def main():
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        (folder / "c.json").write_text(json.dumps(CONFIG))
        (folder / "text.txt").write_text("In the beginning there was a text of some length. " * 200)
        for columns in (60, 80, 200):
            check_width(folder, columns)
        check_no_colour(folder)
        check_pipe(folder)
        check_long_run(folder)
        check_schedule(folder)
    print("7 passed")


if __name__ == "__main__":
    main()
