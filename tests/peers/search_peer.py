#!/usr/bin/env python3
"""Compares the schedules that `trident schedule --kind auto` finds with the optimum that an exact
solver proves (OR-tools' CP-SAT).

    python tests/peers/search_peer.py [--program build/release/trident] [--cases N] [--seed S]

Random pipelines of at most 4 ranks and 8 micro-batches, one chunk a rank: equal and unequal stages,
transfers, limits for all ranks or for each, weight gradients that need all or a part of what
forwards keep; by makespan and by span. If the solver proves an optimum within its time, the schedule
found is at most 1% longer, and the printed lower bound is not above the optimum. Ends with `N passed, 0
failed`.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys

from ortools.sat.python import cp_model

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
UNIT = 1000  # memory is counted in thousandths of a micro-batch


def random_case(rng):
    p, m = rng.randint(2, 4), rng.randint(2, 8)
    equal = rng.random() < 0.5

    def times(low, high):
        return [rng.randint(low, high)] * p if equal else [rng.randint(low, high) for _ in range(p)]

    return {"p": p, "m": m, "F": times(5, 30), "B": times(5, 30), "W": times(3, 30),
            "C": rng.choice([0, 1, 4]), "kept": rng.choice([1, 1, 0.5, 0.3]),
            "memory_limit": rng.choice([None, [p] * p, [p] * p, [2 * p] * p, [p - r for r in range(p)]])}


def optimum(case, objective, seconds):
    """The shortest length, or None if the solver proves none within its time."""
    p, m = case["p"], case["m"]
    length = {"F": case["F"], "I": case["B"], "W": case["W"]}
    horizon = m * sum(sum(times) for times in length.values()) + 4 * p * case["C"]
    model = cp_model.CpModel()
    begin, end, interval = {}, {}, {}
    for kind in "FIW":
        for stage in range(p):
            for i in range(m):
                key = kind, stage, i
                begin[key] = model.NewIntVar(0, horizon, "")
                end[key] = model.NewIntVar(0, horizon, "")
                interval[key] = model.NewIntervalVar(begin[key], length[kind][stage], end[key], "")
    goal = model.NewIntVar(0, horizon, "")
    for stage in range(p):
        model.AddNoOverlap([interval[kind, stage, i] for kind in "FIW" for i in range(m)])
        for i in range(m):
            model.Add(begin["I", stage, i] >= end["F", stage, i])
            model.Add(begin["W", stage, i] >= end["I", stage, i])
            if stage > 0:
                model.Add(begin["F", stage, i] >= end["F", stage - 1, i] + case["C"])
                model.Add(begin["I", stage - 1, i] >= end["I", stage, i] + case["C"])
            # Micro-batches are alike, so a fixed order loses no solutions.
            for kind in "FIW" if i else "":
                model.Add(begin[kind, stage, i] >= end[kind, stage, i - 1])
        if case["memory_limit"] is not None:
            held, sizes = [], []
            kept = round(case["kept"] * UNIT)
            for i in range(m):
                for first, last, size in ((begin["F", stage, i], end["I", stage, i], UNIT),
                                          (end["I", stage, i], end["W", stage, i], kept)):
                    held.append(model.NewIntervalVar(first, model.NewIntVar(0, horizon, ""), last,
                                                     ""))
                    sizes.append(size)
            model.AddCumulative(held, sizes, case["memory_limit"][stage] * UNIT)
        since = begin["F", stage, 0] if objective == "span" else 0
        model.Add(goal >= end["W", stage, m - 1] - since)
    model.Minimize(goal)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    return solver.ObjectiveValue() if solver.Solve(model) == cp_model.OPTIMAL else None


def found(program, case, objective):
    """The length of our schedule and our lower bound."""
    times = ",".join(f"{kind}={':'.join(map(str, case[kind]))}" for kind in "FBW")
    command = [program, "schedule", "--kind", "auto", "--chunks", "1", "--stages", str(case["p"]),
               "--microbatches", str(case["m"]), "--times", f"{times},C={case['C']}",
               "--kept-for-weights", str(case["kept"]), "--objective", objective,
               "--format", "json"]
    if case["memory_limit"] is not None:
        command += ["--max-in-flight", ":".join(map(str, case["memory_limit"]))]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    simulated = report["simulated"]
    if objective == "makespan":
        return simulated["makespan"], report["lower_bound"]["makespan"]
    work = case["m"] * sum(sum(case[kind]) for kind in "FBW") / case["p"]
    return work / (1 - simulated["bubble_ratio_span"]), report["lower_bound"]["span"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build/release/trident", type=pathlib.Path)
    parser.add_argument("--cases", default=8, type=int)
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--seconds", default=5, type=float, help="for each proof")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    passed = failed = unverified = worse = 0
    for _ in range(options.cases):
        case = random_case(rng)
        for objective in ("makespan", "span"):
            best = optimum(case, objective, options.seconds)
            if best is None:
                unverified += 1
                continue
            ours, bound = found(options.program, case, objective)
            worse += ours > best + 1e-6
            if ours <= 1.01 * best and bound <= best + 1e-6 <= ours + 2e-6:
                passed += 1
            else:
                failed += 1
                print(f"{case} {objective}: found {ours}, optimum {best}, bound {bound}")
    print(f"{unverified} not verified in {options.seconds:g} s; {worse} above the optimum, by 1% at most")
    # A test without any proven optimum has compared nothing, so it fails.
    failed += passed < options.cases
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
