#include "checkpoint/checkpoint_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/bytes.h"
#include "checkpoint/collective_steps.h"
#include "checkpoint/saved_parts.h"
#include "formats/hugging_face/safetensors.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWriteSlice = std::size_t{256}
                                    << 10;  // is read more than once while it is in the cache

// A file of slices of some consecutive ranks, one after the other.
struct SliceFile {
  std::string name;
  SafetensorsLayout layout;
};

class CheckpointWriter {
 public:
  CheckpointWriter(Context& context, const ProcessGroup& group, const SaveList& list,
                   const CheckpointPlace& place, const CheckpointInfo& info)
      : context_(context), group_(group), list_(list), place_(place), info_(info) {}

  std::string run(const EachPortion& each) {
    slices_ = exchanged_slices(context_, group_, list_.slices());
    CollectiveSteps steps(context_, group_);
    const bool good = steps.take([&] {
      choose_files();
      make_files();
    }) && steps.take([&] { write(each); });
    if (good) sums_.join_at_first(context_, group_);
    if (!good || !steps.take([&] { put_into_place(); })) give_up();
    return steps.failure();
  }

 private:
  bool leads() const { return group_.rank() == 0; }

  void give_up() {
    files_.clear();
    if (leads()) attempt([&] { place_.files->remove(place_.saving); });
  }

  // Chooses which ranks share which file of slices.
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

  void make_files() {
    if (!leads()) return;
    if (place_.before) place_.before();
    place_.files->remove(place_.saving);
    place_.files->make_directory(place_.saving);
    place_.files->make_directory(path("trident"));
    const auto make = [&](const std::string& name, const SafetensorsLayout& layout) {
      OutputFile& file = *(files_[name] = place_.files->create(path(name), layout.bytes));
      file.write_at(0, as_bytes_of(layout.head));
      sums_.of(name, layout.bytes).add(0, as_bytes_of(layout.head));
    };
    for (const auto& file : list_.weights().files) make(file.name, file.layout);
    for (const SliceFile& file : slice_files_) make(file.name, file.layout);
  }

  void write(const EachPortion& each) {
    each([&](std::span<const std::byte> bytes, std::span<const FileWrite> writes) {
      for (const FileWrite& one : writes) {
        const bool own = SaveList::is_own(one);
        const std::string& name =
            own ? slice_files_[own_file_].name : list_.weights().files[one.file].name;
        const SafetensorsLayout& layout =
            own ? slice_files_[own_file_].layout : list_.weights().files[one.file].layout;
        const std::uint64_t offset = one.offset + (own ? layout.offsets[own_first_] : 0);
        const auto part = bytes.subspan(one.begin, one.count);
        std::unique_ptr<OutputFile>& file = files_[name];
        if (!file) file = place_.files->open(path(name));
        for (std::size_t at = 0; at < part.size(); at += kWriteSlice) {
          const auto slice = part.subspan(at, std::min(kWriteSlice, part.size() - at));
          list_.require_finite(slice, one);
          sums_.of(name, layout.bytes).add(offset + at, slice);
          file->write_at(offset + at, slice);
        }
      }
    });
    for (auto& [name, file] : files_) file->finish();
    files_.clear();
  }

  void put_into_place() {
    if (!leads()) return;
    std::map<std::string, std::string> texts = info_.files;
    if (!list_.weights().index.empty()) {
      texts["model.safetensors.index.json"] = list_.weights().index;
    }
    for (const auto& [name, text] : texts) {
      place_.files->write(path(name), text);
      sums_.of(name, text.size()).add(0, as_bytes_of(text));
    }
    place_.files->write(path(manifest_name), manifest());
    place_.files->sync_directory(path("trident"));
    place_.files->sync_directory(place_.saving);
    place_.files->rename(place_.saving, place_.folder);
    place_.files->sync_directory(fs::path(place_.folder).parent_path().string());
    // If rename() swapped it with an older checkpoint, that is there now.
    attempt([&] { place_.files->remove(place_.saving); });
  }

  std::string manifest() const {
    Manifest manifest = info_.manifest;
    const SafetensorsSetLayout& weights = list_.weights();
    for (const auto& file : weights.files) manifest.files[file.name].bytes = file.layout.bytes;
    for (const WholeWeight& weight : list_.whole()) {
      const std::int64_t columns = weight.shape.matrix_columns();
      SavedTensor& saved = manifest.tensors[saved_name("weight", weight.name)];
      saved.shape = weight.shape;
      for (const HuggingFaceTensor& tensor : weight.tensors) {
        if (tensor.repeats) continue;
        const auto& file = weights.files[weights.places.find(tensor.name)->second.file];
        saved.dtype =
            std::ranges::find(file.layout.tensors, tensor.name, &TensorDeclaration::name)->dtype;
        saved.shards.push_back({file.name,
                                tensor.name,
                                {tensor.row_begin, 0, tensor.rows, columns},
                                tensor.transposed});
      }
    }
    sums_.enter(manifest);
    for (const SliceFile& file : slice_files_) manifest.files[file.name].bytes = file.layout.bytes;
    for (const auto& [name, text] : info_.files) manifest.files[name].bytes = text.size();
    if (!weights.index.empty()) {
      manifest.files["model.safetensors.index.json"].bytes = weights.index.size();
    }
    const std::size_t count = slice_files_.size();
    for (std::size_t rank = 0; rank < slices_.size() && count > 0; ++rank) {
      add_slices(manifest, slices_[rank], slice_files_[rank * count / slices_.size()].name);
    }
    const std::string text = manifest_text(manifest);
    parse_manifest(text, path(manifest_name));  // throws if it can't be read back
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
  FileSums sums_;                             // of files that this rank has written to
  std::map<std::string, std::unique_ptr<OutputFile>> files_;
};

}  // namespace

std::string write_checkpoint(Context& context, const ProcessGroup& group, const SaveList& list,
                             const CheckpointPlace& place, const CheckpointInfo& info,
                             const EachPortion& each) {
  return CheckpointWriter(context, group, list, place, info).run(each);
}

}  // namespace trident
