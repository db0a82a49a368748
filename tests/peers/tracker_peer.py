#!/usr/bin/env python3
"""Reads the runs that scripts/track.py gave to Weights & Biases and MLflow, in their own formats.

    $(scripts/peers_python --trackers) tests/peers/tracker_peer.py [--program build/release/trident]

The script follows runs during training, follows runs that are killed and restarted, and reads runs
afterwards. Every iteration comes once, with the values of metrics.jsonl. Ends with `N passed, 0 failed`.
"""

import argparse
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

import mlflow
from wandb.proto import wandb_internal_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = 32768


def records(path):
    """The records of an offline run: a header, then LevelDB's log format, where each record is a message."""
    data = path.read_bytes()
    assert data[:4] == b":W&B", data[:8]
    at, whole = 7, b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0:
            break
        whole += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # complete, or its last part
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def key_of(item):
    return "/".join(item.nested_key) or item.key


class Peers:
    def __init__(self, program, folder):
        self.program, self.folder, self.passed, self.failed = program, folder, 0, 0
        text = "".join(f"{i} is a line of words, number {i * i}\n" for i in range(2000))
        (folder / "text.txt").write_text(text)

    def expect(self, good, message):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAILED: {message}", file=sys.stderr)

    def config(self, name, iterations):
        run = self.folder / "runs" / name
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({
            "model": {"architecture": "gpt2", "num_layers": 1, "hidden_size": 32,
                      "num_attention_heads": 2},
            "batch": {"global_batch_size": 4, "micro_batch_size": 4},
            "data": {"train": [{"path": str(self.folder / "text.txt")}], "sequence_length": 32,
                     "split": "9,1,0"},
            "training": {"train_iters": iterations, "eval_interval": 50, "eval_iters": 1},
            "checkpoint": {"save": str(run / "weights"), "save_interval": 100},
            "logging": {"dir": str(run)}}))
        return path, run

    def train(self, path, **more):
        return subprocess.Popen([self.program, "train", str(path)], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, **more)

    def track(self, run, *options):
        return subprocess.Popen(
            [sys.executable, str(ROOT / "scripts/track.py"), str(run), *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def ended(self, process, what):
        out, _ = process.communicate(timeout=300)
        self.expect(process.returncode == 0, f"{what}: exit code {process.returncode}: {out}")
        return out

    def truth(self, run):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return {line.pop("iteration"): line for line in lines}

    def check_wandb(self, run, what, times=1):
        paths = list((run / "wandb").glob("offline-run-*/*.wandb"))
        self.expect(len(paths) == times, f"{what}: runs {paths}")
        history, config, name = {}, {}, ""
        for record in records(paths[-1]):
            for item in record.history.item:
                history.setdefault(record.history.step.num, {})[key_of(item)] = json.loads(item.value_json)
            for item in list(record.run.config.update) + list(record.config.update):
                config[key_of(item)] = json.loads(item.value_json)
            name = record.run.display_name or name
        truth = self.truth(run)
        self.expect(set(history) == set(truth), f"{what}: steps {sorted(history)[:5]} … of {len(history)}")
        for key in ("loss", "learning_rate", "consumed_tokens", "parts_ms/rest", "bytes_sent/world",
                    "validation_loss", "skipped"):
            def of(line):
                group, _, part = key.partition("/")
                value = line.get(group)
                return value.get(part) if part and value else value
            want = {step: of(line) for step, line in truth.items() if of(line) is not None}
            got = {step: values[key] for step, values in history.items() if key in values}
            self.expect(want and got == want, f"{what}: {key}: {len(got)} of {len(want)} values")
        self.expect(config.get("model.hidden_size") == 32 and name == run.name,
                    f"{what}: config {sorted(config)[:5]}, name {name}")

    def check_mlflow(self, uri, run, what):
        client = mlflow.MlflowClient(tracking_uri=uri)
        found = client.search_runs([client.get_experiment_by_name("trident").experiment_id])
        self.expect(len(found) == 1 and found[0].info.run_name == run.name, f"{what}: {found}")
        truth = self.truth(run)
        for key in ("loss", "tokens_per_second", "validation_loss"):
            metrics = client.get_metric_history(found[0].info.run_id, key)
            want = {k: line[key] for k, line in truth.items() if key in line}
            self.expect({m.step: m.value for m in metrics} == want and len(metrics) == len(want),
                        f"{what}: {key}: {len(metrics)} of {len(want)} values")
            times = {m.step: m.timestamp for m in metrics}
            self.expect(all(abs(times[k] - 1000 * truth[k]["wall_time"]) < 2 for k in want),
                        f"{what}: {key}: times")
        self.expect(found[0].data.params.get("optimizer.type") == "AdamW", f"{what}: params")
        self.expect(found[0].info.status == "FINISHED", f"{what}: {found[0].info.status}")

    def afterwards(self):
        path, run = self.config("afterwards", 120)
        self.ended(self.train(path), "train")
        out = self.ended(self.track(run, "--to", "wandb"), "wandb afterwards")
        self.expect("gave 120 iterations to wandb" in out, out)
        self.check_wandb(run, "wandb afterwards")
        uri = f"sqlite:///{self.folder}/all.db"
        self.ended(self.track(run, "--to", "mlflow", "--tracking-uri", uri), "mlflow afterwards")
        self.check_mlflow(uri, run, "mlflow afterwards")

    def following(self):
        """Follows a run that is killed and restarted by the same command."""
        path, run = self.config("following", 4000)
        uri = f"sqlite:///{self.folder}/following.db"
        trackers = [self.track(run, "--to", "wandb", "--follow", "--patience", "15"),
                    self.track(run, "--to", "mlflow", "--tracking-uri", uri, "--follow",
                               "--patience", "15")]
        first = self.train(path)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (run / "weights/iteration-300").exists():
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        self.expect(0 < len(self.truth(run)) < 4000, "it was not killed amid the run")
        self.ended(self.train(path), "train again")
        for tracker, name in zip(trackers, ("wandb", "mlflow")):
            out = self.ended(tracker, f"{name} following")
            self.expect(f"gave 4000 iterations to {name}" in out, out)
        # If iterations come twice, the tracker keeps the first values. Losses are the same both
        # times, as a resumed run equals a run that never stopped, so the losses are compared.
        client = mlflow.MlflowClient(tracking_uri=uri)
        found = client.search_runs([client.get_experiment_by_name("trident").experiment_id])
        metrics = client.get_metric_history(found[0].info.run_id, "loss")
        want = {k: line["loss"] for k, line in self.truth(run).items()}
        self.expect({m.step: m.value for m in metrics} == want and len(metrics) == 4000,
                    f"mlflow following: {len(metrics)} losses")

    def nothing(self):
        tracker = self.track(self.folder / "none", "--to", "wandb")
        out, _ = tracker.communicate(timeout=60)
        self.expect(tracker.returncode != 0 and "there is no such file" in out, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/release/trident"))
    parser.add_argument("--seed", type=int, help="nothing here is drawn")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        peers = Peers(str(pathlib.Path(options.program).resolve()), pathlib.Path(folder))
        for check in (peers.nothing, peers.afterwards, peers.following):
            try:
                check()
            except Exception as error:  # one check's failure doesn't hide the others
                peers.expect(False, f"{check.__name__}: {type(error).__name__}: {error}")
    print(f"{peers.passed} passed, {peers.failed} failed")
    return 1 if peers.failed else 0


if __name__ == "__main__":
    sys.exit(main())
