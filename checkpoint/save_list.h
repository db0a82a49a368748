// What one rank writes of a checkpoint: which elements of its state go to which place of which
// file.
//
// Weights lie in the files of a Hugging Face directory, whole tensors into which ranks write their
// boxes; whatever else a run needs (master weights, optimizer state) in
// trident/state-*.safetensors, box by box. Ranks that hold the same elements share the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/context.h"
#include "engine/rank_model.h"
#include "formats/hugging_face/portions.h"
#include "formats/hugging_face/safetensors_layout.h"
#include "formats/hugging_face/whole_weights.h"
#include "parallel/state.h"

namespace trident {

// A box of a state that lies in a file as a tensor of its own.
struct Slice {
  std::string state, parameter;
  DType dtype = DType::f32;
  Shape shape;  // of the whole
  TensorSlice region;

  std::uint64_t bytes() const;
  TensorDeclaration declaration() const;  // "exp_avg/layers.0.mlp.up.weight@128,0"
};

// Whether a checkpoint holds it: what can't be had from the rest.
bool is_saved(const StateTensor&, DType weights);

// What this one of those that hold the same of a tensor writes of it, if anything: at least `least`
// bytes. Which of them begins changes from tensor to tensor, by its name: their lists differ.
std::optional<Share> share_of(const StateTensor&, const Holder&, std::uint64_t least);

// `bytes` summed over the tensors of which a rank writes a part: of this rank, or of the one of
// those that share its work with the largest sum.
std::int64_t largest_part(
    const State&, DType weights, std::uint64_t least,
    const std::function<std::int64_t(const StateTensor&, const Share&)>& bytes);

class SaveList {
 public:
  // As the file of a portion: this rank's slices, whose place there is counted from its first one.
  static constexpr std::size_t own_file = SIZE_MAX;
  // The same of weights.
  static constexpr std::size_t own_weights = SIZE_MAX - 1;
  static bool is_own(const FileWrite& write) { return write.file >= own_weights; }

  enum class Weights : bool { whole, slices };

  // `state` as Stepper::state() lists it; of it what is_saved(). Of what several ranks hold each
  // writes at least `min_slice` bytes of a tensor, or nothing.
  SaveList(const RankModel&, const State& state, std::uint64_t min_slice,
           const std::map<std::string, std::string>& metadata = {},
           Weights weights = Weights::whole);

  const std::vector<WholeWeight>& whole() const { return whole_; }
  const SafetensorsSetLayout& weights() const { return layout_; }
  // Error where `bytes`, which `write` is of, are weights that aren't finite.
  void require_finite(std::span<const std::byte> bytes, const FileWrite& write) const;
  // This rank's, in the order in which they lie in its file.
  const std::vector<Slice>& slices() const { return slices_; }
  std::uint64_t slice_bytes() const { return slice_bytes_; }

  // For files of weights(), or is_own().
  PortionList& portions() { return portions_; }

 private:
  void add_slices(const StateTensor&, const Share&);

  DType dtype_;  // of weights
  std::vector<WholeWeight> whole_;
  SafetensorsSetLayout layout_;
  std::vector<Slice> slices_;
  std::uint64_t slice_bytes_ = 0;
  PortionList portions_;
};

}  // namespace trident
