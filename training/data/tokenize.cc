#include "training/data/tokenize.h"

#include <optional>
#include <vector>

#include "training/data/block_threads.h"
#include "training/data/document_texts.h"

namespace trident {
namespace {

// The tokens of a block, and where documents end among them.
struct EncodedBlock {
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> ends;
  std::uint64_t text_bytes = 0;
};

// Of one thread.
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
    result.text_bytes += part.text.size();
    if (encoder_.tokenizer) {
      try {
        each_stretch(part, *encoder_.tokenizer, *memory_,
                     [&](std::string_view text, bool continued) {
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
    result.ends.push_back(result.ids.size());
  }

  const DocumentEncoder& encoder_;
  std::optional<Tokenizer::Memory> memory_;
};

void write(const EncodedBlock& block, IndexedWriter& to) {
  std::size_t at = 0;
  const std::span<const std::int32_t> ids(block.ids);
  for (const std::size_t end : block.ends) {
    to.append(ids.subspan(at, end - at));
    to.end_document();
    at = end;
  }
  to.append(ids.subspan(at));
}

}  // namespace

std::uint64_t tokenize(const std::vector<SourceFile>& files, const DocumentEncoder& encoder,
                       IndexedWriter& to, const TokenizingOptions& options) {
  std::uint64_t text_bytes = 0;
  const auto worker = [&encoder] {
    return [own = std::make_shared<BlockEncoder>(encoder)](DocumentBlock& block) {
      return own->encode(block);
    };
  };
  through_threads<EncodedBlock>(
      files, encoder, options.threads, worker,
      [&](const EncodedBlock& encoded) {
        text_bytes += encoded.text_bytes;
        write(encoded, to);
      },
      [&](const ReadingProgress& reading) {
        if (options.progress) options.progress({reading, to.tokens()});
      });
  to.end_document();
  return text_bytes;
}

}  // namespace trident
