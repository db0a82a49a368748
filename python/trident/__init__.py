"""Trident from Python: thin calls of the program, for notebooks.

    import trident
    trident.plan("my.json")["ranks"]                       # memory, FLOPs, bytes sent
    trident.schedule("zbv", stages=4, microbatches=8)      # lists, bubble
    run = trident.run("my.json", set={"training.train_iters": 100})
    run.metrics()[-1]["loss"]

A config is the path of a file, or a dict of the same keys. `set` overrides keys: {"a.b": value}. What
the program refuses, or fails at, is a TridentError with its message and exit code. The program is the
one that came with this package, unless TRIDENT_PROGRAM names another. Ctrl-C while a run goes on lets
the program save and stop, and is raised after that; `trident.Run("runs/mine")` then has what there is.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

__all__ = ["Run", "TridentError", "metrics", "plan", "program", "report", "run", "schedule"]
_HERE = pathlib.Path(__file__).parent
# What a checkout has none of.
__version__ = (_HERE / "VERSION").read_text().strip() if (_HERE / "VERSION").is_file() else "unknown"


class TridentError(Exception):
    """The program's message; `code` 2: the request is wrong, 3: a failure while running."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def program():
    """The path of the program."""
    own = os.environ.get("TRIDENT_PROGRAM")
    return own or str(_HERE / "bin" / "trident")


def _start(arguments):
    # In a session of its own: an interrupt is handed on once, whoever else has had it.
    try:
        return subprocess.Popen([program(), *map(str, arguments)], encoding="utf-8", errors="replace",
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise TridentError(f"{program()}: can't be started: {error.strerror}", 2) from error


def _end(process):
    """What the program has written, once it has ended, and whether it was interrupted."""
    interrupted = False
    while True:
        try:
            return (*process.communicate(), interrupted)
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)
        except BaseException:
            process.terminate()
            process.wait()
            raise


def _call(arguments):
    process = _start(arguments)
    out, err, interrupted = _end(process)
    if interrupted:
        raise KeyboardInterrupt
    if process.returncode:
        raise TridentError(err.strip() or f"exit code {process.returncode}", process.returncode)
    return out


def _plain(value):
    """Of a path its name, of a number of NumPy's a number."""
    return value.item() if hasattr(value, "item") else os.fspath(value)


def _set(values):
    words = []
    for key, value in (values or {}).items():
        words += ["--set", f"{key}={json.dumps(value, default=_plain)}"]
    return words


@contextlib.contextmanager
def _file(config):
    """The path of a config. A dict gets a file of its own, in the working directory: paths in a config
    are from there."""
    if not isinstance(config, dict):
        yield os.path.join(os.curdir, config)  # a name that begins with - is no option
        return
    handle, path = tempfile.mkstemp(prefix="config-", suffix=".json", dir=os.curdir)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(config, file, default=_plain)
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


def schedule(kind=None, **options):
    """A pipeline schedule: its lists, its bubble by formula and simulation. Options are the command's,
    such as stages=4, microbatches=8, chunks=2, times="F=1,B=2,W=1", measure=True, or file="own.csv"
    in place of a kind."""
    words = [] if kind is None else ["--kind", kind]
    for name, value in options.items():
        if value is True:
            words.append("--" + name.replace("_", "-"))
        elif value is not None and value is not False:
            words += ["--" + name.replace("_", "-"), value]
    return json.loads(_call(["schedule", *words, "--format", "json"]))


def metrics(directory):
    """The lines of a run's metrics.jsonl, whole ones only, so that a run that goes on can be read."""
    with open(pathlib.Path(directory) / "metrics.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def report(directory, *others, out=None):
    """Draws runs as one page and gives its path (`trident report`)."""
    if out is None:
        out = "report.html" if others else pathlib.Path(directory) / "report.html"
    _call(["report", directory, *others, "--out", out])
    return pathlib.Path(out)


class Run:
    """A run's folder: `directory` is its logging.dir, `result` what the program told at its end, None
    of a run that goes on or that somebody else has started."""

    def __init__(self, directory, result=None):
        self.directory, self.result = pathlib.Path(directory).absolute(), result

    def __repr__(self):
        told = f": {self.result['iterations']} iterations, loss {self.result['loss']}" if self.result else ""
        return f"<trident.Run {self.directory}{told}>"

    def metrics(self):
        return metrics(self.directory)

    def config(self):
        return json.loads((self.directory / "config.json").read_text(encoding="utf-8"))

    def report(self):
        return report(self.directory)


def _own_directory(config, values):
    """A new folder for the run of a dict that names none; else None."""
    named = isinstance(config, dict) and ((config.get("logging") or {}).get("dir") or "extends" in config)
    if not isinstance(config, dict) or named or "logging.dir" in values or "logging" in values:
        return None
    os.makedirs("runs", exist_ok=True)
    directory = tempfile.mkdtemp(prefix="run-", dir="runs")
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(directory, 0o777 & ~umask)
    values["logging.dir"] = directory
    values["logging.overwrite"] = True  # the folder is there already
    return directory


def run(config, *, set=None, ranks=None):
    """Trains, waits for the end, and gives a Run. A dict should have logging.dir; else its run goes into
    runs/ and a name that is drawn. Starts one process: ranks are its threads."""
    values = dict(set or {})
    own = _own_directory(config, values)
    with _file(config) as path:
        more = [] if ranks is None else ["--ranks", ranks]
        process = _start(["train", path, "--format", "json", *more, *_set(values)])
        out, err, interrupted = _end(process)
    if own is not None and not os.listdir(own):
        os.rmdir(own)
    if interrupted:
        print(err, end="", file=sys.stderr)
        raise KeyboardInterrupt
    if process.returncode not in (0, 130) or not out.strip():
        # Of an MPI job rank 0 alone tells; of a run that was stopped before its begin none does.
        raise TridentError(err.strip() or f"exit code {process.returncode}, and nothing told",
                           process.returncode)
    if err:
        print(err, end="", file=sys.stderr)
    result = json.loads(out)
    return Run(result["logging_dir"], result)
