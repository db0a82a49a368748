// Packs documents into rows of s tokens: best-fit decreasing within windows of consecutive
// documents. A document longer than s is first cut into pieces of s tokens and a rest. The pieces
// of a window go, longest first, each into the row with the least room that it fits, of several the
// first; where none has room a row begins. The rows depend on the documents alone.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "datasets/token_source.h"

namespace trident {

// Where documents of a source end, in its tokens (begin, end]: its own borders, or, where it is one
// document, behind each token `eod`. Ascending, each once. Throws as TokenSource::read().
std::vector<std::int64_t> document_ends(const TokenSource&, std::optional<std::int32_t> eod,
                                        std::int64_t begin, std::int64_t end);

// A part of a document, tokens [begin, begin + length) of the source.
struct PackedPiece {
  std::int64_t begin = 0;
  std::int32_t length = 0;
  bool continues = false;  // the document goes on behind it
  bool operator==(const PackedPiece&) const = default;
};
using PackedRow = std::vector<PackedPiece>;

// The rows of one window. `edges`: where its first document begins and where each document ends.
std::vector<PackedRow> pack_window(std::span<const std::int64_t> edges, std::int64_t sequence);

// How the documents of a source are packed.
struct PackingOptions {
  std::optional<std::int32_t> eod = {};  // as in document_ends()
  std::int64_t sequence = 0;             // s
  std::int64_t window = 0;               // documents of a window
  bool mask_labels = false;              // labels in another document don't count
  std::int64_t most_bytes = 64 << 20;    // of windows that are kept packed
};

// The rows of the tokens [begin, end) of a source, window by window. Thread-safe. The constructor
// reads the borders of all documents. The object keeps two numbers for each window, four bytes for
// each row, and the rows of windows in use.
class PackedDocuments {
 public:
  // The source must outlive it.
  PackedDocuments(const TokenSource&, std::int64_t begin, std::int64_t end, const PackingOptions&);

  std::int64_t rows() const { return first_rows_.back(); }
  // 0 <= i < rows(). Error if the source's documents have changed.
  PackedRow row(std::int64_t i) const;
  // The labels of row i that count.
  std::int64_t counted(std::int64_t i) const { return counted_[static_cast<std::size_t>(i)]; }

 private:
  using Window = std::shared_ptr<const std::vector<PackedRow>>;
  Window window_at(std::size_t number) const;

  const TokenSource& source_;
  PackingOptions options_;
  std::vector<std::int64_t> begins_;      // of each window, in tokens; then the end
  std::vector<std::int64_t> first_rows_;  // of each window; then the number of all rows
  std::vector<std::uint32_t> counted_;    // by row
  struct Kept {
    std::mutex mutex;
    std::map<std::size_t, std::pair<Window, std::list<std::size_t>::iterator>> windows;
    std::list<std::size_t> by_use;  // the latest first
    std::int64_t bytes = 0;
  };
  std::unique_ptr<Kept> kept_;
};

}  // namespace trident
