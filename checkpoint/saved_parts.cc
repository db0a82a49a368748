#include "checkpoint/saved_parts.h"

#include <nlohmann/json.hpp>

#include "base/files/json.h"
#include "checkpoint/exchanged_texts.h"

namespace trident {
namespace {

using nlohmann::json;

std::string text_of(const std::vector<Slice>& slices) {
  json all = json::array();
  for (const Slice& s : slices) {
    json shape = json::array();
    for (int d = 0; d < s.shape.rank(); ++d) shape.push_back(s.shape.dim(d));
    all.push_back({s.state, s.parameter, static_cast<int>(s.dtype), shape, s.region.row,
                   s.region.column, s.region.rows, s.region.columns});
  }
  return json_text(all);
}

std::vector<Slice> slices_of(const std::string& text) {
  std::vector<Slice> slices;
  const json all = json_or_null(text);
  for (const json& s : all) {
    Shape shape;
    for (const json& extent : s[3]) shape.append(extent.get<std::int64_t>());
    slices.push_back({s[0].get<std::string>(),
                      s[1].get<std::string>(),
                      static_cast<DType>(s[2].get<int>()),
                      shape,
                      {s[4].get<std::int64_t>(), s[5].get<std::int64_t>(), s[6].get<std::int64_t>(),
                       s[7].get<std::int64_t>()}});
  }
  return slices;
}

}  // namespace

std::vector<std::vector<Slice>> exchanged_slices(Context& context, const ProcessGroup& group,
                                                 const std::vector<Slice>& own) {
  std::vector<std::vector<Slice>> all;
  for (const std::string& text : exchanged_texts(context, group, text_of(own))) {
    all.push_back(slices_of(text));
  }
  return all;
}

void add_slices(Manifest& manifest, const std::vector<Slice>& slices, const std::string& file) {
  for (const Slice& slice : slices) {
    SavedTensor& saved = manifest.tensors[saved_name(slice.state, slice.parameter)];
    saved.dtype = slice.dtype;
    saved.shape = slice.shape;
    saved.shards.push_back({file, slice.declaration().name, slice.region});
  }
}

BlockSums& FileSums::of(const std::string& file, std::uint64_t bytes) {
  return sums_.try_emplace(file, bytes, checkpoint_block).first->second;
}

void FileSums::join_at_first(Context& context, const ProcessGroup& group) {
  const std::vector<std::string> all = exchanged_texts(context, group, text());
  if (group.rank() != 0) return;
  for (std::size_t rank = 1; rank < all.size(); ++rank) join(all[rank]);
}

void FileSums::enter(Manifest& manifest) const {
  for (const auto& [name, sums] : sums_) manifest.files[name].blocks = sums.sums();
}

std::string FileSums::text() const {
  json all = json::object();
  for (const auto& [name, sums] : sums_) {
    json& parts = all[name] = json::array();
    for (std::size_t i = 0; i < sums.parts().size(); ++i) {
      if (sums.parts()[i] != 0) parts.push_back({i, sums.parts()[i]});
    }
  }
  return json_text(all);
}

void FileSums::join(const std::string& text) {
  const json all = json_or_null(text);
  for (const auto& [name, parts] : all.items()) {
    BlockSums& sums = sums_.at(name);
    std::vector<std::uint64_t> blocks(sums.parts().size());
    for (const json& part : parts) {
      blocks.at(part[0].get<std::size_t>()) = part[1].get<std::uint64_t>();
    }
    sums.join(blocks);
  }
}

}  // namespace trident
