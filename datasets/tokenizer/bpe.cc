// Byte pair encoding (Sennrich et al. 2016, arXiv 1508.07909). It merges the pair of neighbouring
// symbols that comes first in the list of merges, the leftmost of equal pairs first, until no pair
// is in the list.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "datasets/tokenizer/byte_level.h"
#include "datasets/tokenizer/model.h"
#include "datasets/tokenizer/word_cache.h"

namespace trident {
namespace {

constexpr std::string_view kMetaspace = "\xe2\x96\x81";  // U+2581, SentencePiece's space

struct Merge {
  std::int32_t rank, id;
};

// Pairs of ids and the merge of each: a hash table with open addressing.
class MergeTable {
 public:
  explicit MergeTable(std::size_t merges) {
    std::size_t slots = 16;
    while (slots < merges * 2) slots *= 2;
    slots_.resize(slots);
  }
  void set(std::int32_t left, std::int32_t right, Merge merge) {
    slots_[place(key(left, right))] = {key(left, right), merge};
  }
  // Whether a pair contains the id.
  bool has(std::int32_t id) const {
    return std::ranges::any_of(slots_, [&](const Slot& slot) {
      return slot.key != kFree && (static_cast<std::int32_t>(slot.key >> 32) == id ||
                                   static_cast<std::int32_t>(slot.key & 0xffffffff) == id);
    });
  }
  const Merge* find(std::int32_t left, std::int32_t right) const {
    const Slot& slot = slots_[place(key(left, right))];
    return slot.key == kFree ? nullptr : &slot.merge;
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree;
    Merge merge = {};
  };

  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t place(std::uint64_t k) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = (k * 0x9e3779b97f4a7c15u >> 32) & mask;
    while (slots_[at].key != kFree && slots_[at].key != k) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

struct Symbol {
  std::int32_t id;  // -1: merged into an earlier symbol
  std::int32_t previous, next;
};

struct Candidate {
  std::int32_t rank, at, id;
  // std::push_heap keeps the largest on top: the lowest rank, then the leftmost.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

struct BpeMemory : ModelMemory {
  WordCache cache;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

struct BpeOptions {
  std::string unknown, prefix, suffix;
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
  bool bytes = false;  // symbols are bytes, not characters
};

class Bpe : public TokenizerModel {
 public:
  Bpe(Vocabulary vocabulary, BpeOptions options, MergeTable merges, bool cut_at_spaces)
      : vocabulary_(std::move(vocabulary)),
        options_(std::move(options)),
        merges_(std::move(merges)),
        cut_at_spaces_(cut_at_spaces) {
    if (!options_.unknown.empty()) unknown_ = vocabulary_.find(options_.unknown);
    for (int byte = 0; byte < 256; ++byte) {
      const auto c = static_cast<unsigned char>(byte);
      byte_tokens_[c] = vocabulary_.find(byte_token(c)).value_or(-1);
    }
    if (!options_.bytes) return;
    for (const auto& [token, id] : vocabulary_.ids()) {
      const auto raw = from_byte_level(token);
      if (raw) words_.emplace(*raw, id);
    }
  }

  std::unique_ptr<ModelMemory> memory() const override { return std::make_unique<BpeMemory>(); }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

  bool parts_at_spaces() const override { return cut_at_spaces_ && !options_.ignore_merges; }
  // True if a line end is encoded as its byte token and no merge contains that token.
  bool parts_at_line_ends() const override {
    return options_.byte_fallback && !vocabulary_.find("\n") && byte_tokens_['\n'] >= 0 &&
           !merges_.has(byte_tokens_['\n']) && !options_.ignore_merges;
  }

  void encode(std::string_view piece, ModelMemory& base,
              std::vector<std::int32_t>& ids) const override {
    auto& memory = static_cast<BpeMemory&>(base);
    if (options_.ignore_merges) {
      if (const auto id = find(piece)) return ids.push_back(*id);
    }
    const auto encode_word = [&](std::string_view word, std::vector<std::int32_t>& out) {
      encode_by_merges(word, memory, out);
    };
    if (!cut_at_spaces_) return memory.cache.append(piece, ids, encode_word);
    for (std::size_t begin = 0; begin < piece.size();) {
      const std::size_t end = word_end(piece, begin);
      memory.cache.append(piece.substr(begin, end - begin), ids, encode_word);
      begin = end;
    }
  }

 private:
  std::optional<std::int32_t> find(std::string_view token) const {
    if (!options_.bytes) return vocabulary_.find(token);
    const auto found = words_.find(token);
    if (found == words_.end()) return std::nullopt;
    return found->second;
  }

  // The end of the word at `begin`: the next space after a character that isn't a space.
  static std::size_t word_end(std::string_view piece, std::size_t begin) {
    std::size_t at = begin;
    while (piece.substr(at).starts_with(kMetaspace)) at += kMetaspace.size();
    return std::min(piece.find(kMetaspace, at), piece.size());
  }

  // A symbol's text with the prefix or suffix for its place in the word.
  std::string_view marked(std::string_view symbol, bool first, bool last, std::string& text) const {
    const bool before = !first && !options_.prefix.empty();
    const bool after = last && !options_.suffix.empty();
    if (!before && !after) return symbol;
    text = before ? options_.prefix : "";
    text += symbol;
    if (after) text += options_.suffix;
    return text;
  }

  // The symbols of a word before any merge. A character that isn't in the vocabulary becomes its
  // byte tokens or the unknown token. With fuse_unknown, a run of them becomes one unknown token.
  void begin(std::string_view word, std::vector<Symbol>& symbols) const {
    symbols.clear();
    const auto add = [&](std::int32_t id) {
      const auto at = static_cast<std::int32_t>(symbols.size());
      symbols.push_back({id, at - 1, at + 1});
    };
    bool unknown = false;  // an unknown token is still to be added
    std::string text;
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t bytes = options_.bytes ? 1 : next_code_point(word, at).bytes;
      const bool first = at == 0, last = at + bytes == word.size();
      const std::string_view symbol = marked(word.substr(at, bytes), first, last, text);
      at += bytes;
      if (const auto id = find(symbol)) {
        if (unknown) add(*unknown_);
        unknown = false;
        add(*id);
      } else if (options_.byte_fallback && add_bytes(symbol, add)) {
        continue;
      } else if (!options_.unknown.empty()) {
        if (!unknown_) {
          throw Error(fmt::format("the tokenizer has no token for {}, nor its unknown token {}",
                                  printable(symbol, 20), printable(options_.unknown, 40)));
        }
        if (unknown && !options_.fuse_unknown) add(*unknown_);
        unknown = true;
      }
    }
    if (unknown) add(*unknown_);
    if (!symbols.empty()) symbols.back().next = -1;
  }

  template <class Add>
  bool add_bytes(std::string_view symbol, Add add) const {
    const auto token = [&](char c) { return byte_tokens_[static_cast<unsigned char>(c)]; };
    if (std::ranges::any_of(symbol, [&](char c) { return token(c) < 0; })) return false;
    for (const char c : symbol) add(token(c));
    return true;
  }

  void encode_by_merges(std::string_view word, BpeMemory& memory,
                        std::vector<std::int32_t>& ids) const {
    auto& [cache, symbols, heap] = memory;
    begin(word, symbols);
    heap.clear();
    const auto consider = [&](std::int32_t at) {
      if (at < 0 || symbols[static_cast<std::size_t>(at)].next < 0) return false;
      const Symbol& left = symbols[static_cast<std::size_t>(at)];
      const Merge* merge = merges_.find(left.id, symbols[static_cast<std::size_t>(left.next)].id);
      if (merge != nullptr) heap.push_back({merge->rank, at, merge->id});
      return merge != nullptr;
    };
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<std::int32_t>(i));
    std::make_heap(heap.begin(), heap.end());
    while (!heap.empty()) {
      const Candidate best = heap.front();
      std::pop_heap(heap.begin(), heap.end());
      heap.pop_back();
      Symbol& left = symbols[static_cast<std::size_t>(best.at)];
      if (left.id < 0 || left.next < 0) continue;
      Symbol& right = symbols[static_cast<std::size_t>(left.next)];
      // Skip a candidate if one of its two symbols has been merged since.
      const Merge* merge = merges_.find(left.id, right.id);
      if (merge == nullptr || merge->id != best.id) continue;
      left.id = best.id;
      left.next = right.next;
      right.id = -1;
      if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = best.at;
      if (consider(left.previous)) std::push_heap(heap.begin(), heap.end());
      if (consider(best.at)) std::push_heap(heap.begin(), heap.end());
    }
    for (const Symbol& symbol : symbols) {
      if (symbol.id >= 0) ids.push_back(symbol.id);
    }
    keep_if_small(symbols);
    keep_if_small(heap);
  }

  Vocabulary vocabulary_;
  BpeOptions options_;
  MergeTable merges_;
  bool cut_at_spaces_;  // no merge joins a character and a space after it
  std::optional<std::int32_t> unknown_;
  std::array<std::int32_t, 256> byte_tokens_{};  // -1: none
  StringMap<std::int32_t> words_;                // if `bytes`: tokens as raw bytes
};

using TokenPair = std::pair<std::string, std::string>;

// A merge is a list of two tokens or, in older files, a string with a space between them.
TokenPair read_merge(const JsonPart& part, const nlohmann::json& merge, std::size_t number) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto text = merge.get<std::string>();
    const auto space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  part.fail("merges", fmt::format("number {} isn't two tokens", number + 1));
}

bool joins_space(const std::string& left, const std::string& right) {
  return right.starts_with(kMetaspace) && !left.ends_with(kMetaspace);
}

}  // namespace

std::unique_ptr<const TokenizerModel> read_bpe(const JsonPart& part, bool& to_byte_level) {
  part.allow({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
              "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (!part.lacks("dropout") && part["dropout"] != 0.0) {
    part.fail("dropout", "isn't supported: a text would get other tokens each time");
  }
  BpeOptions options = {.unknown = part.string("unk_token", ""),
                        .prefix = part.string("continuing_subword_prefix", ""),
                        .suffix = part.string("end_of_word_suffix", ""),
                        .fuse_unknown = part.flag("fuse_unk", false),
                        .byte_fallback = part.flag("byte_fallback", false),
                        .ignore_merges = part.flag("ignore_merges", false)};
  to_byte_level =
      to_byte_level && options.prefix.empty() && options.suffix.empty() && !options.byte_fallback;
  options.bytes = to_byte_level;
  Vocabulary vocabulary = read_vocabulary(part, "vocab");
  const nlohmann::json& list = part["merges"];
  if (!list.is_array()) part.fail("merges", "needs a list");
  MergeTable merges(list.size());
  // A prefix or suffix depends on a symbol's place in the complete piece, and an unknown space
  // could be fused with its neighbours. A piece can't be split at spaces then.
  bool cut_at_spaces = !options.bytes && options.prefix.empty() && options.suffix.empty() &&
                       vocabulary.find(kMetaspace).has_value();
  std::int32_t rank = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto& text = list[i];
    if (text.is_string() && text.get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = read_merge(part, text, i);
    const std::string_view rest = std::string_view(right).substr(
        right.starts_with(options.prefix) ? options.prefix.size() : 0);
    std::int32_t ids[3];
    int found = 0;
    for (const std::string& token : {left, right, left + std::string(rest)}) {
      const auto id = vocabulary.find(token);
      if (!id) {
        part.fail("merges", fmt::format("number {} has {}, which isn't in the vocabulary", i + 1,
                                        printable(token, 60)));
      }
      ids[found++] = *id;
    }
    merges.set(ids[0], ids[1], {rank++, ids[2]});
    cut_at_spaces = cut_at_spaces && !joins_space(left, right);
  }
  return std::make_unique<Bpe>(std::move(vocabulary), std::move(options), std::move(merges),
                               cut_at_spaces);
}

}  // namespace trident
