// The part of a checkpoint that one rank writes: which elements of its state go to which
// position of which file.
//
// Weights lie in the files of a Hugging Face directory, as full tensors into which ranks write
// their slices. The other states that a run needs (master weights, optimizer state) lie in
// trident/state-*.safetensors, slice by slice. Ranks that hold the same elements share the work.
//
// Each rank computes its list from its own state, without communication.
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

// A slice of a state that a file stores as a tensor of its own.
struct Slice {
  std::string state, parameter;
  DType dtype = DType::f32;
  Shape shape;  // of the full tensor
  TensorSlice region;

  std::uint64_t bytes() const;
  TensorDeclaration declaration() const;  // "exp_avg/layers.0.mlp.up.weight@128,0"
};

// Whether checkpoints contain this tensor. They omit tensors that follow from the others.
// `weights`: the dtype of the weights.
bool is_saved(const StateTensor&, DType weights);

// The share of a tensor that this holder writes, of at least `least` bytes; nullopt if it writes
// none. A hash of the tensor's name decides which holder writes the first share, so that the work
// is spread.
std::optional<Share> share_of(const StateTensor&, const Holder&, std::uint64_t least);

// The sum of `bytes` over the tensors of which a rank writes a part. Returns the maximum over the
// ranks that share this rank's work.
std::int64_t largest_part(
    const State&, DType weights, std::uint64_t least,
    const std::function<std::int64_t(const StateTensor&, const Share&)>& bytes);

class SaveList {
 public:
  // Used as FileWrite::file. own_file: this rank's slices; offsets count from its first slice.
  static constexpr std::size_t own_file = SIZE_MAX;
  // own_weights: the same for slices of weights.
  static constexpr std::size_t own_weights = SIZE_MAX - 1;
  static bool is_own(const FileWrite& write) { return write.file >= own_weights; }

  enum class Weights : bool { full, slices };

  // Takes the tensors of `state`, as Stepper::state() lists it, for which is_saved() holds. Ranks
  // that hold the same tensor write at least `min_slice` bytes of it each, or nothing.
  SaveList(const RankModel&, const State& state, std::uint64_t min_slice,
           const std::map<std::string, std::string>& metadata = {},
           Weights weights = Weights::full);

  const std::vector<WholeWeight>& whole() const { return whole_; }
  const SafetensorsSetLayout& weights() const { return layout_; }
  // Throws Error if `write` is of weights and `bytes`, which are part of it, contain a number that
  // isn't finite.
  void require_finite(std::span<const std::byte> bytes, const FileWrite& write) const;
  // This rank's slices, in the order in which they lie in its file.
  const std::vector<Slice>& slices() const { return slices_; }
  std::uint64_t slice_bytes() const { return slice_bytes_; }

  // Portions for the files of weights(), or for is_own().
  PortionList& portions() { return portions_; }

 private:
  void add_slices(const StateTensor&, const Share&);
  DType dtype_at(const FileWrite&) const;  // of the weights that it is part of

  DType dtype_;  // of the model
  std::vector<WholeWeight> whole_;
  SafetensorsSetLayout layout_;
  std::vector<Slice> slices_;
  std::vector<std::uint64_t> slice_offsets_;
  std::uint64_t slice_bytes_ = 0;
  PortionList portions_;
};

}  // namespace trident
