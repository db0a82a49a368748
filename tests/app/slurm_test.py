#!/usr/bin/env python3
"""Tests `trident launch` and `srun trident train` as Slurm jobs. The script starts the distribution's
slurmctld, slurmd and munged on this machine, with a folder and ports of their own.

    sudo python3 tests/app/slurm_test.py build/release/trident

Exits with 77 if they are not installed (slurmctld slurmd slurm-client munge) or the user is not root.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

TOOLS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
              "vocab_size": 256},
    "parallel": {"data_parallel_size": "auto"},
    "batch": {"global_batch_size": 4, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
    "training": {"train_iters": 4000},
    "runtime": {"threads_per_rank": 1, "transport": "mpi", "device": "cpu"},
    "checkpoint": {"save": "weights", "save_interval": 20, "save_total_limit": 2},
    "logging": {"dir": "run", "tensorboard": False, "trace": False}}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    """A cluster of one node with this machine's cores."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, []
        for name in ("spool", "state"):
            (folder / name).mkdir()
        key, sock = folder / "munge.key", folder / "munge.sock"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        controller, node = free_ports(2)
        host = socket.gethostname()
        text = f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={sock}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=pmix
JobRequeue=1
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,requeue_delay=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""
        (folder / "slurm.conf").write_text(text)
        self.environment = os.environ | {
            "SLURM_CONF": str(folder / "slurm.conf"), "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
        self.start("munged", "--foreground", f"--key-file={key}", f"--socket={sock}",
                   f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
                   f"--seed-file={folder}/munged.seed", "--force")
        self.wait(sock.exists)
        self.start("slurmctld", "-D", "-c", "-f", str(folder / "slurm.conf"))
        self.start("slurmd", "-D", "-f", str(folder / "slurm.conf"))
        self.wait(lambda: "idle" in self.run("sinfo", "-h", "-o", "%t").stdout)

    def start(self, *words):
        with open(self.folder / f"{words[0]}.out", "wb") as log:
            self.daemons.append(subprocess.Popen([shutil.which(words[0]), *words[1:]], stdout=log,
                                                 stderr=subprocess.STDOUT, env=self.environment,
                                                 start_new_session=True))

    def run(self, *words, **more):
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, **more)

    def wait(self, ready, seconds=25):
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                logs = [f"{p.name}:\n{p.read_text(errors='replace')[-1500:]}"
                        for p in self.folder.glob("*.log")]
                raise AssertionError("it takes too long\n" + "\n".join(logs))
            time.sleep(0.05)

    def stop(self):
        self.run("scancel", "--state=RUNNING", "--user=root")
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


class Slurm(unittest.TestCase):
    program = ""

    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="trident-slurm-"))
        (cls.root / "cluster").mkdir()
        cls.cluster = Cluster(cls.root / "cluster")

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        shutil.rmtree(cls.root, ignore_errors=True)

    def folder(self, name):
        folder = self.root / name
        folder.mkdir()
        (folder / "text.txt").write_text("In the beginning was the word, and it was good. " * 60)
        (folder / "c.json").write_text(json.dumps(CONFIG))
        return folder

    def submit(self, folder, line, *options):
        script = folder / "job.sh"
        script.write_text(f"#!/bin/sh\n{line}\n")
        done = self.cluster.run("sbatch", "--parsable", "--requeue", "--open-mode=append", "-n", "2",
                                "--oversubscribe", "-o", "printed.txt", *options, str(script),
                                cwd=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def printed(self, folder):
        path = folder / "printed.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def lines(self, folder):
        path = folder / "run" / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def state(self, job):
        return self.cluster.run("squeue", "-h", "-j", job, "-o", "%T").stdout.strip()

    def reached(self, folder, iteration):
        def ready():
            lines = self.lines(folder)
            return bool(lines) and lines[-1]["iteration"] >= iteration
        try:
            self.cluster.wait(ready, 30)
        except AssertionError as error:
            raise AssertionError(f"{self.printed(folder)}\n{error}") from None

    def ranks(self, folder):
        """Returns the processes that train in this folder."""
        found = []
        for proc in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (proc / "cmdline").read_bytes().split(b"\0")
                here = os.readlink(proc / "cwd") == str(folder)
            except OSError:
                continue
            if here and words[:2] == [os.fsencode(self.program), b"train"]:
                found.append(int(proc.name))
        return found

    def requeue(self, job):
        """Ends a job as preemption or a lost node does, in seconds instead of Slurm's two minutes.
        In the second of its end, slurmd refuses a job by its credential, "revoked"."""
        done = self.cluster.run("scontrol", "requeue", job)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.cluster.wait(lambda: self.state(job) == "PENDING")
        self.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")

    def ended(self, job, seconds=120):
        self.cluster.wait(lambda: self.state(job) in ("", "COMPLETED", "FAILED", "CANCELLED"), seconds)

    def expect_complete(self, folder):
        self.assertEqual([line["iteration"] for line in self.lines(folder)],
                         list(range(1, CONFIG["training"]["train_iters"] + 1)))

    def test_launch_starts_ranks_by_srun_again(self):
        folder = self.folder("launch")
        job = self.submit(folder, f"exec {self.program} launch c.json --min-ranks 2 --backoff 0.2")
        self.reached(folder, 60)
        os.kill(self.ranks(folder)[-1], signal.SIGKILL)
        self.ended(job)
        said = self.printed(folder)
        self.assertIn("start 1: 2 ranks", said)
        self.assertIn("start 2: 2 ranks", said)
        self.assertRegex(said, r"resuming from weights/iteration-\d+")
        self.assertIn("goodput", said)
        self.expect_complete(folder)

    def test_a_requeued_job_resumes(self):
        """Without launch: Slurm sends SIGUSR1 as a warning, then starts the job again."""
        folder = self.folder("requeue")
        # The script continues after its step has ended: Slurm then requeues the warned job.
        job = self.submit(folder, f"srun {self.program} train c.json; sleep 20")
        self.reached(folder, 60)
        self.cluster.run("scancel", "--signal=USR1", job)
        self.cluster.wait(lambda: "SIGUSR1: stopping" in self.printed(folder))
        self.cluster.wait(lambda: not self.ranks(folder))
        self.requeue(job)
        self.ended(job)
        self.assertIn("resuming from weights/iteration-", self.printed(folder))
        self.expect_complete(folder)

    def test_requeued_in_the_midst_of_it(self):
        folder = self.folder("midst")
        job = self.submit(folder, f"exec {self.program} launch c.json --min-ranks 2 --backoff 0.2")
        self.reached(folder, 60)
        self.requeue(job)
        self.cluster.wait(lambda: self.printed(folder).count("start 1: 2 ranks") == 2, 120)
        self.ended(job)
        self.assertIn("resuming from weights/iteration-", self.printed(folder))
        self.expect_complete(folder)

    def test_a_warning_before_the_time_is_up(self):
        """--signal=B:USR1: only the batch script gets the signal, and launch passes it on."""
        folder = self.folder("warned")
        job = self.submit(folder, f"exec {self.program} launch c.json --min-ranks 2")
        self.reached(folder, 60)
        self.cluster.run("scancel", "--batch", "--signal=USR1", job)
        self.ended(job)
        said = self.printed(folder)
        self.assertIn("passed on; no more starts", said)
        reached = self.lines(folder)[-1]["iteration"]
        self.assertTrue((folder / f"weights/iteration-{reached}").is_dir(), said)


if __name__ == "__main__":
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in TOOLS):
        print("needs root, and " + ", ".join(TOOLS))
        sys.exit(77)
    Slurm.program = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
