#include "parallel/collectives/descriptor.h"

#include <fmt/format.h>

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

std::string rank_list(std::span<const int> ranks) {
  constexpr std::size_t shown = 12;
  if (ranks.size() <= shown) return fmt::format("{}", fmt::join(ranks, ","));
  return fmt::format("{},...,{}: {} ranks", fmt::join(ranks.first(shown - 1), ","), ranks.back(),
                     ranks.size());
}

}  // namespace trident
