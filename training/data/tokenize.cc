#include "training/data/tokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "core/threads.h"
#include "core/utf8.h"
#include "training/data/document_blocks.h"
#include "training/data/json_document.h"

namespace trident {
namespace {

using Clock = std::chrono::steady_clock;

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
    for (TextPart& part : block.parts) {
      if (part.lines) {
        encode_lines(*block.file, part, result);
      } else {
        encode_part(*block.file, part, result);
      }
    }
    return result;
  }

 private:
  void encode_lines(const SourceFile& file, const TextPart& part, EncodedBlock& result) {
    std::int64_t line = part.place;
    for (std::size_t at = 0; at < part.text.size(); ++line) {
      const std::size_t end = std::min(part.text.find('\n', at), part.text.size());
      const std::string_view text = std::string_view(part.text).substr(at, end - at);
      at = end + 1;
      if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      TextPart document{.place = line};
      try {
        // A reader of JSON refuses what isn't UTF-8.
        document.text =
            text_in_json(encoder_.replace_errors ? replace_invalid_utf8(text) : std::string(text),
                         encoder_.json_key);
      } catch (const RequestError& error) {
        throw error.at(place_of(file, line));
      }
      encode_part(file, document, result);
    }
  }

  void encode_part(const SourceFile& file, TextPart& part, EncodedBlock& result) {
    result.text_bytes += part.text.size();
    if (encoder_.tokenizer) {
      make_valid(file, part);
      try {
        encode_text(part, result.ids);
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

  // Lines and rows are whole documents, which may be long.
  void encode_text(const TextPart& part, std::vector<std::int32_t>& ids) {
    const Tokenizer& tokenizer = *encoder_.tokenizer;
    const std::string_view text = part.text;
    std::size_t begin = 0;
    while (text.size() - begin > 2 * kTextBlock) {
      const std::size_t cut = tokenizer.next_cut(text, begin + kTextBlock, *memory_);
      if (cut == std::string_view::npos) break;
      tokenizer.encode(text.substr(begin, cut - begin), *memory_, ids, part.continued || begin > 0);
      begin = cut;
    }
    tokenizer.encode(text.substr(begin), *memory_, ids, part.continued || begin > 0);
  }

  void make_valid(const SourceFile& file, TextPart& part) const {
    const std::size_t at = invalid_utf8(part.text);
    if (at == std::string::npos) return;
    if (encoder_.replace_errors) {
      part.text = replace_invalid_utf8(part.text);
      return;
    }
    const bool rows = file.format == DocumentFormat::parquet;
    const auto line =
        part.place + (rows ? 0
                           : std::count(part.text.begin(),
                                        part.text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    const auto before = at == 0 ? std::string::npos : part.text.rfind('\n', at - 1);
    throw RequestError(fmt::format(
        "{}byte {} of it, 0x{:02x}, isn't UTF-8; data.tokenizer.errors \"replace\" takes U+FFFD "
        "for such",
        place_of(file, line), before == std::string::npos ? part.column + at + 1 : at - before,
        static_cast<unsigned char>(part.text[at])));
  }

  const DocumentEncoder& encoder_;
  std::optional<Tokenizer::Memory> memory_;
};

// Blocks on their way through the threads, which come out in the order in which they went in.
class Encoders {
 public:
  // As many threads as the system allows, if those are fewer.
  Encoders(const DocumentEncoder& encoder, int threads)
      : most_(static_cast<std::size_t>(3 * threads)) {
    while (static_cast<int>(threads_.size()) < threads) {
      try {
        threads_.emplace_back([this, &encoder] { work(encoder); });
      } catch (const std::system_error&) {
        if (threads_.empty())
          throw Error("no thread can be started to tokenize; " + thread_limit_text());
        break;
      }
    }
  }
  Encoders(const Encoders&) = delete;
  Encoders& operator=(const Encoders&) = delete;
  ~Encoders() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::size_t waiting() const { return slots_.size(); }
  bool takes_more() const {
    return slots_.empty() || (slots_.size() < most_ && bytes_ < kMostBytes);
  }
  void put(DocumentBlock block) {
    auto slot = std::make_unique<Slot>(Slot{.block = std::move(block)});
    for (const TextPart& part : slot->block.parts) slot->bytes += part.text.size();
    bytes_ += slot->bytes;
    {
      const std::lock_guard lock(mutex_);
      slots_.push_back(std::move(slot));
    }
    changed_.notify_all();
  }
  // The first of them, once it is done.
  EncodedBlock take() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return slots_.front()->done; });
    const std::unique_ptr<Slot> slot = std::move(slots_.front());
    slots_.pop_front();
    --begun_;
    bytes_ -= slot->bytes;
    if (slot->error) std::rethrow_exception(slot->error);
    return std::move(slot->result);
  }

 private:
  // Of text in slots: documents that can't be cut may be long.
  static constexpr std::size_t kMostBytes = std::size_t{1} << 27;

  struct Slot {
    DocumentBlock block;
    std::size_t bytes = 0;
    EncodedBlock result = {};
    std::exception_ptr error = {};
    bool done = false;
  };

  void work(const DocumentEncoder& encoder) {
    want_cores(static_cast<int>(most_ / 3));
    std::optional<BlockEncoder> own;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ends_ || begun_ < slots_.size(); });
      if (ends_) return;
      Slot& slot = *slots_[begun_++];
      lock.unlock();
      try {
        if (!own) own.emplace(encoder);
        slot.result = own->encode(slot.block);
      } catch (...) {
        slot.error = std::current_exception();
      }
      slot.block = {};
      lock.lock();
      slot.done = true;
      done_.notify_one();
    }
  }

  const std::size_t most_;  // blocks
  std::size_t bytes_ = 0;
  std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_, done_;
  std::deque<std::unique_ptr<Slot>> slots_;
  std::size_t begun_ = 0;  // of the slots
  bool ends_ = false;
  std::vector<std::thread> threads_;
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
  TokenizingProgress progress;
  for (const SourceFile& file : files) progress.total += std::filesystem::file_size(file.path);
  const auto begin = Clock::now();
  auto told = begin;
  DocumentBlocks blocks(files, encoder);
  Encoders encoders(encoder, std::max(1, options.threads));
  std::uint64_t text_bytes = 0;
  const auto tell = [&] {
    if (!options.progress) return;
    told = Clock::now();
    progress.read = blocks.read();
    progress.tokens = to.tokens();
    progress.seconds = std::chrono::duration<double>(told - begin).count();
    options.progress(progress);
  };
  for (bool more = true; more || encoders.waiting() > 0;) {
    if (more && encoders.takes_more()) {
      auto block = blocks.next();
      more = block.has_value();
      if (more) encoders.put(std::move(*block));
      continue;
    }
    const EncodedBlock encoded = encoders.take();
    text_bytes += encoded.text_bytes;
    write(encoded, to);
    if (Clock::now() - told > std::chrono::milliseconds(200)) tell();
  }
  to.end_document();
  progress.ends = true;
  tell();
  return text_bytes;
}

}  // namespace trident
