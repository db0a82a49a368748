#include "models/balanced_routing.h"

#include <cstddef>

namespace trident {

std::vector<float> balanced_logits(const RouterShape& router, std::int64_t rows,
                                   std::int64_t first_row) {
  // So far apart that biases of up to a half in size do not change the choice.
  constexpr float chosen = 8, other = -8;
  const std::int64_t size = router.experts / router.groups;  // of a group
  const std::int64_t groups = router.groups > 1 ? router.group_topk : 1;
  // The most experts that a token takes of one group; the last groups may give one less.
  const std::int64_t most = (router.topk + groups - 1) / groups;
  std::vector<float> logits(static_cast<std::size_t>(rows * router.experts), other);
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t k = 0; k < router.topk; ++k) {
      const std::int64_t turn = (first_row + t) * groups + k % groups;
      const std::int64_t group = turn % router.groups;
      const std::int64_t expert = (turn / router.groups * most + k / groups) % size;
      logits[static_cast<std::size_t>(t * router.experts + group * size + expert)] = chosen;
    }
  }
  return logits;
}

}  // namespace trident
