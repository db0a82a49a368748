#include "parallel/collectives/descriptor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/files/content_hash.h"
#include "parallel/collectives/algorithm_choice.h"

namespace trident {

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::all_gather:
      return "all_gather";
    case Operation::broadcast:
      return "broadcast";
    case Operation::reduce:
      return "reduce";
    case Operation::gather:
      return "gather";
    case Operation::scatter:
      return "scatter";
    case Operation::all_to_all:
      return "all_to_all";
    case Operation::barrier:
      return "barrier";
    case Operation::split:
      return "split";
    case Operation::message:
      return "message";
    case Operation::all_to_all_v:
      return "all_to_all_v";
  }
  return "unknown";
}

namespace {

bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter ||
         operation == Operation::reduce;
}

}  // namespace

std::string to_string(const Descriptor& d, std::span<const int> members,
                      std::span<const Collective> more) {
  if (d.operation == Operation::barrier || d.operation == Operation::split) {
    return fmt::format("{}()", name_of(d.operation));
  }
  if (d.operation == Operation::all_to_all_v) {
    return fmt::format("all_to_all_v({}, counts {:016x})", name_of(d.dtype), d.count);
  }
  std::string text = fmt::format("{}[{}]", name_of(d.dtype), d.count);
  if (d.operation == Operation::message) return text;
  if (reduces(d.operation)) text += fmt::format(", {}", name_of(d.reduce_op));
  if (d.root >= 0 && d.root < static_cast<int>(members.size())) {
    text += fmt::format(", root {}", members[static_cast<std::size_t>(d.root)]);
  }
  if (const Collective* const row = row_of(d.operation, d.algorithm, more)) {
    text += fmt::format(", {}", row->name);
  } else if (d.algorithm != Algorithm::direct) {
    text += fmt::format(", algorithm {}", static_cast<int>(d.algorithm));
  }
  return fmt::format("{}({})", name_of(d.operation), text);
}

std::int64_t CountsTable::input_begin(int member, int to) const {
  std::int64_t begin = 0;
  for (int p = 0; p < to; ++p) begin += sent(member, p);
  return begin;
}

std::int64_t CountsTable::output_begin(int member, int from) const {
  std::int64_t begin = 0;
  for (int r = 0; r < from; ++r) begin += sent(r, member);
  return begin;
}

std::int64_t CountsTable::most() const {
  if (!is_complete()) return *std::ranges::max_element(counts);
  std::int64_t most = 0;
  for (int from = 0; from < members; ++from) {
    for (int to = 0; to < members; ++to) {
      if (from != to) most = std::max(most, sent(from, to));
    }
  }
  return most;
}

std::int64_t CountsTable::hash() const {
  const auto* const bytes = reinterpret_cast<const char*>(counts.data());
  const std::uint64_t hash =
      content_hash(std::string_view(bytes, counts.size() * sizeof(counts[0])));
  return static_cast<std::int64_t>((hash ^ (std::uint64_t{from_step} << 1)) >> 1);
}

std::string rank_list(std::span<const int> ranks) {
  constexpr std::size_t shown = 12;
  if (ranks.size() <= shown) return fmt::format("{}", fmt::join(ranks, ","));
  return fmt::format("{},...,{}: {} ranks", fmt::join(ranks.first(shown - 1), ","), ranks.back(),
                     ranks.size());
}

}  // namespace trident
