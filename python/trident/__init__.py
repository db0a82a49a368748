"""Trident from Python: functions that call the program, for notebooks.

    import trident
    trident.plan("my.json")["ranks"]                       # memory, FLOPs, bytes sent
    trident.schedule("zbv", stages=4, microbatches=8)      # lists, bubble
    run = trident.run("my.json", set={"training.train_iters": 100})
    run.metrics()[-1]["loss"], run.dataframe()             # with pandas
    trident.generate(run, "In the beginning", tokens=50)["text"]
    trident.eval(run)["results"]
    trident.search("my.json", "dgx_h100", ranks=64)["plans"]

A config is the path of a file, or a dict of the same keys. `set` overrides keys: {"a.b": value}. Other
options are the command's, such as top_k=50, or True for a flag. If
the program refuses a request or fails, a TridentError has its message and exit code. The program is the
one that TRIDENT_PROGRAM names, else that of this package, else the first in PATH. Ctrl-C during a run lets
the program save and stop, and is raised after that; `trident.Run("runs/mine")` then reads its folder.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

__all__ = ["Run", "TridentError", "dataframe", "eval", "export", "generate", "metrics", "plan", "program",
           "report", "run", "schedule", "search", "simulate", "sweep", "train_tokenizer"]
_HERE = pathlib.Path(__file__).parent
# A checkout has no VERSION file.
__version__ = (_HERE / "VERSION").read_text().strip() if (_HERE / "VERSION").is_file() else "unknown"


class TridentError(Exception):
    """The program's message; `code` 2: the request is wrong, 3: a failure while running."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def program():
    """The path of the program."""
    own = _HERE / "bin" / "trident"
    named = os.environ.get("TRIDENT_PROGRAM") or (own.is_file() and str(own)) or shutil.which("trident")
    # The `trident` in PATH may be the script that calls this function.
    if not named or os.path.realpath(named) == os.path.realpath(sys.argv[0]):
        raise TridentError(f"there is no program: {own} isn't there, and none is in PATH; name it in "
                           "TRIDENT_PROGRAM", 2)
    return named


def _start(arguments):
    # The program runs in its own session, so that it gets an interrupt exactly once.
    try:
        return subprocess.Popen([program(), *map(str, arguments)], encoding="utf-8", errors="replace",
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                start_new_session=True)
    except OSError as error:
        raise TridentError(f"{program()}: can't be started: {error.strerror}", 2) from error


def _end(process, shows=False):
    """Waits for the program's end. Returns its output and whether it was interrupted. With `shows` its
    lines on standard error are printed as they come."""
    out, err, interrupted = [], [], False
    reader = threading.Thread(target=lambda: out.append(process.stdout.read()), daemon=True)
    reader.start()
    while True:
        try:
            for line in process.stderr:
                err.append(line)
                if shows:
                    print(line, end="", file=sys.stderr, flush=True)
            process.wait()
            reader.join()
            process.stdout.close()
            process.stderr.close()
            return "".join(out), "".join(err), interrupted
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)
        except BaseException:
            process.terminate()
            process.wait()
            raise


def _call(arguments, shows=False):
    process = _start(arguments)
    out, err, interrupted = _end(process, shows)
    if interrupted:
        raise KeyboardInterrupt
    if process.returncode:
        raise TridentError(err.strip() or f"exit code {process.returncode}", process.returncode)
    return out


def _json(*arguments, shows=False):
    return json.loads(_call([*arguments, "--format", "json"], shows))


def _options(options):
    """The command's options by their names. A list gives an option several times."""
    words = []
    for name, value in options.items():
        name = "--" + name.replace("_", "-")
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            values = value if isinstance(value, (list, tuple)) else [value]
            words += [f"{name}={one}" for one in values]
    return words


def _plain(value):
    """The name of a path, and the plain number of a NumPy number."""
    return value.item() if hasattr(value, "item") else os.fspath(value)


def _set(values):
    words = []
    for key, value in (values or {}).items():
        words += ["--set", f"{key}={json.dumps(value, default=_plain)}"]
    return words


@contextlib.contextmanager
def _file(config):
    """The path of a config. A dict is written to a file in the working directory, as paths in a config
    are relative to it."""
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
    """The memory, FLOPs and bytes sent of a run, rank by rank (`trident plan --format json`)."""
    with _file(config) as path:
        more = [] if ranks is None else ["--ranks", ranks]
        return _json("plan", path, *more, *_set(set))


def schedule(kind=None, **options):
    """A pipeline schedule: its lists, its bubble by formula and simulation. Options are the command's,
    such as stages=4, microbatches=8, chunks=2, times="F=1,B=2,W=1", measure=True, or file="own.csv"
    in place of a kind."""
    return _json("schedule", *_options({"kind": kind, **options}))


def simulate(config, machine, *, set=None, **options):
    """Predicts a step on a machine, given by the path of its file or by a name in configs/machines."""
    with _file(config) as path:
        return _json("simulate", path, *_options({"machine": machine, **options}), *_set(set))


def search(config, machine, *, set=None, ranks=None, **options):
    """The predicted best layouts of a config on a machine; ranks=64, or a list."""
    if isinstance(ranks, (list, tuple)):
        ranks = ",".join(map(str, ranks))
    with _file(config) as path:
        return _json("search", path, *_options({"machine": machine, "ranks": ranks, **options}),
                     *_set(set))


def sweep(config, grid, *, set=None, progress=True, **options):
    """Runs a config in each layout of a grid, {"tp": [1, 2], "pp": [1, 2]} or the command's text, and
    compares them; the folder is out="sweep"."""
    if isinstance(grid, dict):
        grid = " ".join(f"{axis}={','.join(map(str, values))}" for axis, values in grid.items())
    with _file(config) as path:
        return _json("sweep", path, *_options({"grid": grid, **options}), *_set(set), shows=progress)


def _folder(directory):
    return os.path.join(os.curdir, directory.directory if isinstance(directory, Run) else directory)


def generate(directory, prompt=None, *, ids=None, **options):
    """Continues a text, or token ids, with the weights of a run or a Hugging Face directory. Returns
    {"tokens", "text"}, or with samples=N {"texts": [...]}."""
    given = {"prompt": prompt, "ids": ",".join(map(str, ids)) if ids is not None else None}
    return _json("generate", _folder(directory), *_options({**given, **options}))


def eval(directory, data=None, *, set=None, **options):
    """Loss, perplexity and bits a byte of weights over texts. For a run, the default is its held-out data."""
    return _json("eval", _folder(directory), *_options({"data": data, **options}), *_set(set))


def export(directory, to, **options):
    """Writes a run's weights as a Hugging Face directory or as a FILE.gguf, and returns the path."""
    _call(["export", _folder(directory), to, *_options(options)])
    return pathlib.Path(to)


def train_tokenizer(data, out="tokenizer.json", *, progress=True, **options):
    """Trains a byte-level BPE tokenizer on texts, one path or several (`trident tokenizer train`)."""
    paths = data if isinstance(data, (list, tuple)) else [data]
    return _json("tokenizer", "train", *[os.path.join(os.curdir, path) for path in paths],
                 *_options({"out": out, **options}), shows=progress)


def metrics(directory):
    """The complete lines of a run's metrics.jsonl. A run that is still training can be read, too."""
    with open(pathlib.Path(directory) / "metrics.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def dataframe(directory):
    """The metrics as a pandas.DataFrame with a row for each iteration. Objects have a column for each
    member, such as bytes_sent.tensor."""
    try:
        import pandas
    except ImportError as error:
        raise TridentError("a DataFrame needs pandas, which isn't installed; metrics() needs nothing",
                           2) from error
    return pandas.json_normalize(metrics(directory)).set_index("iteration")


def report(directory, *others, out=None):
    """Draws runs on one page and returns its path (`trident report`)."""
    if out is None:
        out = "report.html" if others else pathlib.Path(directory) / "report.html"
    _call(["report", directory, *others, "--out", out])
    return pathlib.Path(out)


class Run:
    """A run's folder. `directory` is its logging.dir. `result` is the program's report at its end, or None
    for a run that is still training or was started elsewhere."""

    def __init__(self, directory, result=None):
        self.directory, self.result = pathlib.Path(directory).absolute(), result

    def __repr__(self):
        result = f": {self.result['iterations']} iterations, loss {self.result['loss']}" if self.result else ""
        return f"<trident.Run {self.directory}{result}>"

    def metrics(self):
        return metrics(self.directory)

    def dataframe(self):
        return dataframe(self.directory)

    def config(self):
        return json.loads((self.directory / "config.json").read_text(encoding="utf-8"))

    def report(self):
        return report(self.directory)


def _own_directory(config, values):
    """A new folder for the run of a dict without logging.dir, else None."""
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


def run(config, *, set=None, ranks=None, progress=True):
    """Trains, waits for the end, and returns a Run. A dict should have logging.dir; otherwise its run goes
    into a folder of runs/ with a random name. Starts one process, whose threads are the ranks.
    `progress` prints lines with the loss and the time left on standard error."""
    values = dict(set or {})
    own = _own_directory(config, values)
    with _file(config) as path:
        more = _options({"ranks": ranks, "progress": progress})
        process = _start(["train", path, "--format", "json", *more, *_set(values)])
        out, err, interrupted = _end(process, shows=progress)
    if own is not None and not os.listdir(own):
        os.rmdir(own)
    if err and not progress and (interrupted or process.returncode in (0, 130)):
        print(err, end="", file=sys.stderr)
    if interrupted:
        raise KeyboardInterrupt
    if process.returncode not in (0, 130) or not out.strip():
        # In an MPI job only rank 0 reports. In a run that was stopped before it began, no rank
        # does.
        raise TridentError(err.strip() or f"exit code {process.returncode}, without a message",
                           process.returncode)
    result = json.loads(out)
    return Run(result["logging_dir"], result)
