#include "datasets/document_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "datasets/parquet_rows.h"

namespace trident {
namespace {

constexpr std::size_t kBlock = kTextBlock;
constexpr std::size_t kLongest = std::size_t{1} << 26;  // bytes of text without a split point

}  // namespace

std::string place_of(const SourceFile& file, std::int64_t line) {
  return file.format == DocumentFormat::parquet ? fmt::format("{}: row {}: ", file.path, line)
                                                : fmt::format("{}:{}: ", file.path, line);
}

class DocumentBlocks::Reader {
 public:
  virtual ~Reader() = default;
  // Adds the parts of the next block; false at the end.
  virtual bool next(std::vector<TextPart>& parts) = 0;
  virtual std::uint64_t position() const = 0;
};

// Reads a text file: one document, split where the tokenizer allows it.
class DocumentBlocks::TextReader : public Reader {
 public:
  TextReader(const SourceFile& file, DocumentBlocks& blocks)
      : file_(file), blocks_(blocks), input_(open_input(file)) {}

  bool next(std::vector<TextPart>& parts) override {
    if (ended_) return false;
    std::size_t cut = find_cut();
    while (cut == std::string::npos && fill()) cut = find_cut();
    TextPart part{.continued = continued_, .place = line_, .column = column_};
    if (cut == std::string::npos) {
      part.text = std::move(text_);
      ended_ = true;
    } else {
      part.text = text_.substr(0, cut);
      text_.erase(0, cut);
      part.ends = false;
      continued_ = true;
      searched_ = 0;
      const auto last = part.text.rfind('\n');
      column_ = last == std::string::npos ? column_ + cut : cut - last - 1;
      line_ += std::ranges::count(part.text, '\n');
    }
    parts.push_back(std::move(part));
    return true;
  }
  std::uint64_t position() const override { return input_->position(); }

 private:
  // Reads more text; false at the file's end.
  bool fill() {
    if (text_.size() > kLongest) {
      throw RequestError(fmt::format(
          "{}the tokenizer can't tell where to cut the text in {} MiB from here on; give it as "
          "shorter documents, in a .jsonl file",
          place_of(file_, line_), kLongest >> 20));
    }
    const std::size_t before = text_.size();
    text_.resize(before + kBlock);
    text_.resize(before + input_->read(std::span(text_).subspan(before)));
    return text_.size() > before;
  }

  std::size_t find_cut() {
    if (text_.size() <= kBlock) return std::string::npos;
    if (!blocks_.encoder_.tokenizer) return kBlock;
    if (blocks_.encoder_.splits_after_lines) {
      const std::size_t line_end = text_.rfind('\n');
      if (line_end != std::string::npos) return line_end + 1;
    }
    // The last bytes may be an incomplete character.
    const std::string_view whole(text_.data(), text_.size() - 16);
    const std::size_t from = std::max(kBlock / 2, searched_);
    searched_ = whole.size() - 16;
    return blocks_.encoder_.tokenizer->next_split_point(whole, from, *blocks_.memory_);
  }

  const SourceFile& file_;
  DocumentBlocks& blocks_;
  std::unique_ptr<InputStream> input_;
  std::string text_;
  std::size_t searched_ = 0, column_ = 0;
  std::int64_t line_ = 1;
  bool continued_ = false, ended_ = false;
};

// Reads complete lines until they fill a block.
class DocumentBlocks::LineReader : public Reader {
 public:
  explicit LineReader(const SourceFile& file) : file_(file), input_(open_input(file)) {}

  bool next(std::vector<TextPart>& parts) override {
    std::size_t end = 0;  // the end of the complete lines
    while (!ended_ && (end == 0 || text_.size() < kBlock)) {
      const std::size_t before = text_.size();
      if (end == 0 && before > kLongest) {
        throw RequestError(fmt::format("{}the line is longer than {} MiB", place_of(file_, line_),
                                       kLongest >> 20));
      }
      text_.resize(before + kBlock);
      text_.resize(before + input_->read(std::span(text_).subspan(before)));
      ended_ = text_.size() == before;
      const auto last = text_.rfind('\n');
      end = ended_ ? text_.size() : last == std::string::npos ? 0 : last + 1;
    }
    if (text_.empty()) return false;
    if (ended_) end = text_.size();
    parts.push_back({.text = text_.substr(0, end), .lines = true, .place = line_});
    text_.erase(0, end);
    line_ += std::ranges::count(parts.back().text, '\n');
    return true;
  }
  std::uint64_t position() const override { return input_->position(); }

 private:
  const SourceFile& file_;
  std::unique_ptr<InputStream> input_;
  std::string text_;
  std::int64_t line_ = 1;
  bool ended_ = false;
};

class DocumentBlocks::RowReader : public Reader {
 public:
  RowReader(const SourceFile& file, const std::string& key) : rows_(file.path, key) {}

  bool next(std::vector<TextPart>& parts) override {
    std::string text;
    std::size_t size = 0;
    while (size < kBlock && rows_.next(text)) {
      size += text.size() + sizeof(TextPart);
      parts.push_back({.text = std::move(text), .place = ++row_});
    }
    return size > 0;
  }
  std::uint64_t position() const override { return 0; }

 private:
  ParquetRows rows_;
  std::int64_t row_ = 0;
};

DocumentBlocks::DocumentBlocks(const std::vector<SourceFile>& files, const DocumentEncoder& encoder)
    : files_(files), encoder_(encoder) {
  if (encoder.tokenizer) memory_.emplace(*encoder.tokenizer);
}

DocumentBlocks::~DocumentBlocks() = default;

std::optional<DocumentBlock> DocumentBlocks::next() {
  for (; file_ < files_.size(); ++file_) {
    const SourceFile& file = files_[file_];
    if (!reader_) {
      if (file.format == DocumentFormat::json_lines) {
        reader_ = std::make_unique<LineReader>(file);
      } else if (file.format == DocumentFormat::parquet) {
        reader_ = std::make_unique<RowReader>(file, encoder_.json_key);
      } else {
        reader_ = std::make_unique<TextReader>(file, *this);
      }
    }
    DocumentBlock block{.file = &file};
    if (reader_->next(block.parts)) return block;
    before_ += std::filesystem::file_size(file.path);
    reader_.reset();
  }
  return std::nullopt;
}

std::uint64_t DocumentBlocks::read() const {
  return before_ + (reader_ ? reader_->position() : 0);
}

}  // namespace trident
