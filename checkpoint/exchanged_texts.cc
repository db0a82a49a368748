#include "checkpoint/exchanged_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace trident {

std::vector<std::string> exchanged_texts(Context& context, const ProcessGroup& group,
                                         const std::string& own) {
  const auto size = static_cast<std::int64_t>(own.size());
  const Tensor mine =
      context.from_host<std::int64_t>({1}, std::span(&size, 1), Category::communication);
  const Tensor sizes = context.empty({group.size()}, DType::i64, Category::communication);
  group.all_gather(context, mine, sizes);
  const std::vector<std::int64_t> all_sizes = context.to_host<std::int64_t>(sizes);
  std::vector<std::string> texts(all_sizes.size());
  const std::int64_t most = *std::ranges::max_element(all_sizes);
  if (most == 0) return texts;
  std::vector<std::uint8_t> padded(own.begin(), own.end());
  padded.resize(static_cast<std::size_t>(most));
  const Tensor sent = context.from_host<std::uint8_t>({most}, padded, Category::communication);
  const Tensor all = context.empty({most * group.size()}, DType::u8, Category::communication);
  group.all_gather(context, sent, all);
  const std::vector<std::uint8_t> bytes = context.to_host<std::uint8_t>(all);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const auto begin = bytes.begin() + most * static_cast<std::ptrdiff_t>(rank);
    texts[rank].assign(begin, begin + all_sizes[rank]);
  }
  return texts;
}

std::string agreed_failure(Context& context, const ProcessGroup& group, const std::string& own) {
  const std::vector<std::string> all = exchanged_texts(context, group, own);
  std::string text;
  std::vector<std::string> listed;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty() || std::ranges::find(listed, all[rank]) != listed.end()) continue;
    listed.push_back(all[rank]);
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : "\n", rank, all[rank]);
  }
  return text;
}

std::string text_from(Context& context, const ProcessGroup& group, int root,
                      const std::string& own) {
  const auto size = static_cast<std::int64_t>(own.size());
  const Tensor bytes =
      context.from_host<std::int64_t>({1}, std::span(&size, 1), Category::communication);
  group.broadcast(context, bytes, root);
  const std::int64_t count = context.to_host<std::int64_t>(bytes).front();
  if (count == 0) return "";
  std::vector<std::uint8_t> values(static_cast<std::size_t>(count));
  if (group.rank() == root) std::ranges::copy(own, values.begin());
  const Tensor text = context.from_host<std::uint8_t>({count}, values, Category::communication);
  group.broadcast(context, text, root);
  values = context.to_host<std::uint8_t>(text);
  return {values.begin(), values.end()};
}

}  // namespace trident
