#include "engine/gather_bytes.h"

namespace trident {

std::vector<std::vector<std::uint8_t>> gather_bytes(Context& context, const ProcessGroup& group,
                                                    std::span<const std::uint8_t> mine,
                                                    std::size_t most) {
  std::vector<std::uint8_t> padded(mine.begin(), mine.end());
  padded.resize(most);
  const auto bytes = static_cast<std::int64_t>(most);
  const Tensor sent = context.from_host<std::uint8_t>({bytes}, padded, Category::communication);
  Tensor all;
  if (group.rank() == 0) {
    all = context.empty({bytes * group.size()}, DType::u8, Category::communication);
  }
  group.gather(context, sent, all, 0);
  if (group.rank() != 0) {
    context.synchronize();
    return {};
  }
  const std::vector<std::uint8_t> gathered = context.to_host<std::uint8_t>(all);
  std::vector<std::vector<std::uint8_t>> parts;
  for (int r = 0; r < group.size(); ++r) {
    const auto begin = gathered.begin() + static_cast<std::ptrdiff_t>(most) * r;
    parts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(most));
  }
  return parts;
}

}  // namespace trident
