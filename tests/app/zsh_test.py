#!/usr/bin/env python3
"""Tests zsh's completions from `trident completion zsh`, in an interactive zsh on its own terminal.

    python3 tests/app/zsh_test.py build/release/trident

Exits with 77 if there is no zsh. Prints `N passed` at the end, or an error with its place.
"""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
# The text typed before Tab, and the expected line, or a list of the expected words on the screen
# with their descriptions.
CASES = (
    ("trident tra", "trident train "),
    ("trident ", ["simulate", "-- Predict a step on a machine"]),
    ("trident train --dry", "trident train --dry-run "),
    ("trident train c.json --", ["--quiet", "-- Print problems only"]),
    ("trident train c.json --format ", ["json", "text"]),
    ("trident train c.json --format=js", "trident train c.json --format=json "),
    ("trident bench ge", "trident bench gemm "),
    ("trident bench machine --ro", "trident bench machine --rounds "),
    ("trident schedule compare --kept", "trident schedule compare --kept-for-weights "),
    ("trident train a-conf", "trident train a-config.json "),
)
# Ctrl-X b shows the line.
BEGIN = ("stty cols 200 rows 200; unsetopt BEEP; show-line() { print -r -- \"LINE<$BUFFER>\" }; "
         "zle -N show-line; bindkey '^Xb' show-line; autoload -U compinit; compinit -D -u; ")


class Zsh:
    def __init__(self, folder):
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.environ |= {"TERM": "xterm", "PS1": "ready> ", "COLUMNS": "200", "LINES": "200"}
            os.execvp("zsh", ["zsh", "-f", "-i"])
        self.pid = pid

    def type(self, text):
        os.write(self.terminal, text.encode())

    def shown(self, *expected):
        """Reads until all these texts have come, without the codes that move the cursor."""
        text, end = "", time.monotonic() + 20
        while time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.1)[0]:
                text += os.read(self.terminal, 1 << 16).decode(errors="replace")
            plain = re.sub("\x1b\\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r", "", text)
            if all(one in plain for one in expected):
                return
        raise AssertionError(f"{expected} is not in {text!r}")

    def end(self):
        self.type("\x03\x04exit\n")
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


def main():
    if not shutil.which("zsh"):
        print("zsh isn't installed")
        sys.exit(77)
    script = subprocess.run([PROGRAM, "completion", "zsh"], capture_output=True, text=True,
                            check=True).stdout
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "_trident").write_text(script)
        (folder / "empty").mkdir()
        (folder / "empty/a-config.json").write_text("{}")
        # First sourced, then as a function that zsh finds in $fpath.
        for begin in (f"{BEGIN}source {name}/_trident", f"fpath=({name} $fpath); {BEGIN}"):
            zsh = Zsh(folder / "empty")
            zsh.type(f"{begin}; print begun-$((1+1))\n")
            zsh.shown("begun-2")
            for typed, expected in CASES:
                if isinstance(expected, str):
                    zsh.type(typed + "\t\x18b")
                    zsh.shown(f"LINE<{expected}>")
                else:
                    zsh.type(typed + "\t")
                    zsh.shown(*expected)
                zsh.type("\x15")  # an empty line
            zsh.end()
    print(f"{2 * len(CASES)} passed")


if __name__ == "__main__":
    main()
