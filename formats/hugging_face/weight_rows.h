// A tensor of a Hugging Face directory, read as rows of a parameter. It reads files and isn't
// collective.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/hugging_face/hugging_face_check.h"
#include "formats/hugging_face/safetensors.h"
#include "models/architecture.h"
#include "parallel/placement.h"

namespace trident {

class WeightRows {
 public:
  // Throws RequestError if the set lacks the tensor or it doesn't fit (checked_tensor()
  // in hugging_face_check.h). The set must outlive this object.
  WeightRows(const SafetensorsSet& set, HuggingFaceTensor tensor, const Shape& global, bool grown);

  // The slice of the full parameter that this tensor holds; it has fewer rows than the parameter if
  // the vocabulary has grown.
  TensorSlice slice() const;
  // Reads rows [begin, end) of the parameter, (rows, columns). A tensor that is stored transposed
  // is read completely.
  std::vector<float> read(std::int64_t begin, std::int64_t end) const;
  const SafetensorsEntry& entry() const { return *found_.entry; }
  bool transposed() const { return tensor_.transposed; }
  const std::string& directory() const { return set_.directory(); }

 private:
  const SafetensorsSet& set_;
  HuggingFaceTensor tensor_;
  FoundTensor found_;
  std::int64_t rows_, columns_;
};

}  // namespace trident
