// A map from byte strings to numbers that finds all entries that a text begins with. Concurrent
// readers are safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trident {

class ByteTrie {
 public:
  ByteTrie() { add_node(); }

  // Adds a text with a number >= 0. A known text gets the new number. The empty text is ignored.
  void add(std::string_view text, std::int32_t number);

  // Calls visit(bytes, number) for each entry that `text` begins with, the shortest first.
  template <class Visit>
  void each_prefix(std::string_view text, Visit visit) const {
    std::int32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node < 0) return;
      const std::int32_t number = numbers_[static_cast<std::size_t>(node)];
      if (number >= 0) visit(i + 1, number);
    }
  }

  bool begins_some(unsigned char byte) const { return child(0, byte) >= 0; }
  bool empty() const { return numbers_.size() == 1; }

 private:
  // The child of a node, from a hash table of all edges, (node, byte) to node; -1: none.
  std::int32_t child(std::int32_t node, unsigned char byte) const {
    const std::uint64_t key = static_cast<std::uint64_t>(node) << 8 | byte;
    for (std::size_t at = place(key);; at = (at + 1) & (edges_.size() - 1)) {
      if (edges_[at].key == key) return edges_[at].node;
      if (edges_[at].node < 0) return -1;
    }
  }
  std::size_t place(std::uint64_t key) const {
    return (key * 0x9e3779b97f4a7c15u >> 32) & (edges_.size() - 1);
  }
  std::int32_t add_node();
  void insert(std::uint64_t key, std::int32_t node);

  struct Edge {
    std::uint64_t key = ~std::uint64_t{0};
    std::int32_t node = -1;  // -1: free
  };
  std::vector<Edge> edges_ = std::vector<Edge>(64);
  std::vector<std::int32_t> numbers_;  // the number of the text that ends at a node; -1: none
};

}  // namespace trident
