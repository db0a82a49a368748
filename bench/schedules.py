#!/usr/bin/env python3
"""Writes docs/schedules.md and docs/schedules.svg: the bubble of every kind of schedule by formula,
by simulation and measured.

    python3 bench/schedules.py [--program build/release/trident] [--times F=5,B=5,W=5] [--docs docs]

p is 2, 4, 8 and m is p, 2p, 4p, 8p. The measurement is `trident schedule --measure`: in-process ranks
whose stages sleep, so that it needs no cores, but still a quiet machine. The first row is one rank
that does all the work.
"""

import argparse
import json
import pathlib
import platform
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = ["naive", "gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_h2",
         "interleaved_zero_bubble", "zbv", "dualpipev", "pipedream", "pipedream_2bw", "auto"]
COLOURS = {"formula": "#999999", "simulated": "#56b4e9", "measured": "#e69f00"}  # Okabe and Ito


def report(program, kind, p, m, times):
    run = subprocess.run([program, "schedule", "--kind", kind, "--stages", str(p), "--microbatches",
                          str(m), "--times", times, "--measure", "--format", "json"],
                         capture_output=True, text=True)
    if run.returncode == 2:
        return None  # the schedule doesn't have these sizes
    run.check_returncode()
    return json.loads(run.stdout)


def apart(r):
    return abs(r["measured"]["bubble_ratio"] - r["simulated"]["bubble_ratio"])


def quiet_report(program, kind, p, m, times):
    """The shortest of up to three measurements; it repeats one if the machine was visibly disturbed."""
    best = report(program, kind, p, m, times)
    for _ in range(2):
        if best is None or apart(best) < 0.015:
            break
        again = report(program, kind, p, m, times)
        best = min(best, again, key=lambda r: r["measured"]["makespan"])
    return best


def percent(value):
    return "–" if value is None else f"{100 * value:.2f}"


def row(name, p, m, r):
    simulated, measured = r["simulated"], r["measured"]
    return (f"| {name} | {p} | {m} | {percent(r['analytic']['bubble_ratio'])} "
            f"| {percent(simulated['bubble_ratio'])} | {percent(measured['bubble_ratio'])} "
            f"| {percent(r['analytic']['bubble_ratio_span'])} "
            f"| {percent(simulated['bubble_ratio_span'])} "
            f"| {percent(measured['bubble_ratio_span'])} | {simulated['makespan']:.1f} "
            f"| {measured['makespan']:.1f} | {max(simulated['peak_in_flight']):g} "
            f"| {max(simulated['weight_versions'])} |")


def plot(groups):
    """Bars of (title, [(kind, report)]) as SVG, a panel each."""
    width, panel, left, bottom = 1180, 250, 46, 78
    parts, y = [], 30
    x = left
    for name, colour in COLOURS.items():
        parts.append(f'<rect x="{x}" y="8" width="13" height="13" fill="{colour}"/>'
                     f'<text x="{x + 18}" y="19">{name}</text>')
        x += 110
    for title, bars in groups:
        # The naive schedule, with one rank at work at a time, would flatten all others, so its bars
        # are cut off.
        shown = [v for kind, r in bars if r and kind != "naive"
                 for v in (r["analytic"]["bubble_ratio"], r["simulated"]["bubble_ratio"],
                           r["measured"]["bubble_ratio"]) if v is not None]
        highest = next(h for h in (0.1, 0.2, 0.3, 0.4, 0.6, 1.0) if h >= max(shown))
        base = y + panel - bottom
        scale = (panel - bottom - 26) / highest
        parts.append(f'<text x="{left}" y="{y + 14}" font-weight="bold">{title}</text>')
        for tick in (0, 0.25 * highest, 0.5 * highest, 0.75 * highest, highest):
            at = base - tick * scale
            parts.append(f'<path d="M{left} {at:.1f}H{width - 10}" stroke="#ddd"/>'
                         f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">'
                         f'{100 * tick:g}%</text>')
        step = (width - left - 20) / len(bars)
        for i, (kind, r) in enumerate(bars):
            at = left + 10 + i * step
            values = (r["analytic"]["bubble_ratio"], r["simulated"]["bubble_ratio"],
                      r["measured"]["bubble_ratio"]) if r else (None, None, None)
            for k, (value, colour) in enumerate(zip(values, COLOURS.values())):
                if value is None:
                    continue
                high = max(1.0, min(value, highest * 1.04) * scale)
                if value > highest and k == 0:
                    parts.append(f'<text x="{at + 0.77 * step:.1f}" y="{base - high + 11:.1f}">'
                                 f'{100 * value:.0f}%</text>')
                parts.append(f'<rect x="{at + k * step / 4:.1f}" y="{base - high:.1f}" '
                             f'width="{step / 4 - 1:.1f}" height="{high:.1f}" fill="{colour}"/>')
            parts.append(f'<text x="{at + step / 3:.1f}" y="{base + 13:.1f}" text-anchor="end" '
                         f'transform="rotate(-24 {at + step / 3:.1f} {base + 13:.1f})">{kind}'
                         '</text>')
        y += panel
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" '
            f'height="{y}" font-family="Helvetica, Arial, sans-serif" font-size="12">'
            f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n')


def scaled(times, factor):
    return re.sub(r"=([\d.]+)", lambda t: f"={float(t.group(1)) * factor:g}", times)


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    return re.search(r"model name\s*:\s*(.*)", text).group(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/trident")
    parser.add_argument("--times", default="F=5,B=5,W=5")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs")
    options = parser.parse_args()
    program = str(options.program.resolve())
    lines, groups, worst = [], [], (0.0, "naive", 2, 2)
    for p in (2, 4, 8):
        for m in (p, 2 * p, 4 * p, 8 * p):
            # One rank does all the work: p times the share, without neighbours or a bubble.
            single = report(program, "gpipe", 1, m, scaled(options.times, p))
            lines.append(row("one rank", 1, m, single))
            bars = [("one rank", single)]
            for kind in KINDS:
                r = quiet_report(program, kind, p, m, options.times)
                bars.append((kind, r))
                if r is None:
                    continue
                lines.append(row(kind, p, m, r))
                worst = max(worst, (apart(r), kind, p, m))
            print(f"p = {p}, m = {m}: furthest apart so far {worst}", flush=True)
            if m == 4 * p:
                groups.append((f"p = {p}, m = {m}: bubble by makespan", bars))
    difference, *row_of_worst = worst
    doubled = scaled(options.times, 2)
    again = apart(quiet_report(program, *row_of_worst, doubled))
    options.docs.joinpath("schedules.svg").write_text(plot(groups))
    options.docs.joinpath("schedules.md").write_text(f"""# The bubble of every schedule

Made by `bench/schedules.py` on {time.strftime('%Y-%m-%d')}: {processor()}, {platform.system()}
{platform.release()}. Times `{options.times}`, in milliseconds, for one micro-batch through one rank's
whole share; transfers are free. The formulas are those of `scheduler/analytic.h`; measured is
`trident schedule --measure`, the real executor on in-process ranks whose stages sleep, of several
runs within three seconds the shortest. Bubbles in percent, by makespan and by the longest rank's
span; asynchronous kinds (pipedream, pipedream_2bw) count between the first and the last update, and their formula is the limit of long runs. Makespans in
milliseconds; in flight in micro-batches' worth of a rank's whole share, of the rank that holds most.
Where a rank has two chunks, each action takes half of these times. The furthest apart are measured
and simulated in {row_of_worst[0]}, p = {row_of_worst[1]}, m = {row_of_worst[2]}: {100 * difference:.2f} points, and
{100 * again:.2f} with `{doubled}`.

![Bars of the bubble by formula, simulation and measurement](schedules.svg)

| kind | p | m | formula | simulated | measured | formula, span | simulated, span | measured, span | makespan simulated | measured | in flight | versions |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
""" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
