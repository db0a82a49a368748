#!/usr/bin/env python3
"""Tests report.html and the schedule pictures in a real browser (headless Chromium).

    python3 tests/app/report_test.py build/release/trident [--full] [--keep FOLDER]

Runs write their folders: some with losses that aren't finite, with spikes, of one iteration, or
resumed in another layout. `trident report` draws single runs, and three and five runs on one page. The
windows are 390, 1,280 and 1,920 pixels wide, light and dark (--full: each run in each window). A script
that the test adds to a copy of the page reports the position of every element. No element may be
cropped, and no text may be too faint or too small to read. A screenshot must show a drawing in each
figure: enough pixels, in more than one colour, that are neither background nor text. The page may not
load any file. The script also tries zooming, smoothing, the axes and hiding. The SVG of `schedule`
gets the same checks. Prints `N passed` at the end, or an error that names the figure. --keep keeps the
pages and their screenshots.
"""

import json
import math
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

# The least number of colours in each figure.
FIGURES = {"loss": 1, "gradient-norm": 1, "learning-rate": 1, "speed": 1, "mfu": 1, "parts": 3, "bubble": 2,
           "bubble-by-rank": 1, "traffic": 1, "memory": 4, "timeline-0-0": 3, "timeline-0-1": 3}
WINDOWS = [(390, "dark"), (1280, "light"), (1920, "dark"), (390, "light"), (1280, "dark"), (1920, "light")]
MEASURE = r"""<script>
function channels(text) {  // "rgb(1, 2, 3)", "rgba(…)", "color(srgb 0.1 0.2 0.3)"
  const numbers = text.match(/[\d.]+/g).map(Number), unit = text.startsWith("color") ? 1 : 255;
  return {rgb: numbers.slice(0, 3).map(v => v / unit), alpha: numbers.length > 3 ? numbers[3] : 1};
}
function luminance(rgb) {  // WCAG 2.2
  const [r, g, b] = rgb.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function behind(element) {
  if (element.matches("text.box")) return channels(getComputedStyle(element.previousElementSibling).fill).rgb;
  for (let e = element; e; e = e.parentElement) {
    const back = channels(getComputedStyle(e).backgroundColor);
    if (back.alpha === 1) return back.rgb;
  }
  return [1, 1, 1];
}
const faint = [], cropped = [], small = [];
for (const e of document.querySelectorAll("body *")) {
  if (e.closest("script, style, title") || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
  const box = e.getBoundingClientRect(), style = getComputedStyle(e);
  if (box.width === 0) continue;
  const ink = channels(e instanceof SVGElement ? style.fill : style.color).rgb;
  const [a, b] = [luminance(ink), luminance(behind(e))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(`${e.tagName}.${e.getAttribute("class")} "${e.textContent.slice(0, 30)}" ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  const drawn = e instanceof SVGElement && e.closest("svg"), scale = drawn && drawn.viewBox.baseVal ? drawn.getBoundingClientRect().width / drawn.viewBox.baseVal.width : 1;
  if (parseFloat(style.fontSize) * scale < 11.9) small.push(`${e.tagName} "${e.textContent.slice(0, 30)}" ${(parseFloat(style.fontSize) * scale).toFixed(1)}`);
  const frame = e instanceof SVGElement ? e.closest("svg").getBoundingClientRect() : document.documentElement.getBoundingClientRect();
  const scrolls = e.closest(".scroll, .table, .wide, pre");
  if (!scrolls && (box.left < frame.left - 1 || box.right > frame.right + 1 || (e instanceof SVGElement && (box.top < frame.top - 1 || box.bottom > frame.bottom + 1)))) {
    cropped.push(`${e.tagName} "${e.textContent.slice(0, 30)}" ${box.left.toFixed(0)}-${box.right.toFixed(0)} in ${frame.left.toFixed(0)}-${frame.right.toFixed(0)}`);
  }
}
const spot = c => `${Math.round(+c.getAttribute("cx"))} ${Math.round(+c.getAttribute("cy"))}`;
parent.postMessage(JSON.stringify({
  width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight, window: innerWidth, faint, cropped, small,
  beyond: [...document.querySelectorAll(".scroll")].map(s => [s.closest("[id]").id, s.scrollWidth - s.clientWidth]),
  dots: [...document.querySelectorAll("figure")].map(f => [f.id, new Set([...f.querySelectorAll("circle.mark:not([fill=none])")].map(spot)).size]),
  restarts: [...document.querySelectorAll("#resumptions li")].map(one => one.textContent),
  moved: [...document.querySelectorAll("figure")].filter(f => f.querySelector(".resumed.moved")).map(f => f.id),
  odd: [...document.querySelectorAll("svg text")].map(t => t.textContent).filter(t => /e[+-]?0$|NaN|undefined/.test(t)), tried: window.tried || null,
  cut: [...document.querySelectorAll("figure")].flatMap(f => (f.textContent.match(/cut above .*\)/) || []).map(text => `${f.id}: ${text}`)),
  axes: Object.fromEntries([...document.querySelectorAll("figure")].map(f => [f.id, [...f.querySelectorAll("svg text[text-anchor=end]")].map(t => Number(t.textContent)).filter(v => !isNaN(v))])),
  boxes: [...document.querySelectorAll("SELECTOR")].map(f => { const b = f.getBoundingClientRect(); return [f.id, b.left, b.top, b.width, b.height]; })}), "*");
</script>
"""
# Windows of headless Chromium are at least 500 pixels wide; frames may have any width. Each frame
# reports under its number.
FRAMES = """<!DOCTYPE html><body><script>addEventListener("message", event => {
const number = [...document.querySelectorAll("iframe")].findIndex(one => one.contentWindow === event.source);
document.body.appendChild(Object.assign(document.createElement("pre"), {id: "measured" + number, textContent: event.data})); });</script>"""
FRAME = """<iframe src="%s" style="border:0;width:%dpx;height:%dpx"></iframe>"""
# The actions of a user on the page.
TRY = r"""<script>
SVGElement.prototype.setPointerCapture = () => {};
const loss = () => document.querySelector("#loss svg"), path = () => loss().querySelector("path.series").getAttribute("d");
const at = (type, part) => { const b = loss().getBoundingClientRect(); loss().dispatchEvent(new PointerEvent(type, {pointerId: 1, clientX: b.left + b.width * part, clientY: b.top + b.height / 2, bubbles: true})); };
const numbers = () => [...loss().querySelectorAll("text")].map(t => t.textContent);
const tried = window.tried = {};
const before = path();
at("pointermove", 0.5);
tried.tip = document.querySelector("#loss .tip").textContent;
const smooth = document.getElementById("smooth"), log = document.getElementById("log");
smooth.value = "0.9"; smooth.dispatchEvent(new Event("input"));
tried.smoothed = path() !== before;
smooth.value = "0"; smooth.dispatchEvent(new Event("input"));
log.checked = true; log.dispatchEvent(new Event("change"));
tried.logarithmic = path() !== before;
log.checked = false; log.dispatchEvent(new Event("change"));
tried.back = path() === before;
at("pointerdown", 0.4); at("pointermove", 0.5); at("pointerup", 0.6);
tried.zoomed = path() !== before;
tried.numbers = numbers();
loss().dispatchEvent(new MouseEvent("dblclick", {bubbles: true}));
tried.whole = path() === before;
const name = () => loss().querySelectorAll("text.dim")[1].textContent, numbersOf = id => [...document.querySelectorAll(`#${id} svg text:not([text-anchor=end]):not(.resumption):not(.dim)`)].map(t => t.textContent).join();
const choose = axis => document.querySelector(`input[name=along][value=${axis}]`).click();
choose("tokens"); tried.tokens = name(); at("pointermove", 0.5); tried.at_tokens = document.querySelector("#loss .tip").textContent;
choose("seconds"); tried.seconds = name();
choose("iteration"); tried.iterations = name() === "iteration" && path() === before;
tried.parts_before = numbersOf("parts"); at("pointerdown", 0.4); at("pointerup", 0.6);
tried.parts_zoomed = numbersOf("parts"); tried.speed_zoomed = numbersOf("speed"); loss().dispatchEvent(new MouseEvent("dblclick", {bubbles: true}));
const curves = () => loss().querySelectorAll("path.series").length, button = [...document.querySelectorAll("#loss .legend button")].find(b => b.textContent === "validation");
tried.curves = curves(); button.focus(); button.click();
tried.hidden = curves(); tried.pressed = button.getAttribute("aria-pressed"); tried.focus = document.activeElement === button && button.isConnected;
button.click(); tried.shown = curves();
const line = document.querySelector("#timeline-0-1"), boxes = () => line.querySelectorAll("svg rect").length, all = boxes();
line.querySelector("button").click(); line.querySelector("button").click();
tried.fewer = boxes() < all;
line.querySelectorAll("button")[2].click();
tried.again = boxes() === all;
</script>
"""


# A user looks at a statistic of an earlier iteration.
TRY_TIME = r"""<script>
const map = document.querySelector("#statistic-1-tokens-an-expert"), time = map.querySelector("input[type=range]");
const first = () => map.querySelector("rect.cell title").textContent, note = () => map.querySelector(".note").textContent;
const tried = window.tried = {last: [first(), note()], frames: +time.max + 1};
time.value = "0"; time.dispatchEvent(new Event("input"));
tried.first = [first(), note()];
</script>
"""


# A user hides one of several runs and shows it again.
TRY_SEVERAL = r"""<script>
const seen = () => [...document.querySelectorAll("figure")].filter(f => f.getBoundingClientRect().height > 0).map(f => f.id);
const count = (id, what) => document.querySelectorAll(`#${id} ${what}`).length;
const counts = () => ({series: count("speed", "path.series"), bars: count("traffic", "rect.bar"), figures: seen()});
const toggle = document.querySelectorAll("#shown button")[1], tried = window.tried = {before: counts()};
toggle.click(); tried.hidden = counts();
toggle.click(); tried.again = counts();
for (const one of document.querySelectorAll("#shown button")) one.click();
tried.none = document.querySelector("#loss").textContent;
for (const one of document.querySelectorAll("#shown button")) one.click();
</script>
"""


def chromium(*arguments):
    """Returns Chromium's output. The profile is temporary."""
    with tempfile.TemporaryDirectory() as profile:
        run = subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", f"--user-data-dir={profile}", *arguments],
            capture_output=True, text=True, timeout=120, check=True)
        return run.stdout


def pixels(path):
    """Returns the rows of (r, g, b) of an 8-bit PNG without interlace, as Chromium writes them."""
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
    """Returns the colours, rounded, with at least 30 pixels in `box` that are not grey."""
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


class Look:
    """A check of an HTML page in a window. `wanted`: the ids of the elements that `selector` finds,
    each with its least number of colours; `more`: text added to the page; `picture`: whether
    colours are checked."""

    def __init__(self, name, html, selector, wanted, size, scheme="light", more="", picture=True):
        self.name, self.html, self.selector, self.wanted, self.more = name, html, selector, wanted, more
        self.width, self.height = map(int, size.split(","))
        self.scheme, self.picture = scheme, picture

    def blink(self):
        return f"--blink-settings=preferredColorScheme={0 if self.scheme == 'dark' else 1}"

    def check(self, folder, measured):
        name, boxes = self.name, measured["boxes"]
        assert sorted(b[0] for b in boxes) == sorted(self.wanted), f"{name}: figures {[b[0] for b in boxes]}"
        assert measured["window"] == self.width, measured["window"]
        assert measured["width"] <= self.width, f"{name}: {measured['width']} wide in a window of {self.width}"
        for what in ("cropped", "odd", "faint") + (("small",) if self.selector == "figure" else ()):
            assert not measured[what], f"{name}: {what}: {measured[what][:5]}"
        for box in boxes:
            assert box[3] > 100 and box[4] > 40, f"{name}: {box} is too small to see"
        if not self.picture:
            return
        page, picture = folder / f"{name}.html", folder / f"{name}.png"
        page.write_text(self.html)
        chromium(f"--window-size={self.width},{max(measured['height'], 600)}", self.blink(), f"--screenshot={picture}", page.as_uri())
        image = pixels(picture)
        for box in boxes:
            colours = drawn_colours(image, box)
            assert len(colours) >= self.wanted[box[0]], f"{name}: {box[0]} shows only {colours}"


def look_at(folder, looks):
    """Checks the report of each page. Chromium starts once for each colour scheme, and once for
    each picture."""
    measured = {}
    for scheme in ("light", "dark"):
        own = [one for one in looks if one.scheme == scheme]
        if not own:
            continue
        frames = FRAMES
        for one in own:
            outside = re.sub(r"<script type=.*?</script>", "", one.html, flags=re.S)  # without the data
            assert not re.search(r"(src|href)\s*=|@import|url\((?!#)", outside.replace("url(#clip-${id})", "")), f"{one.name} loads something"
            (folder / f"{one.name}.html").write_text(one.html + one.more + MEASURE.replace("SELECTOR", one.selector))
            frames += FRAME % (f"{one.name}.html", one.width, one.height)
        frame = folder / f"{scheme}.frames.html"
        frame.write_text(frames)
        dom = chromium("--virtual-time-budget=5000", own[0].blink(), "--dump-dom", frame.as_uri())
        frame.unlink()
        for number, one in enumerate(own):
            found = re.search(rf'<pre id="measured{number}">(.*?)</pre>', dom, re.S)
            assert found, f"{one.name}: its script has failed"
            text = found.group(1)
            for escaped, plain in (("&quot;", '"'), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
                text = text.replace(escaped, plain)
            measured[one.name] = json.loads(text)
            one.check(folder, measured[one.name])
    return measured


def config(dir, iterations, pipeline):
    return {
        "model": {"architecture": "gpt2", "num_layers": 4, "hidden_size": 32,
                  "num_attention_heads": 2, "max_position_embeddings": 16, "vocab_size": 256},
        "parallel": {"pipeline_model_parallel_size": pipeline, "data_parallel_size": pipeline},
        "pipeline": {"schedule": "zbv" if pipeline > 1 else "1f1b"},
        "batch": {"micro_batch_size": 1, "global_batch_size": 8},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "data": {"train": [{"path": "text.txt"}], "validation": [{"path": "text.txt"}]},
        "training": {"train_iters": iterations, "eval_interval": 4, "eval_iters": 1},
        "checkpoint": {"save": dir + "/weights"},
        "logging": {"dir": dir}}


def another(folder, name, iterations, change):
    """Makes the folder of a run of this many iterations from run's; `change` edits its lines."""
    made = folder / name
    made.mkdir(parents=True)
    for file in ("config.json", "run.json", "timeline.json"):
        shutil.copy(folder / "run" / file, made / file)
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    with open(made / "metrics.jsonl", "w") as file:
        for k in range(1, iterations + 1):
            line = {**lines[min(k, len(lines)) - 1], "iteration": k, "consumed_tokens": 128 * k,
                    "wall_time": lines[0]["wall_time"] + 0.5 * k}
            line.pop("validation_loss", None)
            change(k, line)
            file.write(json.dumps(line) + "\n")


def of_nan(k, line):
    line["parts_ms"] = {name: 50 if k == 1 else 2 for name in line["parts_ms"]}
    line["loss"] = 3 * math.exp(-k / 50)
    if 20 <= k < 25 or k == 60:
        line["loss"] = line["grad_norm"] = None
    of_a_model(k, line)


def of_a_model(k, line):
    """Figures of the model's own; a layer has none."""
    line["auxiliary_losses"] = {"load <balance>": 0.01 + 1 / k}
    line["statistics"] = {"entropy": [[2 + math.sin(k / 9)], [], [2]],
                          "tokens an expert": [[k, 5, 100 - k, 30], [], [0, 0, 90, 45]]}


MODEL_FIGURES = {"auxiliary-0-load-balance-": 1, "statistic-0-entropy": 1, "statistic-1-tokens-an-expert": 1}


def of_spikes(k, line):
    line["parts_ms"] = {name: 2 if k < 2600 else 10 for name in line["parts_ms"]}  # most are short
    line["loss"] = 8 * math.exp(-k / 800) + 0.8 + 0.2 * random.random() + (6 if k in (1234, 3210) else 0)
    line["tokens_per_second"] = 1e6 if k in (77, 1234, 3210) else 1000 + k % 100
    line["learning_rate"] = 3e-4 * min(1, k / 200)
    line["batch_size"] = 8 if k < 1000 else 16
    if k % 500 == 0:
        line["validation_loss"] = {"books": line["loss"] + 0.1, "a set with a long name": 2}


def of_restarts(folder):
    """A run that resumed twice: after iteration 20 in another layout, at its second attempt, and
    after 40. The iterations after 30 were trained again."""
    another(folder, "restarts", 60, lambda k, line: None)
    about = json.loads((folder / "restarts/run.json").read_text())
    first = {**about["starts"][0], "layout": "data 2 × <b>tensor</b> 1"}
    moved = {**first, "layout": "data 1 × <b>tensor</b> 2"}
    about["starts"] = [{**start, "after": after, "time": first["time"] + after}
                       for after, start in ((0, first), (30, first), (20, moved), (20, moved), (40, moved))]
    (folder / "restarts/run.json").write_text(json.dumps(about))


def make_runs(folder, trident):
    (folder / "text.txt").write_text("In the beginning was the word & the </script><word>. " * 200)
    for name, of in (("c", ("run", 40, 2)), ("one", ("one", 1, 1)), ("again", ("again", 3, 1))):
        (folder / f"{name}.json").write_text(json.dumps(config(*of)))
    assert "run/report.html" in trident("train", "c.json")
    trident("train", "one.json")
    alike = ["checkpoint.save_interval=3", "runtime.threads_per_rank=1"]
    for more in ([], ["training.train_iters=6", "parallel.data_parallel_size=2"]):
        trident("train", "again.json", *(word for key in alike + more for word in ("--set", key)))
    another(folder, "nan", 100, of_nan)
    another(folder, "spikes", 5000, of_spikes)
    another(folder, "none", 3, lambda k, line: line.update(loss=None))
    of_restarts(folder)
    names = ("0.1", "0.01", "a run with quite a long name", "<img src=x onerror=alert(1)>", "fifth")
    for k, name in enumerate(names):
        another(folder, f"runs/{name}", 60 + 10 * k, lambda k, line: (line.update(loss=math.exp(-k / 40)), of_a_model(k, line)))
    for one in ("nan", "spikes", "none", "restarts"):
        trident("report", one)
    trident("report", "runs/0.1", "runs/0.01/", f"runs/{names[2]}", "--out", "three.html")
    trident("report", *(f"runs/{name}" for name in names), "--out", "five.html")


def pages_of(full):
    """Returns (page, its figures, its windows) for all pages; a page is checked in the first few of
    WINDOWS."""
    single = {k: v for k, v in FIGURES.items() if k not in ("bubble", "bubble-by-rank", "traffic")}
    single |= {"timeline-0-0": 2, "timeline-0-1": 2, "parts": 1}
    again = single | {"traffic": 1, "parts": 2, "timeline-0-2": 3, "timeline-0-3": 3}

    def several(runs):
        figures = {k: v for k, v in FIGURES.items() if not k.startswith(("parts", "memory", "timeline"))}
        for r in range(runs):
            figures |= {f"parts-{r}": 3, f"memory-{r}": 4, f"timeline-{r}-0": 3, f"timeline-{r}-1": 3}
        heat_maps = {f"statistic-1-tokens-an-expert-{r}": 1 for r in range(runs)}
        curves = {"auxiliary-0-load-balance-": 1, "statistic-0-entropy": 1}  # of all runs on top of each other
        return figures | {"loss": 3} | curves | heat_maps

    pages = [("run/report", FIGURES, 4), ("one/report", single, 1), ("nan/report", FIGURES | MODEL_FIGURES, 2),
             ("spikes/report", FIGURES | {"batch-size": 1, "loss": 3}, 2),
             ("none/report", FIGURES | {"loss": 0}, 1), ("again/report", again, 2),
             ("restarts/report", FIGURES, 2), ("three", several(3), 2), ("five", several(5), 2)]
    return [(page, wanted, WINDOWS[:6 if full else windows]) for page, wanted, windows in pages]


def check_tried(tried):
    assert tried["tip"].startswith("iteration ") and "training: " in tried["tip"], tried
    assert all(tried[key] for key in ("smoothed", "logarithmic", "back", "zoomed", "whole", "fewer", "again", "iterations")), tried
    assert "1" not in tried["numbers"] and "20" in tried["numbers"], tried
    # The axes are tokens and time.
    assert tried["tokens"] == "thousand tokens" and "since the start" in tried["seconds"], tried
    assert " tokens" in tried["at_tokens"] and "at iteration " in tried["at_tokens"], tried
    # The parts of the step follow the zoom of the curves.
    assert tried["parts_before"] != tried["parts_zoomed"] == tried["speed_zoomed"], tried
    # A button hides a curve and keeps the focus.
    assert (tried["curves"], tried["hidden"], tried["shown"]) == (2, 1, 2) and tried["pressed"] == "false" and tried["focus"], tried


def check_time(tried):
    assert tried["frames"] == 40, tried
    assert tried["first"] == ["layer 0, 0: 1", "iteration 1; darkest: 100"], tried
    assert tried["last"] == ["layer 0, 0: 100", "iteration 100; darkest: 100"], tried


def check_hidden(tried):
    before, hidden = tried["before"], tried["hidden"]
    assert (before["series"], hidden["series"]) == (3, 2) and 3 * hidden["bars"] == 2 * before["bars"] > 0, tried
    assert set(before["figures"]) - set(hidden["figures"]) == {"parts-1", "memory-1", "timeline-1-0", "timeline-1-1"}, tried
    assert tried["again"] == before and "all of it is hidden" in tried["none"], tried


def check_texts(page, width, measured):
    # A figure cuts off a long first iteration, but not the later ones of a ramp. Spikes of speed
    # don't determine its axis.
    cut = {"nan/report": {"parts": ["cut above 10 ms: up to 200 ms (iteration 1)"]},
           "spikes/report": {"parts": [], "speed": ["cut above 1370 tokens/s: 3 spikes, up to 1000000 tokens/s (near iteration 78)"]}}
    for figure, words in cut.get(page, {}).items():
        own = [text.removeprefix(f"{figure}: ") for text in measured["cut"] if text.startswith(f"{figure}: ")]
        assert own == words, f"{page}: {figure}: {own}"
    if page == "spikes/report":
        assert 1000 <= max(measured["axes"]["speed"]) < 1500, measured["axes"]
    moved = {"again/report": ["1: resumed after iteration 3 in layout data 2 × tensor 1 × pipeline 1 (before: data 1 × tensor 1 × pipeline 1)"],
             "restarts/report": ["1: resumed after iteration 20 in layout data 1 × <b>tensor</b> 2 (before: data 2 × <b>tensor</b> 1)",
                                 "2: resumed after iteration 40 in the same layout, data 1 × <b>tensor</b> 2"]}
    numbered = [f"{k + 1}: {words}" for k, words in enumerate(measured["restarts"])]
    assert numbered == moved.get(page, []), f"{page}: {numbered}"
    curves = {"loss", "gradient-norm", "learning-rate", "speed", "mfu", "parts"}
    assert set(measured["moved"]) - {"bubble"} == (curves if page in moved else set()), f"{page}: {measured['moved']}"
    # A phone shows the facts of all runs, however many there are.
    if width == 390:
        assert all(by <= 0 for _, by in measured["beyond"]), f"{page}: {measured['beyond']}"


def check_words(folder):
    html = (folder / "run/report.html").read_text()
    assert html.index("predicted bubble") < html.index("measured bubble")
    cpu = "AMD" if "AMD" in pathlib.Path("/proc/cpuinfo").read_text() else "Intel"
    for fact in ("perplexity", "best validation", "trident train c.json", cpu, "And "):  # the sample
        assert fact in html, f"report.html doesn't say {fact}"
    # A resumed run also shows the iterations before.
    data = re.search(r'id="runs">(.*?)</script>', (folder / "again/report.html").read_text(), re.S)[1]
    assert json.loads(data)[0]["curves"]["iteration"] == [1, 2, 3, 4, 5, 6], data[:500]


def schedules(program):
    for kind, m in (("1f1b", 8), ("dualpipev", 16)):
        svg = subprocess.run([program, "schedule", "--kind", kind, "--stages", "4",
                              "--microbatches", str(m), "--format", "svg"],
                             capture_output=True, text=True, check=True).stdout
        body = "<!DOCTYPE html><html><body style='margin:0;background:#fff'>" + svg.replace("<svg ", '<svg id="drawing" ', 1)
        yield Look(kind, body, "svg", {"drawing": 2 if kind == "1f1b" else 4}, "1800,300")


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    full = "--full" in sys.argv
    if not shutil.which("chromium"):
        sys.exit("report_test: chromium is not installed (scripts/packages_browser.txt)")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "--keep" in sys.argv:
            folder = pathlib.Path(sys.argv[sys.argv.index("--keep") + 1]).resolve()
            folder.mkdir(parents=True)

        def trident(*arguments):
            run = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True)
            assert run.returncode == 0, run.stderr
            return run.stdout

        make_runs(folder, trident)
        check_words(folder)
        looks, of = list(schedules(program)), {}
        for page, wanted, windows in pages_of(full):
            html = (folder / f"{page}.html").read_text()
            for width, scheme in windows:
                more = {"run/report": TRY, "nan/report": TRY_TIME, "three": TRY_SEVERAL}.get(page, "") if width == 1280 else ""
                looks.append(Look(f"{page.replace('/', '-')}-{width}-{scheme}", html, "figure", wanted, f"{width},1000",
                                  scheme, more, full or (width, scheme) == WINDOWS[0] and page not in ("again/report", "restarts/report", "five")))
                of[looks[-1].name] = (page, width)
        for name, measured in look_at(folder, looks).items():
            page, width = of.get(name, ("", 0))
            check_texts(page, width, measured)
            if measured["tried"]:
                {"run/report": check_tried, "nan/report": check_time, "three": check_hidden}[page](measured["tried"])
    print(f"{sum(len(look.wanted) for look in looks)} passed")


if __name__ == "__main__":
    main()
