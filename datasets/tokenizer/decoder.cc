#include "datasets/tokenizer/decoder.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/utf8.h"
#include "datasets/tokenizer/byte_level.h"
#include "datasets/tokenizer/pattern.h"

namespace trident {
namespace {

using Tokens = std::vector<std::string>;

std::string replaced(std::string_view text, const Pattern& pattern, std::string_view content) {
  std::vector<TextRange> matches;
  pattern.find(text, matches);
  std::string result;
  std::size_t done = 0;
  for (const TextRange& match : matches) {
    result += text.substr(done, match.begin - done);
    result += content;
    done = match.end;
  }
  return result.append(text.substr(done));
}

std::string replaced(std::string_view text, std::string_view what, std::string_view content) {
  return replaced(text, Pattern{std::string(what), {}}, content);
}

void of_byte_level(Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += from_byte_level(token).value_or(token);
  tokens = {replace_invalid_utf8(bytes)};
}

// The byte that "<0x0A>" stands for.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

void byte_fallback(Tokens& tokens) {
  Tokens result;
  std::string bytes;
  const auto end_bytes = [&] {
    if (bytes.empty()) return;
    if (invalid_utf8(bytes) == std::string::npos) {
      result.push_back(bytes);
    } else {
      for (std::size_t i = 0; i < bytes.size(); ++i) result.emplace_back("\xef\xbf\xbd");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of(token)) {
      bytes += *byte;
      continue;
    }
    end_bytes();
    result.push_back(std::move(token));
  }
  end_bytes();
  tokens = std::move(result);
}

void fuse(Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  tokens = {text};
}

// Removes the spaces that a tokenizer puts before punctuation (decoders/wordpiece.rs).
std::string cleaned_up(std::string text) {
  constexpr std::string_view changes[][2] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : changes) text = replaced(text, from, to);
  return text;
}

Decoder read_word_piece_decoder(const JsonPart& part) {
  part.allow({"type", "prefix", "cleanup"});
  return [prefix = part.string("prefix"), clean = part.flag("cleanup")](Tokens& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(prefix)) {
        token.erase(0, prefix.size());
      } else if (i > 0) {
        token.insert(0, " ");
      }
      if (clean) token = cleaned_up(token);
    }
  };
}

Decoder read_metaspace_decoder(const JsonPart& part) {
  part.allow({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  std::string space;
  append_utf8(space, part.character("replacement"));
  const bool prepends =
      part.flag("add_prefix_space", true) && part.string("prepend_scheme", "always") != "never";
  return [=](Tokens& tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replaced(tokens[i], space, i == 0 && prepends ? "" : " ");
    }
  };
}

Decoder read_strip_decoder(const JsonPart& part) {
  part.allow({"type", "content", "start", "stop"});
  std::string content;
  append_utf8(content, part.character("content"));
  return [content, start = part.number("start"), stop = part.number("stop")](Tokens& tokens) {
    for (std::string& token : tokens) {
      for (std::int64_t i = 0; i < start && token.starts_with(content); ++i) {
        token.erase(0, content.size());
      }
      for (std::int64_t i = 0; i < stop && token.ends_with(content); ++i) {
        token.resize(token.size() - content.size());
      }
    }
  };
}

Decoder read_bpe_decoder(const JsonPart& part) {
  part.allow({"type", "suffix"});
  return [suffix = part.string("suffix")](Tokens& tokens) {
    if (suffix.empty()) return;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replaced(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
    }
  };
}

Decoder read_replace_decoder(const JsonPart& part) {
  part.allow({"type", "pattern", "content"});
  return [pattern = read_pattern(part, "pattern"),
          content = part.insertion("content")](Tokens& tokens) {
    for (std::string& token : tokens) token = replaced(token, pattern, content);
  };
}

}  // namespace

void read_decoders(const JsonPart& part, std::vector<Decoder>& decoders) {
  switch (part.type_among({"Sequence", "ByteLevel", "ByteFallback", "Fuse", "Metaspace",
                           "WordPiece", "BPEDecoder", "Replace", "Strip"})) {
    case 0:
      part.allow({"type", "decoders"});
      for (const JsonPart& inner : part.parts("decoders")) read_decoders(inner, decoders);
      return;
    case 1:
      part.allow({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      return decoders.emplace_back(of_byte_level), void();
    case 2:
      part.allow({"type"});
      return decoders.emplace_back(byte_fallback), void();
    case 3:
      part.allow({"type"});
      return decoders.emplace_back(fuse), void();
    case 4:
      return decoders.push_back(read_metaspace_decoder(part));
    case 5:
      return decoders.push_back(read_word_piece_decoder(part));
    case 6:
      return decoders.push_back(read_bpe_decoder(part));
    case 7:
      return decoders.push_back(read_replace_decoder(part));
    default:
      return decoders.push_back(read_strip_decoder(part));
  }
}

}  // namespace trident
