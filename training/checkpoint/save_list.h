// What one rank writes of a checkpoint: which elements of its state go to which place of which
// file.
//
// Weights lie in the files of a Hugging Face directory, whole tensors into which ranks write their
// boxes; whatever else a run needs (master weights, optimizer state) in
// trident/state-*.safetensors, box by box. Ranks that hold the same elements share the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/context.h"
#include "parallel/state.h"
#include "training/engine/rank_model.h"
#include "training/hugging_face/safetensors_layout.h"

namespace trident {

// Bytes on their way to files.
struct Portion {
  struct Write {
    std::size_t file = 0;      // SaveList::own_file, or one of SaveList::weights()
    std::uint64_t offset = 0;  // in the file, of own_file behind where this rank's slices begin
    std::size_t begin = 0, count = 0;  // of `bytes`
  };
  std::vector<std::byte> bytes;
  std::vector<Write> writes;
};

// A box of a state that lies in a file as a tensor of its own.
struct Slice {
  std::string state, parameter;
  DType dtype = DType::f32;
  Shape shape;  // of the whole
  Box box;

  std::uint64_t bytes() const;
  TensorDeclaration declaration() const;  // "exp_avg/layers.0.mlp.up.weight@128,0"
};

// A whole weight, as it lies in the Hugging Face files.
struct WholeWeight {
  std::string name;
  Shape shape;
  std::vector<HuggingFaceTensor> tensors;
};
// Of all stages, in the order of the files.
std::vector<WholeWeight> whole_weights(const RankModel&);

class SaveList {
 public:
  static constexpr std::size_t own_file = SIZE_MAX;
  // Bytes of state that a portion has at most, unless a row has more.
  static constexpr std::size_t portion_bytes = std::size_t{16} << 20;

  // `state` as Stepper::state() lists it; of it what can't be had from the rest. Of what several
  // ranks hold each writes at least `min_slice` bytes of a tensor, or nothing.
  SaveList(const RankModel&, const State& state, std::uint64_t min_slice,
           const std::map<std::string, std::string>& metadata = {});

  const std::vector<WholeWeight>& whole() const { return whole_; }
  const SafetensorsSetLayout& weights() const { return layout_; }
  // This rank's, in the order in which they lie in its file.
  const std::vector<Slice>& slices() const { return slices_; }
  std::uint64_t slice_bytes() const { return slice_bytes_; }

  // The next portion, copied from the tensors as they are now; nothing after the last.
  std::optional<Portion> next(Context&);
  void rewind() { next_ = 0; }

 private:
  // Where the elements of a whole tensor lie in a file: (row, column) of it `pitch` elements times
  // (row - box.row) behind `offset`, plus column - box.column; transposed the other way round.
  struct Place {
    std::size_t file = own_file;
    std::uint64_t offset = 0;
    std::int64_t row = 0, column = 0, pitch = 0;
    bool transposed = false;
  };
  // Rows of a box that this rank writes, from its part of the tensor.
  struct Part {
    Tensor tensor;
    HeldBox held;  // `local` counted in `tensor`
    Place place;
  };
  void add_weight(const StateTensor&, std::int64_t begin, std::int64_t count);
  void add_slices(const StateTensor&, std::int64_t begin, std::int64_t count);
  void add(const StateTensor&, const HeldBox&, const Place&);

  std::vector<WholeWeight> whole_;
  SafetensorsSetLayout layout_;
  std::vector<Slice> slices_;
  std::uint64_t slice_bytes_ = 0;
  std::vector<Part> parts_;  // each a portion
  std::size_t next_ = 0;
};

}  // namespace trident
