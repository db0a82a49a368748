#include "core/ledger.h"

#include <algorithm>

namespace trident {

std::string_view name_of(Category category) {
  switch (category) {
    case Category::parameter:
      return "parameter";
    case Category::gradient:
      return "gradient";
    case Category::optimizer:
      return "optimizer";
    case Category::activation:
      return "activation";
    case Category::communication:
      return "communication";
    case Category::workspace:
      return "workspace";
    case Category::staging:
      return "staging";
  }
  return "?";
}

void Ledger::take(Category category, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto i = static_cast<std::size_t>(category);
  figures_.current[i] += bytes;
  figures_.peak[i] = std::max(figures_.peak[i], figures_.current[i]);
  figures_.total += bytes;
  figures_.peak_total = std::max(figures_.peak_total, figures_.total);
  ++figures_.taken;
}

void Ledger::give_back(Category category, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  figures_.current[static_cast<std::size_t>(category)] -= bytes;
  figures_.total -= bytes;
}

Ledger::Figures Ledger::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

void Ledger::reset_peaks() {
  const std::lock_guard lock(mutex_);
  figures_.peak = figures_.current;
  figures_.peak_total = figures_.total;
}

}  // namespace trident
