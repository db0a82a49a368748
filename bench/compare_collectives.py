#!/usr/bin/env python3
"""Compares all-reduce between in-process ranks with torch.distributed's gloo and Open MPI's own.

    $(scripts/peers_python) bench/compare_collectives.py [--ranks 2,4] [--rounds N]

Sums of fp32. Each program is a run of its own, the programs take turns, and each figure is the median
over the rounds of a run's median. GB/s is message bytes over time. The table also has the bound that
memory sets once a message exceeds the caches (`trident bench collectives`). Needs the release build.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

from side_by_side import PROGRAM, in_turns, machine, median_of, run, run_ranks

SIZES = [4 << 10, 1 << 20, 64 << 20]
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def gloo_child():
    """One rank: {bytes: microseconds}."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {}
    for size in SIZES:
        values = torch.zeros(size // 4)
        repeats, calls = (50, 20) if size < 1 << 20 else (7, 1)
        times = []
        for _ in range(repeats):
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(values)
            times.append(1e6 * (time.perf_counter() - begin) / calls)
        found[size] = statistics.median(times)
    print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def trident(build, ranks):
    found = run([build / "trident", "bench", "collectives", "--ranks", ranks, "--format", "json"])
    rows = {r["bytes"]: r["microseconds"] for r in found["all_reduce"] if r["algorithm"] == "auto"}
    return {**{size: rows[size] for size in SIZES}, "bound": found["bound_gb_per_second"]}


def gloo(ranks):
    found = run_ranks([sys.executable, __file__, "--child"], ranks)
    if isinstance(found, str):
        sys.exit(f"gloo: {found}")
    return {int(size): time for size, time in found[0].items()}


def open_mpi(build, ranks):
    return {size: run(["mpirun", "--bind-to", "none", "-n", ranks, build / "bench/mpi_all_reduce",
                       size], **MPI)["microseconds"] for size in SIZES}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=PROGRAM.parent)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        gloo_child()
        return
    arguments.build = arguments.build.resolve()
    print(machine())
    print(f"{'ranks':>5} {'bytes':>10} {'':4} {'trident':>9} {'gloo':>9} {'Open MPI':>9} {'ratio':>7}"
          f" {'bound':>7}")
    for ranks in map(int, arguments.ranks.split(",")):
        ways = {"trident": lambda: trident(arguments.build, ranks), "gloo": lambda: gloo(ranks),
                "mpi": lambda: open_mpi(arguments.build, ranks)}
        runs = in_turns(ways, arguments.rounds, lambda way: way())
        for size in SIZES:
            ours, theirs, mpi = (median_of(runs[name], size) for name in ways)
            small = size < 1 << 20
            figures = [t if small else 1e-3 * size / t for t in (ours, theirs, mpi)]
            print(f"{ranks:5} {size:10} {'µs' if small else 'GB/s'}", *(f"{f:9.2f}" for f in figures),
                  f"{min(theirs, mpi) / ours:7.2f}",
                  f"{median_of(runs['trident'], 'bound'):7.2f}" if size == SIZES[-1] else "",
                  flush=True)


if __name__ == "__main__":
    main()
