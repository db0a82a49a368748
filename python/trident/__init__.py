"""Trident from Python: thin calls of the program, for notebooks.

    import trident
    trident.plan("my.json")["ranks"]                       # memory, FLOPs, bytes sent
    trident.schedule("zbv", stages=4, microbatches=8)      # lists, bubble
    run = trident.run("my.json", set={"training.train_iters": 100})
    run.metrics()[-1]["loss"]

A config is the path of a file, or a dict of the same keys. `set` overrides keys: {"a.b": value}. What
the program refuses, or fails at, is a TridentError with its message and exit code. The program is the
one that came with this package, unless TRIDENT_PROGRAM names another.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

__all__ = ["Run", "TridentError", "metrics", "plan", "program", "report", "run", "schedule"]


class TridentError(Exception):
    """The program's message; `code` 2: the request is wrong, 3: a failure while running."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def program():
    """The path of the program."""
    own = os.environ.get("TRIDENT_PROGRAM")
    return own or str(pathlib.Path(__file__).parent / "bin" / "trident")


def _call(arguments, cwd=None):
    done = subprocess.run([program(), *map(str, arguments)], cwd=cwd, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise TridentError(done.stderr.strip() or f"exit code {done.returncode}", done.returncode)
    return done.stdout


def _set(values):
    words = []
    for key, value in (values or {}).items():
        words += ["--set", f"{key}={json.dumps(value)}"]
    return words


@contextlib.contextmanager
def _file(config):
    """The path of a config. A dict gets a file of its own, in the working directory: paths in a config
    are from there."""
    if not isinstance(config, dict):
        yield str(config)
        return
    handle, path = tempfile.mkstemp(prefix="config-", suffix=".json", dir=os.curdir)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(config, file)
        yield path
    finally:
        os.unlink(path)


def _made(folder):
    os.makedirs(folder, exist_ok=True)
    return folder


def plan(config, *, set=None, ranks=None):
    """What a run will take, rank by rank (`trident plan --format json`)."""
    with _file(config) as path:
        more = [] if ranks is None else ["--ranks", ranks]
        return json.loads(_call(["plan", path, "--format", "json", *more, *_set(set)]))


def schedule(kind, *, stages, microbatches, **options):
    """A pipeline schedule: its lists, its bubble by formula and simulation. Further options are the
    command's, such as chunks=2, times="F=1,B=2,W=1", measure=True."""
    words = []
    for name, value in options.items():
        if value is True:
            words.append("--" + name.replace("_", "-"))
        elif value is not None and value is not False:
            words += ["--" + name.replace("_", "-"), value]
    return json.loads(_call(["schedule", "--kind", kind, "--stages", stages, "--microbatches",
                             microbatches, "--format", "json", *words]))


def metrics(directory):
    """The lines of a run's metrics.jsonl, whole ones only, so that a run that goes on can be read."""
    with open(pathlib.Path(directory) / "metrics.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def report(*directories, out=None):
    """Draws runs as one page and gives its path (`trident report`)."""
    if out is None:
        first = pathlib.Path(directories[0])
        out = first / "report.html" if len(directories) == 1 else "report.html"
    _call(["report", *directories, "--out", out])
    return pathlib.Path(out)


class Run:
    """A run that has ended: `result` is what the program told, `directory` its logging.dir."""

    def __init__(self, directory, result):
        self.directory, self.result = pathlib.Path(directory), result

    def __repr__(self):
        return f"<trident.Run {self.directory}: {self.result['iterations']} iterations, loss {self.result['loss']}>"

    def metrics(self):
        return metrics(self.directory)

    def config(self):
        return json.loads((self.directory / "config.json").read_text(encoding="utf-8"))

    def report(self):
        return report(self.directory)


def run(config, *, set=None, ranks=None):
    """Trains, waits for the end, and gives a Run. Ctrl-C lets the program save and stop. A dict should
    have logging.dir; else its run goes into runs/ and a name that is drawn."""
    values = dict(set or {})
    if isinstance(config, dict) and "logging.dir" not in values and not config.get("logging", {}).get("dir"):
        values["logging.dir"] = tempfile.mkdtemp(prefix="run-", dir=_made("runs"))
        values["logging.overwrite"] = True  # the folder is there already
    set = values
    with _file(config) as path:
        more = [] if ranks is None else ["--ranks", ranks]
        words = [program(), "train", path, "--format", "json", *map(str, more), *_set(set)]
        process = subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while True:
            try:
                out, err = process.communicate()
                break
            except KeyboardInterrupt:
                pass  # the program has had it, too
        if process.returncode not in (0, 130):
            raise TridentError(err.strip() or f"exit code {process.returncode}", process.returncode)
        result = json.loads(out)
    if err:
        print(err, end="", file=sys.stderr)
    return Run(result["logging_dir"], result)
