#include "datasets/tokenizer/byte_trie.h"

namespace trident {

std::int32_t ByteTrie::add_node() {
  numbers_.push_back(-1);
  return static_cast<std::int32_t>(numbers_.size() - 1);
}

void ByteTrie::insert(std::uint64_t key, std::int32_t node) {
  std::size_t at = place(key);
  while (edges_[at].node >= 0) at = (at + 1) & (edges_.size() - 1);
  edges_[at] = {key, node};
}

void ByteTrie::add(std::string_view text, std::int32_t number) {
  if (text.empty()) return;
  std::int32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = add_node();
      if (numbers_.size() * 2 > edges_.size()) {
        const std::vector<Edge> before = std::move(edges_);
        edges_ = std::vector<Edge>(before.size() * 2);
        for (const Edge& edge : before) {
          if (edge.node >= 0) insert(edge.key, edge.node);
        }
      }
      insert(static_cast<std::uint64_t>(node) << 8 | byte, next);
    }
    node = next;
  }
  numbers_[static_cast<std::size_t>(node)] = number;
}

}  // namespace trident
