#include "training/checkpoint/checkpoint_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/error.h"
#include "core/json.h"
#include "training/checkpoint/exchanged_texts.h"
#include "training/hugging_face/safetensors.h"

namespace trident {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A file of slices: some consecutive ranks', one after the other.
struct SliceFile {
  std::string name;
  SafetensorsLayout layout;
};

std::string text_of(const std::vector<Slice>& slices) {
  json all = json::array();
  for (const Slice& s : slices) {
    json shape = json::array();
    for (int d = 0; d < s.shape.rank(); ++d) shape.push_back(s.shape.dim(d));
    all.push_back({s.state, s.parameter, static_cast<int>(s.dtype), shape, s.box.row, s.box.column,
                   s.box.rows, s.box.columns});
  }
  return json_text(all);
}

std::vector<Slice> slices_of(const std::string& text) {
  std::vector<Slice> slices;
  const json all = json_or_null(text);
  for (const json& s : all) {
    const json& shape = s[3];
    slices.push_back({s[0].get<std::string>(),
                      s[1].get<std::string>(),
                      static_cast<DType>(s[2].get<int>()),
                      shape.size() == 1
                          ? Shape{shape[0].get<std::int64_t>()}
                          : Shape{shape[0].get<std::int64_t>(), shape[1].get<std::int64_t>()},
                      {s[4].get<std::int64_t>(), s[5].get<std::int64_t>(), s[6].get<std::int64_t>(),
                       s[7].get<std::int64_t>()}});
  }
  return slices;
}

// A number whose exponent bits are all ones is infinite or none.
template <class Bits>
bool all_finite(std::span<const std::byte> bytes, Bits exponent) {
  bool finite = true;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, &bytes[i], sizeof bits);
    finite &= (bits & exponent) != exponent;
  }
  return finite;
}

bool all_finite(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return all_finite<std::uint64_t>(bytes, 0x7ff0'0000'0000'0000);
    case DType::f32:
      return all_finite<std::uint32_t>(bytes, 0x7f80'0000);
    case DType::bf16:
      return all_finite<std::uint16_t>(bytes, 0x7f80);
    case DType::f16:
      return all_finite<std::uint16_t>(bytes, 0x7c00);
    default:
      return true;
  }
}

class CheckpointWriter {
 public:
  CheckpointWriter(Context& context, const ProcessGroup& group, const SaveList& list,
                   const CheckpointPlace& place, const CheckpointInfo& info)
      : context_(context), group_(group), list_(list), place_(place), info_(info) {}

  std::string run(const EachPortion& each) {
    const auto declared = exchanged_texts(context_, group_, text_of(list_.slices()));
    for (const std::string& text : declared) slices_.push_back(slices_of(text));
    std::string failure = attempt([&] {
      choose_files();
      make_files();
    });
    bool good = agreed(failure);
    if (good) failure = attempt([&] { write(each); });
    if (good) good = agreed(failure);
    if (!good) return give_up(failure);
    const std::vector<std::string> sums = exchanged_texts(context_, group_, sums_text());
    failure = attempt([&] { put_into_place(sums); });
    return agreed(failure) ? "" : give_up(failure);
  }

 private:
  bool leads() const { return group_.rank() == 0; }

  template <class Action>
  std::string attempt(const Action& action) {
    try {
      action();
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  // Whether nothing has failed anywhere; `failure` becomes what has.
  bool agreed(std::string& failure) {
    failure = agreed_failure(context_, group_, failure);
    return failure.empty();
  }

  std::string give_up(const std::string& failure) {
    files_.clear();
    if (leads()) attempt([&] { place_.files->remove(place_.saving); });
    return failure;
  }

  // Which ranks share which file of slices.
  void choose_files() {
    const auto ranks = static_cast<std::int64_t>(slices_.size());
    std::uint64_t bytes = 0;
    for (const auto& own : slices_) {
      for (const Slice& slice : own) bytes += slice.bytes();
    }
    if (bytes == 0) return;
    std::int64_t count = place_.max_writers > 0 ? std::min(ranks, place_.max_writers) : ranks;
    if (place_.min_slice > 0) {
      count =
          std::clamp<std::int64_t>(static_cast<std::int64_t>(bytes / place_.min_slice), 1, count);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      SliceFile& file = slice_files_.emplace_back();
      file.name = fmt::format("trident/state-{:05}-of-{:05}.safetensors", i + 1, count);
      std::vector<TensorDeclaration> tensors;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        if (rank * count / ranks != i) continue;
        if (rank == group_.rank()) own_file_ = slice_files_.size() - 1;
        if (rank == group_.rank()) own_first_ = tensors.size();
        for (const Slice& slice : slices_[static_cast<std::size_t>(rank)]) {
          tensors.push_back(slice.declaration());
        }
      }
      file.layout = lay_out(std::move(tensors), {{"format", "pt"}}, place_.folder);
    }
  }

  std::string path(const std::string& name) const {
    return (fs::path(place_.saving) / name).string();
  }

  BlockSums& sums_of(const std::string& name, std::uint64_t bytes) {
    return sums_.try_emplace(name, bytes, checkpoint_block).first->second;
  }

  void make_files() {
    if (!leads()) return;
    if (place_.before) place_.before();
    place_.files->remove(place_.saving);
    place_.files->make_directory(place_.saving);
    place_.files->make_directory(path("trident"));
    const auto make = [&](const std::string& name, const SafetensorsLayout& layout) {
      OutputFile& file = *(files_[name] = place_.files->create(path(name), layout.bytes));
      file.write_at(0, as_bytes_of(layout.head));
      sums_of(name, layout.bytes).add(0, as_bytes_of(layout.head));
    };
    for (const auto& file : list_.weights().files) make(file.name, file.layout);
    for (const SliceFile& file : slice_files_) make(file.name, file.layout);
  }

  void write(const EachPortion& each) {
    each([&](std::span<const std::byte> bytes, std::span<const FileWrite> writes) {
      for (const FileWrite& one : writes) {
        const bool own = one.file == SaveList::own_file;
        const std::string& name =
            own ? slice_files_[own_file_].name : list_.weights().files[one.file].name;
        const SafetensorsLayout& layout =
            own ? slice_files_[own_file_].layout : list_.weights().files[one.file].layout;
        const std::uint64_t offset = one.offset + (own ? layout.offsets[own_first_] : 0);
        const auto part = bytes.subspan(one.begin, one.count);
        if (!own && !all_finite(part, list_.weight_dtype())) {
          throw Error("the weights are not finite");
        }
        std::unique_ptr<OutputFile>& file = files_[name];
        if (!file) file = place_.files->open(path(name));
        sums_of(name, layout.bytes).add(offset, part);
        file->write_at(offset, part);
      }
    });
    for (auto& [name, file] : files_) file->finish();
    files_.clear();
  }

  std::string sums_text() const {
    json all = json::object();
    for (const auto& [name, sums] : sums_) {
      json& parts = all[name] = json::array();
      for (std::size_t i = 0; i < sums.parts().size(); ++i) {
        if (sums.parts()[i] != 0) parts.push_back({i, sums.parts()[i]});
      }
    }
    return json_text(all);
  }

  void join(const std::string& text) {
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

  void put_into_place(const std::vector<std::string>& sums) {
    if (!leads()) return;
    for (std::size_t rank = 1; rank < sums.size(); ++rank) join(sums[rank]);
    std::map<std::string, std::string> texts = info_.files;
    if (!list_.weights().index.empty()) {
      texts["model.safetensors.index.json"] = list_.weights().index;
    }
    for (const auto& [name, text] : texts) {
      place_.files->write(path(name), text);
      sums_of(name, text.size()).add(0, as_bytes_of(text));
    }
    place_.files->write(path(manifest_name), manifest());
    place_.files->sync_directory(path("trident"));
    place_.files->sync_directory(place_.saving);
    place_.files->rename(place_.saving, place_.folder);
    place_.files->sync_directory(fs::path(place_.folder).parent_path().string());
    // Where another one was, that is there now.
    attempt([&] { place_.files->remove(place_.saving); });
  }

  std::string manifest() const {
    Manifest manifest = info_.manifest;
    const SafetensorsSetLayout& weights = list_.weights();
    for (const auto& file : weights.files) manifest.files[file.name].bytes = file.layout.bytes;
    for (const WholeWeight& weight : list_.whole()) {
      const std::int64_t columns = weight.shape.rank() == 1 ? 1 : weight.shape.dim(1);
      SavedTensor& saved = manifest.tensors[saved_name("weight", weight.name)];
      saved.shape = weight.shape;
      for (const HuggingFaceTensor& tensor : weight.tensors) {
        const auto& file = weights.files[weights.places.find(tensor.name)->second.file];
        saved.dtype =
            std::ranges::find(file.layout.tensors, tensor.name, &TensorDeclaration::name)->dtype;
        saved.pieces.push_back({file.name,
                                tensor.name,
                                {tensor.row_begin, 0, tensor.rows, columns},
                                tensor.transposed});
      }
    }
    for (const auto& [name, sums] : sums_) manifest.files[name].blocks = sums.sums();
    for (const SliceFile& file : slice_files_) manifest.files[file.name].bytes = file.layout.bytes;
    for (const auto& [name, text] : info_.files) manifest.files[name].bytes = text.size();
    if (!weights.index.empty()) {
      manifest.files["model.safetensors.index.json"].bytes = weights.index.size();
    }
    const std::size_t count = slice_files_.size();
    for (std::size_t rank = 0; rank < slices_.size(); ++rank) {
      for (const Slice& slice : slices_[rank]) {
        SavedTensor& saved = manifest.tensors[saved_name(slice.state, slice.parameter)];
        saved.dtype = slice.dtype;
        saved.shape = slice.shape;
        saved.pieces.push_back({slice_files_[rank * count / slices_.size()].name,
                                slice.declaration().name, slice.box});
      }
    }
    const std::string text = manifest_text(manifest);
    parse_manifest(text, path(manifest_name));  // what can't be read back is no checkpoint
    return text;
  }

  Context& context_;
  const ProcessGroup& group_;
  const SaveList& list_;
  const CheckpointPlace& place_;
  const CheckpointInfo& info_;
  std::vector<std::vector<Slice>> slices_;  // by rank
  std::vector<SliceFile> slice_files_;
  std::size_t own_file_ = 0, own_first_ = 0;  // this rank's file, and its first slice there
  std::map<std::string, BlockSums> sums_;     // of files that this rank has written to
  std::map<std::string, std::unique_ptr<OutputFile>> files_;
};

}  // namespace

std::string write_checkpoint(Context& context, const ProcessGroup& group, const SaveList& list,
                             const CheckpointPlace& place, const CheckpointInfo& info,
                             const EachPortion& each) {
  return CheckpointWriter(context, group, list, place, info).run(each);
}

}  // namespace trident
