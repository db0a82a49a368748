#!/usr/bin/env python3
"""Compares the orders of `trident schedule` with those of torch.distributed.pipelining.

    python tests/peers/schedule_peer.py [--program build/release/trident]
    python tests/peers/schedule_peer.py --write-fixture tests/scheduler/pytorch_orders.txt

For every schedule that both have, over (stages, micro-batches, chunks), all actions are equal, idle
steps left out, except for one error of PyTorch's (its 1F1B lists the last rank's forwards one too
high). The CSV of several chunks is then loaded by PyTorch, which adds its transfers and, if it
has no fused pairs, runs it in its simulator. Ends with `N passed, 0 failed`. The second form writes
PyTorch's orders of the smaller sizes for the C++ tests, which have no PyTorch.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch.distributed.pipelining import schedules as peer

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SINGLE = {"gpipe": peer.ScheduleGPipe, "1f1b": peer.Schedule1F1B}
MULTI = {"interleaved_1f1b": peer.ScheduleInterleaved1F1B, "looped_bfs": peer.ScheduleLoopedBFS,
         "interleaved_zero_bubble": peer.ScheduleInterleavedZeroBubble,
         "zbv": peer.ScheduleZBVZeroBubble, "dualpipev": peer.ScheduleDualPipeV}


class Stage:
    """The attributes of a stage that PyTorch's schedules read while they make their order."""

    def __init__(self, index, stages, ranks):
        self.stage_index, self.num_stages, self.group_size = index, stages, ranks
        self.group_rank = index % ranks
        self.has_backward, self.is_first, self.is_last = True, index == 0, index + 1 == stages
        self.submod = None


def theirs(kind, p, m, v):
    """{rank: cells} of PyTorch, without idle steps."""
    if kind in SINGLE:
        order = SINGLE[kind](Stage(0, p, p), m).pipeline_order
    else:
        order = MULTI[kind]([Stage(chunk * p, p * v, p) for chunk in range(v)], m).pipeline_order
    # Actions that the single-chunk schedules list in addition to computes (the reduction at the end) are
    # not compared.
    cells = [[str(a) for a in order[rank] if a is not None and "REDUCE" not in str(a)]
             for rank in range(p)]
    if kind == "1f1b":
        cells[-1] = [f"{p - 1}F{int(c.split('F')[1]) - 1}" if "F" in c else c for c in cells[-1]]
    return cells


def ours(program, kind, p, m, v):
    run = subprocess.run([program, "schedule", "--kind", kind, "--stages", str(p), "--microbatches",
                          str(m), "--chunks", str(v), "--format", "csv"],
                         capture_output=True, text=True, check=True)
    return run.stdout


def sizes(kind):
    for p in (1, 2, 3, 4, 5, 8):
        for m in sorted({p, 2 * p, 2 * p + 1, 3 * p, 4 * p + 2, 5 * p}):
            if kind in SINGLE:
                yield p, m, 1
            elif kind in ("zbv", "dualpipev"):
                if kind == "zbv" or m >= 2 * p:
                    yield p, m, 2
            else:
                for v in (1, 2, 3):
                    if kind == "looped_bfs" or m % max(1, m // p) == 0:
                        yield p, m, v


def differences(mine, their):
    for rank, (a, b) in enumerate(zip(mine, their)):
        for i in range(max(len(a), len(b))):
            x, y = (c[i] if i < len(c) else "nothing" for c in (a, b))
            if x != y:
                return f"rank {rank} position {i}: {x}, PyTorch {y}"
    return ""


def run_in_peer(text, p, m, v, kind):
    """PyTorch loads the CSV, adds its transfers and, without fused pairs, simulates them."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(text)
        file.flush()
        schedule = peer._PipelineScheduleRuntime([Stage(c * p, p * v, p) for c in range(v)],
                                                 m)
        schedule.pipeline_order = {}
        peer.PipelineScheduleMulti._load_csv(schedule, file.name)
    ranks = schedule.stage_index_to_group_rank
    order = {r: [a for a in row if a is not None] for r, row in schedule.pipeline_order.items()}
    if kind == "dualpipev":
        return
    with_transfers = peer._add_send_recv(order, lambda stage: ranks[stage], p * v)
    peer._simulate_comms_compute(with_transfers, lambda stage: ranks[stage], p * v)


def write_fixture(path):
    """Writes for each kind and size a line "kind p m v", then a line of cells for each rank."""
    lines = [f"# torch.distributed.pipelining of PyTorch {torch.__version__}"]
    for kind in {**SINGLE, **MULTI}:
        for p, m, v in sizes(kind):
            if p in (2, 3, 4) and m <= 12 and v <= 2:
                lines.append(f"{kind} {p} {m} {v}")
                lines += [",".join(row) for row in theirs(kind, p, m, v)]
    path.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/trident")
    parser.add_argument("--write-fixture", type=pathlib.Path)
    options = parser.parse_args()
    if options.write_fixture:
        write_fixture(options.write_fixture)
        return
    program = str(options.program.resolve())
    passed = failed = 0
    for kind in {**SINGLE, **MULTI}:
        compared = 0
        for p, m, v in sizes(kind):
            text = ours(program, kind, p, m, v)
            mine = [[c for c in row.split(",") if c] for row in text.splitlines()]
            problem = differences(mine, theirs(kind, p, m, v))
            if not problem and kind in MULTI:
                try:
                    run_in_peer(text, p, m, v, kind)
                except Exception as error:  # PyTorch refuses it
                    problem = f"PyTorch can't take the CSV: {error!r}"[:300]
            compared += 1
            if problem:
                failed += 1
                print(f"FAILED {kind} p={p} m={m} v={v}: {problem}")
            else:
                passed += 1
        print(f"{kind}: {compared} sizes")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
