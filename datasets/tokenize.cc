#include "datasets/tokenize.h"

#include <optional>
#include <vector>

#include "datasets/block_threads.h"
#include "datasets/document_texts.h"

namespace trident {
namespace {

// The tokens of a block, and the ends of documents in the tokens and in the text.
struct EncodedBlock {
  std::vector<std::int32_t> ids;
  std::vector<TextMark> ends;
  std::int64_t text_bytes = 0;
};

// Encodes blocks; each thread has its own.
class BlockEncoder {
 public:
  explicit BlockEncoder(const DocumentEncoder& encoder) : encoder_(encoder) {
    if (encoder.tokenizer) memory_.emplace(*encoder.tokenizer);
  }

  EncodedBlock encode(DocumentBlock& block) {
    EncodedBlock result;
    each_text(block, encoder_, [&](TextPart& part) { encode_part(*block.file, part, result); });
    return result;
  }

 private:
  void encode_part(const SourceFile& file, const TextPart& part, EncodedBlock& result) {
    result.text_bytes += std::ssize(part.text);
    if (encoder_.tokenizer) {
      try {
        each_range(part, *encoder_.tokenizer, *memory_, [&](std::string_view text, bool continued) {
          encoder_.tokenizer->encode(text, *memory_, result.ids, continued);
        });
      } catch (const Error& error) {
        throw RequestError(place_of(file, part.place) + error.what());
      }
    } else {
      for (const char c : part.text) result.ids.push_back(static_cast<unsigned char>(c));
    }
    if (!part.ends) return;
    const bool empty = part.text.empty() && !part.continued;
    if (empty) return;
    if (encoder_.tokenizer && encoder_.end_of_document) {
      result.ids.push_back(*encoder_.end_of_document);
    } else if (!encoder_.tokenizer && encoder_.end_of_document && !part.text.ends_with('\n')) {
      result.ids.push_back(*encoder_.end_of_document);
    }
    result.ends.push_back({std::ssize(result.ids), result.text_bytes});
  }

  const DocumentEncoder& encoder_;
  std::optional<Tokenizer::Memory> memory_;
};

void write(const EncodedBlock& block, IndexedWriter& to, TextMarks& marks) {
  const TextMark before = marks.list().back();
  std::size_t at = 0;
  const std::span<const std::int32_t> ids(block.ids);
  for (const TextMark& mark : block.ends) {
    const auto end = static_cast<std::size_t>(mark.tokens);
    to.append(ids.subspan(at, end - at));
    to.end_document();
    marks.add({before.tokens + mark.tokens, before.bytes + mark.bytes});
    at = end;
  }
  to.append(ids.subspan(at));
  marks.add({before.tokens + std::ssize(ids), before.bytes + block.text_bytes});
}

}  // namespace

TextMarks tokenize(const std::vector<SourceFile>& files, const DocumentEncoder& encoder,
                   IndexedWriter& to, const TokenizingOptions& options) {
  TextMarks marks;
  const auto worker = [&encoder] {
    return [own = std::make_shared<BlockEncoder>(encoder)](DocumentBlock& block) {
      return own->encode(block);
    };
  };
  process_in_parallel<EncodedBlock>(
      files, encoder, options.threads, worker,
      [&](const EncodedBlock& encoded) { write(encoded, to, marks); },
      [&](const ReadingProgress& reading) {
        if (options.progress) options.progress({reading, to.tokens()});
      });
  to.end_document();
  return marks;
}

}  // namespace trident
