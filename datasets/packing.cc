#include "datasets/packing.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"

namespace trident {
namespace {

constexpr std::int64_t kTokensAtOnce = 1'000'000;  // whose borders are read together

}  // namespace

std::vector<std::int64_t> document_ends(const TokenSource& source, std::optional<std::int32_t> eod,
                                        std::int64_t begin, std::int64_t end) {
  if (source.has_documents() || !eod) return source.document_edges(begin, end);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(end - begin));
  source.read(begin, tokens);
  std::vector<std::int64_t> ends;
  for (std::int64_t i = begin; i < end; ++i) {
    if (tokens[static_cast<std::size_t>(i - begin)] == *eod) ends.push_back(i + 1);
  }
  return ends;
}

std::vector<PackedRow> pack_window(std::span<const std::int64_t> edges, std::int64_t sequence) {
  std::vector<PackedPiece> pieces;
  for (std::size_t i = 1; i < edges.size(); ++i) {
    for (std::int64_t at = edges[i - 1]; at < edges[i]; at += sequence) {
      const std::int64_t length = std::min(sequence, edges[i] - at);
      pieces.push_back({at, static_cast<std::int32_t>(length), at + length < edges[i]});
    }
  }
  std::ranges::stable_sort(pieces, std::ranges::greater(), &PackedPiece::length);
  std::vector<PackedRow> rows;
  std::set<std::pair<std::int64_t, std::size_t>> open;  // room of a row, and its number
  for (const PackedPiece& piece : pieces) {
    auto fits = open.lower_bound({piece.length, 0});
    if (fits == open.end()) {
      fits = open.insert({sequence, rows.size()}).first;
      rows.emplace_back();
    }
    const auto [room, row] = *fits;
    open.erase(fits);
    rows[row].push_back(piece);
    if (room > piece.length) open.insert({room - piece.length, row});
  }
  return rows;
}

namespace {

std::int64_t counted_labels(const PackedRow& row, bool mask_labels) {
  std::int64_t counted = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool has_next = i + 1 < row.size() && !mask_labels;
    counted += row[i].length - (row[i].continues || has_next ? 0 : 1);
  }
  return counted;
}

std::int64_t packed_bytes(const std::vector<PackedRow>& rows) {
  std::size_t bytes = rows.size() * sizeof(PackedRow);
  for (const PackedRow& row : rows) bytes += row.capacity() * sizeof(PackedPiece);
  return static_cast<std::int64_t>(bytes);
}

// Calls visit() with the ends of the documents in (begin, end], a range of tokens at a time.
template <class Visit>
void each_end(const TokenSource& source, std::optional<std::int32_t> eod, std::int64_t begin,
              std::int64_t end, Visit visit) {
  std::int64_t last = begin;
  for (std::int64_t at = begin; at < end; at += kTokensAtOnce) {
    for (const std::int64_t edge :
         document_ends(source, eod, at, std::min(end, at + kTokensAtOnce))) {
      visit(last = edge);
    }
  }
  if (last < end) visit(end);  // of a document that goes on behind it
}

}  // namespace

PackedDocuments::PackedDocuments(const TokenSource& source, std::int64_t begin, std::int64_t end,
                                 const PackingOptions& options)
    : source_(source),
      options_(options),
      begins_{begin},
      first_rows_{0},
      kept_(std::make_unique<Kept>()) {
  std::vector<std::int64_t> edges{begin};
  each_end(source, options.eod, begin, end, [&](std::int64_t edge) {
    edges.push_back(edge);
    if (std::ssize(edges) <= options.window && edge < end) return;
    const std::vector<PackedRow> rows = pack_window(edges, options.sequence);
    for (const PackedRow& row : rows) {
      counted_.push_back(static_cast<std::uint32_t>(counted_labels(row, options.mask_labels)));
    }
    first_rows_.push_back(first_rows_.back() + std::ssize(rows));
    begins_.push_back(edge);
    edges = {edge};
  });
}

PackedDocuments::Window PackedDocuments::window_at(std::size_t number) const {
  const std::scoped_lock lock(kept_->mutex);
  const auto found = kept_->windows.find(number);
  if (found != kept_->windows.end()) {
    kept_->by_use.splice(kept_->by_use.begin(), kept_->by_use, found->second.second);
    return found->second.first;
  }
  std::vector<std::int64_t> edges{begins_[number]};
  each_end(source_, options_.eod, begins_[number], begins_[number + 1],
           [&](std::int64_t edge) { edges.push_back(edge); });
  auto window =
      std::make_shared<const std::vector<PackedRow>>(pack_window(edges, options_.sequence));
  if (std::ssize(*window) != first_rows_[number + 1] - first_rows_[number]) {
    throw Error(source_.path() + ": its documents have changed since it was opened");
  }
  kept_->by_use.push_front(number);
  kept_->windows[number] = {window, kept_->by_use.begin()};
  kept_->bytes += packed_bytes(*window);
  while (kept_->bytes > options_.most_bytes && kept_->by_use.size() > 1) {
    const auto oldest = kept_->windows.find(kept_->by_use.back());
    kept_->bytes -= packed_bytes(*oldest->second.first);
    kept_->windows.erase(oldest);
    kept_->by_use.pop_back();
  }
  return window;
}

PackedRow PackedDocuments::row(std::int64_t i) const {
  const auto after = std::ranges::upper_bound(first_rows_, i);
  const auto number = static_cast<std::size_t>(after - first_rows_.begin()) - 1;
  return (*window_at(number))[static_cast<std::size_t>(i - first_rows_[number])];
}

}  // namespace trident
