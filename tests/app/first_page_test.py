#!/usr/bin/env python3
"""Runs the commands of the first pages, docs/index.md, README.md and docs/start.md, unchanged.

    python3 tests/app/first_page_test.py build/release/trident

bash or Python runs the blocks that a page marks, one after the other in one folder; each block ends at
the first command that fails. The script first prepares the results of two steps that the pages name
first: `scripts/train` and the distribution's package give the texts data/kjv.txt and text.txt, and
`scripts/train` gives build/release/trident. `--set` options make the pages' trainings small: `trident`
is a script that adds them to `trident train`.
Prints `N passed` at the end, or an error that names the block.
"""

import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = r"<!-- tests/app/first_page_test\.py (runs what follows|writes what follows into (\S+)) -->\n"
SMALL = ["training.train_iters=2", 'scheduler={"type": "constant"}', "model.num_layers=2", "model.hidden_size=16",
         "model.num_attention_heads=4", "data.sequence_length=16", "logging.tensorboard=false"]


SHELLS = {"sh": ["bash", "-e", "-c"], "python": [sys.executable, "-c"]}


def blocks(page):
    """Returns (file to write or "", language, text) for each block that the page marks."""
    text = (ROOT / page).read_text(encoding="utf-8")
    marked = re.findall(MARK + r"```(\w+)\n(.*?)^```$", text, re.M | re.S)
    assert len(marked) == len(re.findall(MARK, text)), f"{page}: no block follows a mark"
    return [(name, language, block) for _, name, language, block in marked]


def prepare(folder, program):
    """Makes the files that scripts/train leaves, as far as the pages need them."""
    draw = random.Random(1)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randrange(1, 9))) for _ in range(300)]
    text = "".join(draw.choice(words) + draw.choice("     \n") for _ in range(20_000))
    (folder / "data").mkdir()
    (folder / "data/kjv.txt").write_text(text)
    (folder / "text.txt").write_text(text)
    path = folder / "build/release"
    path.mkdir(parents=True)
    small = " ".join(f"--set '{one}'" for one in SMALL)
    (path / "trident").write_text(f"""#!/bin/sh
if [ "$1" = train ] && ! expr "$*" : ".*--dry-run" >/dev/null; then set -- "$@" {small}; fi
exec "{program}" "$@"
""")
    (path / "trident").chmod(0o755)
    return path


def main():
    program, ran = pathlib.Path(sys.argv[1]).resolve(), 0
    for page, fewest in (("docs/index.md", 2), ("README.md", 2), ("docs/start.md", 3)):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            path = prepare(folder, program)
            environment = os.environ | {"PATH": f"{path}:{os.environ['PATH']}",
                                        "PYTHONPATH": str(ROOT / "python")}
            environment.pop("TRIDENT_PROGRAM", None)
            found = blocks(page)
            assert len(found) >= fewest, f"{page} marks {len(found)} blocks"
            for file, language, block in found:
                if file:
                    (folder / file).write_text(block)
                    continue
                done = subprocess.run([*SHELLS[language], block], cwd=folder, env=environment,
                                      stdin=subprocess.DEVNULL, capture_output=True,
                                      encoding="utf-8", errors="replace")  # a byte model writes any bytes
                assert done.returncode == 0, f"{page}:\n{block}\n{done.stdout}\n{done.stderr}"
                ran += 1
    print(f"{ran} passed")


main()
