// The ledger of a rank's memory: it counts, by category, the bytes that tensors take and give back.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace trident {

enum class Category : std::uint8_t {
  parameter,
  gradient,
  optimizer,
  activation,
  communication,
  workspace,
  staging  // copies of the training state on their way to a checkpoint
};
inline constexpr int category_count = 7;
std::string_view name_of(Category category);

// Bytes are the tensors' own bytes, before any rounding by the allocator. Any thread may call it: a
// device's stream thread gives tensors back, too.
class Ledger {
 public:
  void take(Category category, std::int64_t bytes);
  void give_back(Category category, std::int64_t bytes);

  struct Figures {
    std::array<std::int64_t, category_count> current{};  // bytes now
    std::array<std::int64_t, category_count> peak{};     // highest bytes of each category
    std::int64_t total = 0;                              // bytes now
    std::int64_t peak_total = 0;                         // highest sum over the categories
    std::int64_t taken = 0;                              // number of take() calls
  };
  Figures figures() const;
  void reset_peaks();  // sets the peaks to the current values

 private:
  mutable std::mutex mutex_;
  Figures figures_;
};

}  // namespace trident
