#!/usr/bin/env python3
"""Checks `trident schema` with Python's jsonschema: it is a document of its draft, and it accepts every
config that the program accepts.

    $(scripts/peers_python) tests/peers/schema_peer.py [--seed N] [--program build/release/trident]

Configs are those of configs/, those of `trident init`, and these with one key changed at random. The
program has to refuse every config that the schema refuses. It refuses more, as some constraints
compare several keys.
Ends with `N passed`.
"""

import argparse
import concurrent.futures
import copy
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
VALUES = (None, True, False, -1, 0, 1, 2, 7, 0.5, 1e30, "", "x", "auto", [], [1], [{}], {}, {"x": 1})
CHANGES = 400


def without_comments(text):
    """`trident init` writes comments on lines of their own, or after a value."""
    return json.loads(re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda found: found[1] or "", text))


def keys(document, above=()):
    for key, value in document.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from keys(value, (*above, key))


def changed(document, draw):
    """The config with one key of another value, or with an unknown key."""
    document = copy.deepcopy(document)
    path = draw.choice(list(keys(document)))
    place = document
    for key in path[:-1]:
        place = place[key]
    if draw.random() < 0.2:
        place[path[-1] + draw.choice("xs_")] = place.pop(path[-1])
    else:
        place[path[-1]] = draw.choice(VALUES)
    return document


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--program", default=str(ROOT / "build/release/trident"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    draw = random.Random(options.seed)

    def run(*words, cwd=None):
        return subprocess.run([options.program, *words], cwd=cwd, text=True, capture_output=True)

    schema = json.loads(run("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    with tempfile.TemporaryDirectory() as folder:
        sound = [json.loads(path.read_text()) for path in sorted((ROOT / "configs").glob("*.json"))]
        presets = re.findall(r"^ *([a-z0-9_.]+)  ", run("init", "--help").stdout, re.M)
        for number, preset in enumerate(["", *presets]):
            path = pathlib.Path(folder) / f"preset{number}.json"
            words = ["--preset", preset] if preset else []
            if run("init", str(path), *words).returncode == 0:
                sound.append(without_comments(path.read_text()))
        assert len(sound) > 12, len(sound)
        for document in sound:
            validator.validate(document)

        def check(number, document):
            path = pathlib.Path(folder) / f"{number}.json"
            path.write_text(json.dumps(document))
            done = run("plan", str(path), cwd=folder)
            assert done.returncode in (0, 2), (document, done.stderr)
            error = next(iter(validator.iter_errors(document)), None)
            assert error is None or done.returncode == 2, (error.message, error.json_path, document)
            return error is not None, done.returncode == 2

        documents = []
        while len(documents) < CHANGES:
            document = changed(draw.choice(sound), draw)
            if document.get("parallel") != "auto":  # "auto" would measure this machine
                documents.append(document)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(check, range(CHANGES), documents))
    both, more = found.count((True, True)), found.count((False, True))
    assert both > CHANGES / 4 and (False, False) in found, (both, more)
    print(f"refused by both {both}, by the program alone {more}")
    print(f"{len(sound) + CHANGES} passed")


if __name__ == "__main__":
    sys.exit(main())
