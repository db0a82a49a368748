"""Writes the results of scripts/gpu_check as tables into a document."""

import re

BEGIN, END = "<!-- gpu_check: begin -->", "<!-- gpu_check: end -->"
# Kernels that add in a fixed order, draw numbers or multiply. A copy's rate is no limit for them.
NO_STREAM = re.compile("sum/|fill_normal|cross_entropy/losses|position/backward|gemm/|linear/|"
                       "attention/")


def row(*cells):
    return "| " + " | ".join(re.sub(r"\s*[|\n]\s*", " / ", str(cell)) for cell in cells) + " |"


def place(result):
    return ", ".join((result["device"], result["commit"], result["date"]))


def text_of(result):
    found = result.get("found") or {}
    texts = [result["status"], result.get("reason", "")[:300], *found.get("tests", ()),
             found.get("training"), found.get("summary")]
    return "; ".join(filter(None, texts))


def training_rows(shown):
    """(config, way, figures, ratio, result) of the configs that have trained."""
    for result in shown.values():
        found = result["found"]
        more = f", without {result['without']}" if "without" in result else ""
        for config, step in found.get("steps", {}).items():
            yield config, "trident, 5 steps" + more, step, None, result
        for name, way in found.get("ways", {}).items():
            ours = name == "trident"
            yield (found["config"], name + (more if ours else ""), way,
                   found.get("ratio") if ours else None, result)


def verdicts_of(shown):
    lines = []
    if "streaming" in shown:
        kernels = shown["streaming"]["found"]["kernels"]
        shares = {k: v["of_limit"] for k, v in kernels.items() if not NO_STREAM.match(k)}
        below = [f"{name} {share}" for name, share in shares.items() if share < 0.85]
        lines.append(f"{len(shares) - len(below)} of {len(shares)} streaming kernels at or above "
                     f"0.85 of the copy rate; below: {', '.join(below) or 'none'}")
    proper = {key: result for key, result in shown.items() if "without" not in result}
    for config, way, figures, ratio, _ in training_rows(proper):
        if config == "gpt2_1.5b" and way.startswith("trident") and figures.get("mfu"):
            lines.append(f"MFU of {config} ({way}) {figures['mfu']:.3f} (aim 0.55)")
        if ratio:
            lines.append(f"ratio to PyTorch of {config} {ratio:.3f} (aim 1.15)")
    return lines


def versions_of(results):
    runs = {}
    for result in results.values():
        run = runs.setdefault(place(result), {"of": place(result)})
        run.update({k: v for k, v in result["versions"].items() if v})
    return [f"- {run.pop('of')}: " + ", ".join(f"{k} {v}" for k, v in run.items())
            for _, run in sorted(runs.items())]


def table_of(results, parts):
    lines = [row("part", "what", "result", "device", "commit", "date", "last verified"),
             "|---" * 7 + "|"]
    for name in [*parts, *(key for key in results if key not in parts)]:
        about, result = parts[name.partition(" without ")[0]], results.get(name)
        if not result:
            lines.append(row(name, about, "never run on a GPU", "", "", "", "never"))
            continue
        proven = result.get("proven")
        lines.append(row(name, about, text_of(result), result["device"], result["commit"],
                         result["date"], place(proven) if proven else "never"))
    never = [name for name in parts if "proven" not in results.get(name, {})]
    lines += ["", f"Not verified on any GPU: {', '.join(never) or 'none of these parts'}."]
    if results:
        lines += ["", "Versions:", "", *versions_of(results)]
    # Shows the newest figures, or those of the last success.
    shown = {key: result if "found" in result else {**result["proven"], "status": "passed"}
             for key, result in results.items() if "found" in result or "proven" in result}
    if verdicts := verdicts_of(shown):
        lines += ["", *[f"- {text}." for text in verdicts]]
    refused = {re.sub(r", [\d.]+ against [\d.]+ us$", "", text)
               for key, result in results.items() if key.startswith(("train_", "first_look"))
               for text in result.get("refused", ())}
    if refused:
        lines += ["", "Operations for which cuBLASLt and cuDNN had no kernel in these trainings, so "
                  "that our kernels or several steps computed them:", "",
                  *[f"- {text[:200]}" for text in sorted(refused)]]
    if "device" in shown:
        device = shown["device"]["found"]
        rates = ", ".join(f"{k} {v}" for k, v in device["product_tflops"].items())
        lines += ["", f"Device: {'; '.join(device['gpus'])}; {device['device']}. Products, "
                  f"TFLOP/s: {rates} ({place(shown['device'])})."]
    if rows := list(training_rows(shown)):
        lines += ["", row("model", "way", "tokens/s", "least to most", "MFU", "peak GB", "ratio",
                          "device", "commit", "date"), "|---" * 10 + "|"]
    for config, way, f, ratio, result in rows:
        at = (result["device"], result["commit"], result["date"])
        if "error" in f:
            lines.append(row(config, way, "failed: " + f["error"][:100], "", "", "", "", *at))
            continue
        sdpa = f" ({f['sdpa'][0]} first)" if f.get("sdpa") else ""
        lines.append(row(config, way + sdpa, f"{f['tokens_per_second']:.0f}",
                         f"{f['least']:.0f} to {f['most']:.0f}" if "least" in f else "",
                         f"{f['mfu']:.3f}" if f["mfu"] else "", f"{f['peak_bytes'] / 1e9:.2f}",
                         f"{ratio:.3f}" if ratio else "", *at))
    if "saves" in shown:
        f = shown["saves"]["found"]["saves"]
        pauses = ", ".join(map(str, f["pauses_ms"])) or "none"
        lines += ["", f"Asynchronous saves of {f['bytes'] / 1e6:.0f} MB: iterations take "
                  f"{f['usual_ms']} ms, during the first save {f['beside_first_ms']} ms, during the "
                  f"second {f['beside_second_ms']} ms; training waited for {pauses} ms; "
                  f"{f['staging_bytes'] / 1e6:.0f} MB of copies ({place(shown['saves'])})."]
    if "streaming" in shown:
        lines += ["", f"Kernels on {place(shown['streaming'])}:", "",
                  row("kernel", "µs", "GB/s", "TFLOP/s", "of its limit"), "|---" * 5 + "|"]
        for name, kernel in shown["streaming"]["found"]["kernels"].items():
            lines.append(row(name, kernel["microseconds"], kernel["gb_per_second"],
                             kernel["tflops"] or "", kernel["of_limit"]))
    return "\n".join(lines)


def merged(all_results):
    """The newest result of each part, with its newest success."""
    results = {}
    for one in all_results:
        for key, result in one.items():
            both = sorted(filter(None, (results.get(key), result)), key=lambda r: r["run"])
            proven = [r["proven"] for r in both if "proven" in r]
            results[key] = both[-1]
            if proven:
                results[key]["proven"] = max(proven, key=lambda p: p["run"])
    return results


def write(path, results, parts):
    """Puts the tables between the marks of the document; parts: the description of each part."""
    text = path.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    path.write_text(text[:begin] + "\n" + table_of(results, parts) + "\n" + text[end:])
