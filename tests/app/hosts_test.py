#!/usr/bin/env python3
"""Tests two hosts: network namespaces with host names of their own, joined by a veth pair.

    python3 tests/app/hosts_test.py build/release/trident [--full]

3D training across both hosts gives the same bits as training in one process. Nodes are the hosts,
whatever the placement of ranks. A broken link or a frozen rank ends every process on both sides. `--full`
adds the slow link. If the machine refuses namespaces (they need root), no test runs and the exit code
is 77, which CTest counts as skipped. Prints `OK` at the end, or an error with the output of mpirun and
the program. The namespaces' names contain this process's id, and the script always removes them. It
ends only processes that it started, those inside its namespaces.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = ""
HOSTS = [f"ta{os.getpid()}", f"tb{os.getpid()}"]
TIMEOUT = 3  # runtime.timeout_seconds of the tests with failures
TEXT = "In the beginning was the word, and the word was good. " * 60
CONFIG = {
    "model": {"architecture": "gpt2", "num_layers": 4, "hidden_size": 32, "num_attention_heads": 4,
              "vocab_size": 256},
    "parallel": {"data_parallel_size": 2, "tensor_model_parallel_size": 2,
                 "pipeline_model_parallel_size": 2},
    "zero_optimization": {"stage": 1},
    "batch": {"global_batch_size": 8, "micro_batch_size": 1},
    "data": {"train": [{"path": "text.txt"}], "sequence_length": 16},
    "training": {"train_iters": 3},
    "runtime": {"threads_per_rank": 1, "timeout_seconds": 60},
    "checkpoint": {"save": "weights"},
    "logging": {"dir": "run", "tensorboard": False, "trace": False}}


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True).stdout


def make_hosts():
    a, b = HOSTS
    for host in HOSTS:
        ip("netns", "add", host)
        ip("-n", host, "link", "set", "lo", "up")
    ip("link", "add", "va", "netns", a, "type", "veth", "peer", "name", "vb", "netns", b)
    for host, link, address in ((a, "va", "10.77.0.1/24"), (b, "vb", "10.77.0.2/24")):
        ip("-n", host, "address", "add", address, "dev", link)
        ip("-n", host, "link", "set", link, "up")


def inside(host):
    """Returns the processes of this namespace."""
    return [int(pid) for pid in ip("netns", "pids", host).split()]


def remove_hosts():
    for host in HOSTS:
        try:
            for pid in inside(host):
                os.kill(pid, signal.SIGKILL)
        except (subprocess.CalledProcessError, ProcessLookupError):
            pass
        subprocess.run(["ip", "netns", "delete", host], capture_output=True, check=False)


def ranks_inside(host):
    """Returns the program's processes in this namespace, by world rank."""
    found = {}
    for pid in inside(host):
        try:
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(b"OMPI_COMM_WORLD_RANK=") and command[0] == PROGRAM.encode():
                found[int(variable.split(b"=")[1])] = pid
    return found


class Hosts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text.txt").write_text(TEXT)
        (self.folder / "c.json").write_text(json.dumps(CONFIG))
        # mpirun starts its daemon on the other host with this script.
        (self.folder / "shell").write_text(
            '#!/bin/sh\nhost=$1\nshift\nexec ip netns exec "$host" unshare --uts sh -c '
            '"hostname $host; $*"\n')
        (self.folder / "shell").chmod(0o755)

    def start(self, ranks, arguments, options=()):
        """Starts mpirun on the first host, with ranks[i] ranks on host i."""
        places = ",".join(f"{host}:{n}" for host, n in zip(HOSTS, ranks))
        command = ["ip", "netns", "exec", HOSTS[0], "unshare", "--uts", "sh", "-c",
                   'hostname "$0"; exec "$@"', HOSTS[0], "mpirun", "--oversubscribe", "--bind-to",
                   "none", "--host", places, "-n", str(sum(ranks)), *options]
        for key, value in (("plm_rsh_agent", str(self.folder / "shell")),
                           ("oob_tcp_if_include", "10.77.0.0/24"),
                           ("btl_tcp_if_include", "10.77.0.0/24")):
            command += ["--mca", key, value]
        environment = os.environ | {
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
        self.output = self.folder / "output"
        with self.output.open("w") as output:  # no pipe: Open MPI's daemon may keep it open
            return subprocess.Popen(command + [PROGRAM, *arguments], cwd=self.folder,
                                    env=environment, stdout=output, stderr=subprocess.STDOUT)

    def train(self, ranks, overrides=(), options=()):
        arguments = ["train", "c.json", *(part for one in overrides for part in ("--set", one))]
        job = self.start(ranks, arguments, options)
        return job.wait(timeout=120), self.output.read_text()

    def test_3d_across_both_hosts_gives_the_bits_of_one_process(self):
        code, text = self.train((4, 4))
        self.assertEqual(code, 0, text)
        self.assertNotIn("warning", text)
        weights = (self.folder / "weights/model.safetensors").read_bytes()
        local = subprocess.run(
            [PROGRAM, "train", "c.json", "--set", "logging.dir=local", "--set",
             "checkpoint.save=own"], cwd=self.folder, capture_output=True, text=True, timeout=120,
            check=False)
        self.assertEqual(local.returncode, 0, local.stderr)
        self.assertEqual(weights, (self.folder / "own/model.safetensors").read_bytes())

    def test_a_sum_crosses_the_link_once_each_way(self):
        links = list(zip(HOSTS, ("va", "vb")))

        def sent():
            return [json.loads(ip("-j", "-s", "-n", host, "link", "show", link))[0]["stats64"]["tx"]["bytes"]
                    for host, link in links]

        wide = ["model.hidden_size=192", "parallel.data_parallel_size=4",
                "parallel.tensor_model_parallel_size=1", "parallel.pipeline_model_parallel_size=1",
                "zero_optimization.stage=0"]
        ends = []
        for iterations in (1, 11):  # all other traffic is the same in both
            before = sent()
            code, text = self.train((2, 2), wide + [f"training.train_iters={iterations}",
                                                    f"logging.dir=run-{iterations}",
                                                    "checkpoint.overwrite=true"])
            self.assertEqual(code, 0, text)
            ends.append([after - start for after, start in zip(sent(), before)])
        gradients = (self.folder / "weights/model.safetensors").stat().st_size
        for first, last in zip(*ends):
            crossings = (last - first) / 10 / gradients
            print(f"a sum of {gradients} bytes crossed {crossings:.3f} times")
            self.assertGreater(crossings, 0.95)
            self.assertLess(crossings, 1.15)  # messages between all ranks would give 2

    def test_nodes_are_the_hosts_for_any_placement(self):
        small = ["parallel.pipeline_model_parallel_size=1"]
        code, text = self.train((2, 2), small, ["--map-by", "node"])
        self.assertEqual(code, 0, text)
        self.assertIn("tensor parallelism crosses nodes: 2 of 2 groups of 2 ranks do (the first is 0,1; "
                      "nodes: ranks 0,2 | 1,3)", text)
        code, text = self.train((2, 2), small + ["runtime.ranks_per_node=2", "logging.dir=again",
                                                 "checkpoint.save=weights-again"],
                                ["--map-by", "node"])
        self.assertEqual(code, 2, text)
        self.assertIn("config: /runtime/ranks_per_node: 2 takes ranks 0 and 1 for one node, but they "
                      f"are on different hosts (rank 0 on {HOSTS[0]}, rank 1 on {HOSTS[1]})", text)
        self.assertFalse((self.folder / "again").exists())

    def test_uneven_hosts_work(self):
        # "auto" gives the hosts different numbers of threads.
        code, text = self.train((1, 3), ["parallel.pipeline_model_parallel_size=1",
                                         "runtime.threads_per_rank=auto"])
        self.assertEqual(code, 0, text)
        self.assertIn("nodes: ranks 0 | 1 to 3)", text)

    def test_each_crowded_host_is_reported(self):
        cores = len(os.sched_getaffinity(0))
        if cores < 2:
            self.skipTest("one core is crowded by one rank of two threads")
        code, text = self.train((1, 3), ["parallel.pipeline_model_parallel_size=1",
                                         f"runtime.threads_per_rank={cores}", "training.train_iters=1"])
        self.assertEqual(code, 0, text)
        crowded = "warning: config: /runtime/threads_per_rank: "
        self.assertEqual(text.count(crowded), 1, text)
        self.assertIn(f"{crowded}3 ranks of {cores} threads share {cores} cores of {HOSTS[1]}, ", text)

    def interrupt(self, how):
        """Starts a long run, calls `how` during it, and waits for its end on both hosts."""
        endless = ["training.train_iters=1000000", f"runtime.timeout_seconds={TIMEOUT}",
                   "training.eval_interval=0", "checkpoint.save=null"]
        job = self.start((2, 2), ["train", "c.json", "--set", "parallel.pipeline_model_parallel_size=1",
                                  *(part for one in endless for part in ("--set", one))])
        metrics = self.folder / "run/metrics.jsonl"
        try:
            self.wait_until(60, lambda: metrics.exists() and metrics.stat().st_size > 1000, job)
            began = time.monotonic()
            how()
            self.wait_until(TIMEOUT + 40, lambda: not any(ranks_inside(host) for host in HOSTS))
            seconds = time.monotonic() - began
            try:
                job.wait(timeout=3)
            except subprocess.TimeoutExpired:  # mpirun may wait for its daemon for ever
                pass
            return job.poll(), self.output.read_text(), seconds
        finally:
            for host in HOSTS:
                for pid in inside(host):
                    os.kill(pid, signal.SIGKILL)
            job.wait(timeout=60)

    def wait_until(self, seconds, done, job=None):
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline or (job is not None and job.poll() is not None):
                left = {host: ranks_inside(host) for host in HOSTS}
                self.fail(f"ranks that live: {left}\n{self.output.read_text()}")
            time.sleep(0.05)

    def test_a_broken_link_ends_all_processes_on_both_sides(self):
        self.addCleanup(ip, "-n", HOSTS[1], "link", "set", "vb", "up")
        code, text, seconds = self.interrupt(
            lambda: ip("-n", HOSTS[1], "link", "set", "vb", "down"))
        self.assertNotEqual(code, 0, text)
        self.assertRegex(text, r"trident: rank \d")
        print(f"a broken link: {seconds:.1f} s, mpirun's exit code {code}")

    def test_a_frozen_rank_ends_all_processes_and_is_named(self):
        code, text, seconds = self.interrupt(
            lambda: os.kill(ranks_inside(HOSTS[1])[3], signal.SIGSTOP))
        self.assertEqual(code, 3, text)
        self.assertRegex(text, r"rank 3")
        print(f"a frozen rank: {seconds:.1f} s")

    def test_a_slow_link_leaves_large_messages_out_of_the_table(self):
        for host, link in zip(HOSTS, ("va", "vb")):
            done = subprocess.run(["tc", "-n", host, "qdisc", "add", "dev", link, "root", "tbf", "rate",
                                   "4mbit", "burst", "32kbit", "latency", "400ms"],
                                  capture_output=True, text=True, check=False)
            if done.returncode != 0:
                self.skipTest("no token bucket filter here: " + done.stderr)
            self.addCleanup(ip, "netns", "exec", host, "tc", "qdisc", "delete", "dev", link, "root")
        job = self.start((1, 1), ["bench", "collectives"])
        self.wait_until(60, lambda: "64.00 KiB" in self.output.read_text(), job)
        self.assertIsNone(job.poll(), "rows come as they are measured")
        self.assertEqual(job.wait(timeout=300), 0, self.output.read_text())
        self.assertIn("left out", self.output.read_text())


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    if "--full" in sys.argv:
        sys.argv.remove("--full")
    else:
        del Hosts.test_a_slow_link_leaves_large_messages_out_of_the_table
    try:
        if shutil.which("ip") is None or shutil.which("unshare") is None:
            raise FileNotFoundError("there is no ip or unshare")
        make_hosts()
    except (OSError, subprocess.CalledProcessError) as error:
        remove_hosts()
        print("skipped: no network namespaces here:", getattr(error, "stderr", "") or error)
        sys.exit(77)
    try:
        unittest.main()
    finally:
        remove_hosts()
