#include "datasets/count_words.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "datasets/block_threads.h"
#include "datasets/document_texts.h"
#include "datasets/tokenizer/bpe_trainer.h"

namespace trident {
namespace {

struct CountedBlock {
  WordCounts words;
  std::uint64_t text_bytes = 0, total = 0;
};

// Counts the words of blocks; each thread has its own.
class BlockCounter {
 public:
  BlockCounter(const DocumentEncoder& encoder, bool by_line)
      : encoder_(encoder), by_line_(by_line), memory_(*encoder.tokenizer) {}

  CountedBlock count(DocumentBlock& block) {
    CountedBlock result;
    const bool lines = by_line_ && block.file->format == DocumentFormat::text;
    each_text(block, encoder_, [&](const TextPart& part) {
      result.text_bytes += part.text.size();
      try {
        each_range(part, *encoder_.tokenizer, memory_, [&](std::string_view text, bool continued) {
          if (lines) {
            count_lines(text, continued, result);
          } else {
            count_text(text, continued, result);
          }
        });
      } catch (const RequestError&) {
        throw;
      } catch (const Error& error) {
        throw RequestError(place_of(*block.file, part.place) + error.what());
      }
    });
    return result;
  }

 private:
  void count_lines(std::string_view text, bool continued, CountedBlock& result) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t line_end = text.find('\n', at);
      const std::size_t end = line_end == std::string_view::npos ? text.size() : line_end + 1;
      count_text(text.substr(at, end - at), continued && at == 0, result);
      at = end;
    }
  }

  void count_text(std::string_view text, bool continued, CountedBlock& result) {
    encoder_.tokenizer->split(
        text, memory_,
        [&](std::string_view word) {
          result.words.add(word, 1);
          ++result.total;
        },
        continued);
  }

  const DocumentEncoder& encoder_;
  const bool by_line_;
  Tokenizer::Memory memory_;
};

}  // namespace

CountedWords count_words(const std::vector<SourceFile>& files, const DocumentEncoder& given,
                         const WordCounting& options) {
  DocumentEncoder encoder = given;
  encoder.splits_after_lines = options.by_line;
  CountedWords result;
  const auto worker = [&] {
    return [own = std::make_shared<BlockCounter>(encoder, options.by_line)](DocumentBlock& block) {
      return own->count(block);
    };
  };
  process_in_parallel<CountedBlock>(
      files, encoder, options.threads, worker,
      [&](const CountedBlock& block) {
        result.text_bytes += block.text_bytes;
        result.total += block.total;
        result.words.add(block.words);
        if (training_memory(result.words) <= options.memory) return;
        // Free a quarter of the memory, so that this happens rarely.
        std::uint64_t count = 0;
        while (training_memory(result.words) > options.memory / 4 * 3) {
          result.words.drop_rare(++count);
        }
        result.left_out = std::max(result.left_out, count);
      },
      [&](const ReadingProgress& reading) {
        if (options.progress) options.progress(reading);
      });
  return result;
}

}  // namespace trident
