#include "datasets/document_texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "datasets/json_document.h"

namespace trident {
namespace {

void make_valid(const SourceFile& file, const DocumentEncoder& encoder, TextPart& part) {
  const std::size_t at = invalid_utf8(part.text);
  if (at == std::string::npos) return;
  if (encoder.replace_errors) {
    part.text = replace_invalid_utf8(part.text);
    return;
  }
  const bool rows = file.format == DocumentFormat::parquet;
  const auto line =
      part.place + (rows ? 0
                         : std::count(part.text.begin(),
                                      part.text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  const auto before = at == 0 ? std::string::npos : part.text.rfind('\n', at - 1);
  throw RequestError(fmt::format("{}byte {} of it, 0x{:02x}, isn't UTF-8; {}", place_of(file, line),
                                 before == std::string::npos ? part.column + at + 1 : at - before,
                                 static_cast<unsigned char>(part.text[at]), kReplaceErrors));
}

template <class Visit>
void each_line(const SourceFile& file, const DocumentEncoder& encoder, const TextPart& part,
               const Visit& visit) {
  std::int64_t line = part.place;
  for (std::size_t at = 0; at < part.text.size(); ++line) {
    const std::size_t end = std::min(part.text.find('\n', at), part.text.size());
    const std::string_view text = std::string_view(part.text).substr(at, end - at);
    at = end + 1;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    TextPart document{.place = line};
    try {
      // text_in_json() refuses invalid UTF-8.
      const JsonDocumentOptions options{
          .key = encoder.json_key, .replace_surrogates = encoder.replace_errors, .file = file};
      document.text = encoder.replace_errors ? text_in_json(replace_invalid_utf8(text), options)
                                             : text_in_json(text, options);
    } catch (const RequestError& error) {
      throw error.at(place_of(file, line));
    }
    visit(document);
  }
}

}  // namespace

void each_text(DocumentBlock& block, const DocumentEncoder& encoder,
               const std::function<void(TextPart&)>& visit) {
  const auto valid = [&](TextPart& part) {
    if (encoder.tokenizer) make_valid(*block.file, encoder, part);
    visit(part);
  };
  for (TextPart& part : block.parts) {
    if (part.lines) {
      each_line(*block.file, encoder, part, valid);
    } else {
      valid(part);
    }
  }
}

void each_range(const TextPart& part, const Tokenizer& tokenizer, Tokenizer::Memory& memory,
                const std::function<void(std::string_view text, bool continued)>& visit) {
  const std::string_view text = part.text;
  std::size_t begin = 0;
  while (text.size() - begin > 2 * kTextBlock) {
    const std::size_t cut = tokenizer.next_split_point(text, begin + kTextBlock, memory);
    if (cut == std::string::npos) break;
    visit(text.substr(begin, cut - begin), part.continued || begin > 0);
    begin = cut;
  }
  visit(text.substr(begin), part.continued || begin > 0);
}

}  // namespace trident
