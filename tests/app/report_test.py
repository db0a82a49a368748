#!/usr/bin/env python3
"""Looks at report.html and the schedule pictures in a real browser (headless Chromium).

    python3 tests/app/report_test.py build/release/trident

A small run writes report.html; a script added to a copy of it tells where each figure lies, and a
screenshot shows whether there is a drawing at that place: enough pixels that are neither paper nor
ink of text, in more than one colour. The report may not load anything. Then the same for the SVG of
`schedule`. Ends with `N passed`, or an error that names the figure.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

FIGURES = {"loss": 1, "speed": 1, "bubble": 3, "bubble-by-rank": 1, "memory": 2, "gradient-norm": 1,
           "learning-rate": 1, "timeline": 4}  # and how many colours each has at least
MEASURE = """<script>document.body.appendChild(Object.assign(document.createElement("pre"),
{id: "boxes", textContent: JSON.stringify([...document.querySelectorAll("%s")].map(f => {
const b = f.getBoundingClientRect(); return [f.id, b.left, b.top, b.width, b.height]; }))}))</script>
"""


def chromium(*arguments):
    """Its output; the profile is its own and goes with it."""
    with tempfile.TemporaryDirectory() as profile:
        run = subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", f"--user-data-dir={profile}", *arguments],
            capture_output=True, text=True, timeout=120, check=True)
        return run.stdout


def pixels(path):
    """Rows of (r, g, b) of an 8-bit PNG without interlace, as Chromium writes them."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        size, kind = int.from_bytes(data[at:at + 4], "big"), data[at + 4:at + 8]
        if kind == b"IHDR":
            width, height = (int.from_bytes(data[at + 8 + i:at + 12 + i], "big") for i in (0, 4))
            depth, colour = data[at + 16], data[at + 17]
            assert depth == 8 and colour in (2, 6) and data[at + 20] == 0
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += 12 + size
    step = 3 if colour == 2 else 4
    raw, rows, above = zlib.decompress(packed), [], bytearray(width * step)
    for y in range(height):
        begin = y * (width * step + 1)
        how, row = raw[begin], bytearray(raw[begin + 1:begin + 1 + width * step])
        for i in range(len(row)) if how else ():
            left = row[i - step] if i >= step else 0
            up, corner = above[i], above[i - step] if i >= step else 0
            if how == 1:
                row[i] = (row[i] + left) & 255
            elif how == 2:
                row[i] = (row[i] + up) & 255
            elif how == 3:
                row[i] = (row[i] + (left + up) // 2) & 255
            else:
                p = left + up - corner
                best = min((abs(p - left), 0, left), (abs(p - up), 1, up),
                           (abs(p - corner), 2, corner))[2]
                row[i] = (row[i] + best) & 255
        rows.append(row)
        above = row
    return rows, step


def drawn_colours(image, box):
    """Colours, coarsely, of at least 30 pixels in `box` that are no shade of grey."""
    rows, step = image
    _, left, top, width, height = box
    count = {}
    for row in rows[max(0, int(top)):int(top + height)]:
        for x in range(max(0, int(left)), int(min(left + width, len(row) // step))):
            r, g, b = row[x * step:x * step + 3]
            if max(r, g, b) - min(r, g, b) > 60:
                key = (r // 48, g // 48, b // 48)
                count[key] = count.get(key, 0) + 1
    return [key for key, n in count.items() if n >= 30]


def look(folder, name, html, selector, wanted, size):
    """Opens `html` and checks that every element that `selector` finds has been drawn."""
    assert not re.search(r"(src|href)\s*=|@import|url\(", html), f"{name} loads something"
    page = folder / f"{name}.html"
    page.write_text(html + MEASURE % selector)
    window = f"--window-size={size}"
    dom = chromium(window, "--dump-dom", page.as_uri())
    boxes = json.loads(re.search(r'<pre id="boxes">(.*?)</pre>', dom, re.S).group(1)
                       .replace("&quot;", '"'))
    assert sorted(b[0] for b in boxes) == sorted(wanted), f"{name}: figures {boxes}"
    picture = folder / f"{name}.png"
    chromium(window, f"--screenshot={picture}", page.as_uri())
    image = pixels(picture)
    for box in boxes:
        colours = drawn_colours(image, box)
        assert box[3] > 100 and box[4] > 40, f"{name}: {box} is too small to see"
        assert len(colours) >= wanted[box[0]], f"{name}: {box[0]} shows only {colours}"
    return len(boxes)


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    if not shutil.which("chromium"):
        sys.exit("report_test: chromium is not installed (scripts/packages_browser.txt)")
    with tempfile.TemporaryDirectory() as name:
        folder, looked = pathlib.Path(name), 0
        (folder / "text.txt").write_text("In the beginning was the word & the <word>. " * 200)
        (folder / "c.json").write_text(json.dumps({
            "model": {"architecture": "gpt2", "num_layers": 4, "hidden_size": 32,
                      "num_attention_heads": 2, "max_position_embeddings": 16, "vocab_size": 256},
            "parallel": {"pipeline_model_parallel_size": 2, "tensor_model_parallel_size": 1,
                         "data_parallel_size": 2},
            "pipeline": {"schedule": "zbv"},
            "batch": {"micro_batch_size": 1, "global_batch_size": 8},
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
            "data": {"train": [{"path": "text.txt", "weight": 1}],
                     "validation": [{"path": "text.txt", "weight": 1}]},
            "training": {"train_iters": 12, "eval_interval": 4, "eval_iters": 1},
            "logging": {"dir": "run"}}))
        run = subprocess.run([program, "train", "c.json"], cwd=folder, capture_output=True,
                             text=True)
        assert run.returncode == 0, run.stderr
        assert "run/report.html" in run.stdout, run.stdout
        html = (folder / "run/report.html").read_text()
        assert "predicted bubble" in html and html.index("predicted bubble") < html.index(
            "measured bubble")
        looked += look(folder, "report", html, "figure", FIGURES, "1260,2000")
        for kind, m in (("1f1b", 8), ("dualpipev", 16)):
            svg = subprocess.run([program, "schedule", "--kind", kind, "--stages", "4",
                                  "--microbatches", str(m), "--format", "svg"],
                                 capture_output=True, text=True, check=True).stdout
            body = "<!DOCTYPE html><html><body>" + svg.replace("<svg ", '<svg id="drawing" ', 1)
            looked += look(folder, kind, body, "svg", {"drawing": 2 if kind == "1f1b" else 4}, "1300,300")
    print(f"{looked} passed")


if __name__ == "__main__":
    main()
