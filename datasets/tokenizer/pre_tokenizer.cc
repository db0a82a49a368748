#include "datasets/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "datasets/tokenizer/byte_level.h"
#include "datasets/tokenizer/gpt_pattern.h"
#include "datasets/tokenizer/pattern.h"

namespace trident {
namespace {

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior read_behavior(const JsonPart& part, std::optional<Behavior> otherwise = {}) {
  if (otherwise && part.lacks("behavior")) return *otherwise;
  constexpr std::string_view names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
  const std::string name = part.string("behavior");
  const auto* found = std::ranges::find(names, name);
  if (found == std::end(names)) {
    part.fail("behavior",
              "needs Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
  }
  return static_cast<Behavior>(found - std::begin(names));
}

// A contiguous range of a piece, and whether it is a match (with `invert`, the text between
// matches).
struct MatchedRange {
  TextRange range;
  bool match;
};

// Joins neighbouring ranges of a piece as `behavior` says (normalizer.rs, split()).
void join(std::vector<MatchedRange>& ranges, Behavior behavior) {
  const bool next = behavior == Behavior::merged_with_next;
  if (next) std::ranges::reverse(ranges);
  std::size_t kept = 0;
  bool previous = false;
  for (const MatchedRange range : ranges) {
    const bool joins =
        behavior == Behavior::contiguous ? range.match == previous : range.match && !previous;
    previous = range.match;
    if (joins && kept > 0) {
      TextRange& last = ranges[kept - 1].range;
      (next ? last.begin : last.end) = next ? range.range.begin : range.range.end;
    } else {
      ranges[kept++] = range;
    }
  }
  ranges.resize(kept);
  if (next) std::ranges::reverse(ranges);
}

// Splits every piece at the matches that find(text, matches) returns.
template <class Find>
void split_at(Pieces& pieces, Behavior behavior, bool invert, Find find) {
  std::vector<Piece> cut;
  std::vector<TextRange> matches;
  std::vector<MatchedRange> ranges;
  for (const Piece& piece : pieces.list) {
    const std::size_t offset = piece.range.begin;
    find(std::string_view(pieces.text).substr(offset, piece.range.end - offset), matches);
    ranges.clear();
    std::size_t done = offset;
    for (const TextRange& match : matches) {
      if (match.begin + offset != done) ranges.push_back({{done, match.begin + offset}, invert});
      ranges.push_back({{match.begin + offset, match.end + offset}, !invert});
      done = match.end + offset;
    }
    if (done != piece.range.end) ranges.push_back({{done, piece.range.end}, invert});
    if (behavior > Behavior::isolated) join(ranges, behavior);
    for (const MatchedRange& range : ranges) {
      if (range.range.begin == range.range.end) continue;
      if (range.match && behavior == Behavior::removed) continue;
      cut.push_back({range.range, piece.at_start && range.range.begin == offset});
    }
  }
  pieces.list = std::move(cut);
}

// Returns a function that finds each character of the classes in `mask`.
auto each_of(Pieces& pieces, std::uint16_t mask) {
  return [&classes = *pieces.classes, mask](std::string_view text, std::vector<TextRange>& found) {
    found.clear();
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = next_code_point(text, at);
      if ((classes.of(c.code) & mask) != 0) found.push_back({at, at + c.bytes});
      at += c.bytes;
    }
  };
}

// Replaces the text of every piece by change(piece, text).
template <class Change>
void change_pieces(Pieces& pieces, Change change) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (Piece& piece : pieces.list) {
    const std::size_t begin = text.size();
    const auto [from, to] = piece.range;
    text += change(piece, std::string_view(pieces.text).substr(from, to - from));
    piece.range = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

class AtPattern : public PreTokenizer {
 public:
  AtPattern(Pattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void split(Pieces& pieces) const override {
    split_at(pieces, behavior_, invert_,
             [&](std::string_view text, std::vector<TextRange>& matches) {
               pattern_.find(text, matches);
             });
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

class AtGptPattern : public PreTokenizer {
 public:
  explicit AtGptPattern(GptPattern pattern) : pattern_(pattern) {}
  void split(Pieces& pieces) const override {
    split_at(pieces, Behavior::isolated, false,
             [&](std::string_view text, std::vector<TextRange>& matches) {
               pattern_.find(text, matches, *pieces.classes);
             });
  }

 private:
  GptPattern pattern_;
};

class AtClass : public PreTokenizer {
 public:
  AtClass(std::uint16_t mask, Behavior behavior) : mask_(mask), behavior_(behavior) {}
  void split(Pieces& pieces) const override {
    split_at(pieces, behavior_, false, each_of(pieces, mask_));
  }

 private:
  std::uint16_t mask_;
  Behavior behavior_;
};

// Keeps runs of \w, and runs of characters that are neither \w nor white space.
class WordPatternSplit : public PreTokenizer {
  void split(Pieces& pieces) const override {
    CodePointClasses& classes = *pieces.classes;
    const auto kind = [&](char32_t c) {
      const std::uint16_t mask = classes.of(c);
      if ((mask & kWord) != 0 || c == 0x200c || c == 0x200d) return 1;
      return (mask & kSpace) != 0 ? 0 : 2;
    };
    split_at(pieces, Behavior::removed, true,
             [&](std::string_view text, std::vector<TextRange>& runs) {
               runs.clear();
               int last = 0;
               for (std::size_t at = 0; at < text.size();) {
                 const CodePoint c = next_code_point(text, at);
                 const int now = kind(c.code);
                 if (now != 0 && now != last) runs.push_back({at, at});
                 at += c.bytes;
                 if (now != 0) runs.back().end = at;
                 last = now;
               }
             });
  }
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(std::int64_t characters) : characters_(characters) {}
  void split(Pieces& pieces) const override {
    split_at(pieces, Behavior::isolated, false,
             [&](std::string_view text, std::vector<TextRange>& runs) {
               runs.clear();
               std::int64_t count = 0;
               for (std::size_t at = 0; at < text.size(); ++count) {
                 if (count % characters_ == 0) runs.push_back({at, at});
                 at += next_code_point(text, at).bytes;
                 runs.back().end = at;
               }
             });
  }

 private:
  std::int64_t characters_;
};

// SentencePiece's scheme: replaces each space by a visible character.
class Metaspace : public PreTokenizer {
 public:
  enum class Prepend { always, first, never };
  Metaspace(char32_t replacement, Prepend prepend, bool split) : prepend_(prepend), split_(split) {
    append_utf8(replacement_, replacement);
  }
  void split(Pieces& pieces) const override {
    change_pieces(pieces, [&](const Piece& piece, std::string_view text) {
      std::string changed;
      const bool begins = text.starts_with(' ') || text.starts_with(replacement_);
      const bool asked =
          prepend_ == Prepend::always || (prepend_ == Prepend::first && piece.at_start);
      if (asked && !begins && !(pieces.continued && piece.range.begin == 0)) {
        changed += replacement_;
      }
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t space = std::min(text.find(' ', at), text.size());
        changed += text.substr(at, space - at);
        if (space < text.size()) changed += replacement_;
        at = space + 1;
      }
      return changed;
    });
    if (!split_) return;
    split_at(pieces, Behavior::merged_with_next, false,
             [&](std::string_view text, std::vector<TextRange>& matches) {
               Pattern{replacement_, {}}.find(text, matches);
             });
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

class PrefixSpace : public PreTokenizer {
  void split(Pieces& pieces) const override {
    change_pieces(pieces, [&](const Piece& piece, std::string_view text) {
      const bool add = !text.starts_with(' ') && !(pieces.continued && piece.range.begin == 0);
      return std::string(add ? " " : "").append(text);
    });
  }
};

class ToByteLevel : public PreTokenizer {
  void split(Pieces& pieces) const override {
    change_pieces(pieces, [](const Piece&, std::string_view text) { return to_byte_level(text); });
  }
};

std::unique_ptr<const PreTokenizer> read_metaspace(const JsonPart& part) {
  part.allow({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  using Scheme = Metaspace::Prepend;
  Scheme prepend = Scheme::always;
  const std::string scheme = part.string("prepend_scheme", "always");
  if (scheme == "first") {
    prepend = Scheme::first;
  } else if (scheme == "never") {
    prepend = Scheme::never;
  } else if (scheme != "always") {
    part.fail("prepend_scheme", "needs always, first or never");
  }
  if (!part.flag("add_prefix_space", true)) {
    // Older files have only this key and no prepend_scheme.
    if (!part.lacks("prepend_scheme") && prepend != Scheme::never) {
      part.fail("add_prefix_space", "contradicts prepend_scheme");
    }
    prepend = Scheme::never;
  }
  return std::make_unique<Metaspace>(part.character("replacement"), prepend,
                                     part.flag("split", true));
}

std::unique_ptr<const PreTokenizer> at_class(std::uint16_t mask, Behavior behavior) {
  return std::make_unique<AtClass>(mask, behavior);
}

std::unique_ptr<const PreTokenizer> read_split(const JsonPart& part) {
  part.allow({"type", "pattern", "behavior", "invert"});
  Pattern pattern = read_pattern(part, "pattern");
  const Behavior behavior = read_behavior(part);
  const bool invert = part.flag("invert");
  // A GPT pattern's matches cover the text, so both cases split it in the same way.
  const bool isolates = invert ? behavior == Behavior::removed : behavior == Behavior::isolated;
  if (pattern.regex && isolates) {
    const auto known = GptPattern::of(part.part("pattern").string("Regex"));
    if (known) return std::make_unique<AtGptPattern>(*known);
  }
  return std::make_unique<AtPattern>(std::move(pattern), behavior, invert);
}

void read_byte_level(const JsonPart& part, PreTokenizers& result) {
  part.allow({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (part.flag("add_prefix_space")) result.steps.push_back(std::make_unique<PrefixSpace>());
  if (part.flag("use_regex", true)) {
    result.steps.push_back(std::make_unique<AtGptPattern>(GptPattern{}));
  }
  result.to_byte_level = true;
}

}  // namespace

void read_pre_tokenizers(const JsonPart& part, PreTokenizers& result) {
  if (result.to_byte_level) {  // another step follows
    result.steps.push_back(byte_level_step());
    result.to_byte_level = false;
  }
  auto& steps = result.steps;
  const std::function<void()> readers[] = {
      [&] {
        part.allow({"type", "pretokenizers"});
        for (const JsonPart& inner : part.parts("pretokenizers")) {
          read_pre_tokenizers(inner, result);
        }
      },
      [&] { read_byte_level(part, result); },
      [&] { steps.push_back(read_metaspace(part)); },
      [&] { steps.push_back(read_split(part)); },
      [&] {
        part.allow({"type", "individual_digits"});
        steps.push_back(at_class(
            kNumber, part.flag("individual_digits") ? Behavior::isolated : Behavior::contiguous));
      },
      [&] {
        part.allow({"type", "behavior"});
        steps.push_back(at_class(kPunctuation, read_behavior(part, Behavior::isolated)));
      },
      [&] {
        part.allow({"type"});
        steps.push_back(std::make_unique<WordPatternSplit>());
      },
      [&] {
        part.allow({"type"});
        steps.push_back(at_class(kSpace, Behavior::removed));
      },
      [&] {
        part.allow({"type"});
        steps.push_back(at_class(kSpace, Behavior::removed));
        steps.push_back(at_class(kPunctuation, Behavior::isolated));
      },
      [&] {
        part.allow({"type", "delimiter"});
        std::string delimiter;
        append_utf8(delimiter, part.character("delimiter"));
        steps.push_back(
            std::make_unique<AtPattern>(Pattern{delimiter, {}}, Behavior::removed, false));
      },
      [&] {
        part.allow({"type", "length"});
        const std::int64_t length = part.number("length", 5);
        if (length == 0) part.fail("length", "is 0");
        steps.push_back(std::make_unique<FixedLength>(length));
      }};
  readers[part.type_among({"Sequence", "ByteLevel", "Metaspace", "Split", "Digits", "Punctuation",
                           "Whitespace", "WhitespaceSplit", "BertPreTokenizer",
                           "CharDelimiterSplit", "FixedLength"})]();
}

std::unique_ptr<const PreTokenizer> byte_level_step() {
  return std::make_unique<ToByteLevel>();
}

}  // namespace trident
