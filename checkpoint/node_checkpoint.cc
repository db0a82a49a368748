#include "checkpoint/node_checkpoint.h"

#include <fmt/format.h>

#include <array>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/bytes.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/collective_steps.h"
#include "checkpoint/saved_parts.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

std::string part_name(int rank, int ranks) {
  return fmt::format("trident/part-{:05}-of-{:05}.safetensors", rank + 1, ranks);
}

// A rank sends its part in steps of three messages: the number of contiguous ranges and of bytes,
// the positions of the ranges in the file, and their bytes.
class PartStream {
 public:
  PartStream(Context& context, const ProcessGroup& group) : context_(context), group_(group) {}

  struct Range {
    std::int64_t offset = 0, count = 0;  // in bytes, of the file
  };

  void send(const std::vector<int>& peers, std::span<const Range> ranges,
            std::span<const std::byte> bytes) {
    for (const Work& work : sent_) work.wait(context_);
    sent_.clear();
    if (peers.empty()) return;
    const std::array<std::int64_t, 2> head{static_cast<std::int64_t>(ranges.size()),
                                           static_cast<std::int64_t>(bytes.size())};
    std::vector<std::int64_t> places;
    for (const Range& one : ranges) places.insert(places.end(), {one.offset, one.count});
    send_all(peers, context_.from_host<std::int64_t>({2}, head, Category::communication));
    if (ranges.empty()) return;
    const auto count = static_cast<std::int64_t>(places.size());
    send_all(peers, context_.from_host<std::int64_t>({count}, places, Category::communication));
    const std::span data(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    send_all(peers, context_.from_host<std::uint8_t>({head[1]}, data, Category::communication));
  }
  void finish() {
    for (const Work& work : sent_) work.wait(context_);
    sent_.clear();
  }

  // Passes the ranges and bytes of the next step to `take`. Returns false if there are no more.
  template <class Take>
  bool receive(int peer, const Take& take) {
    const Tensor head = context_.empty({2}, DType::i64, Category::communication);
    group_.receive(context_, head, peer);
    const std::vector<std::int64_t> sizes = context_.to_host<std::int64_t>(head);
    if (sizes[0] == 0) return false;
    const Tensor places = context_.empty({2 * sizes[0]}, DType::i64, Category::communication);
    group_.receive(context_, places, peer);
    const Tensor bytes = context_.empty({sizes[1]}, DType::u8, Category::communication);
    group_.receive(context_, bytes, peer);
    const std::vector<std::int64_t> flat = context_.to_host<std::int64_t>(places);
    std::vector<Range> ranges;
    for (std::size_t i = 0; i < flat.size(); i += 2) ranges.push_back({flat[i], flat[i + 1]});
    context_.read_on_host(bytes, [&](std::span<const std::byte> data) { take(ranges, data); });
    return true;
  }

 private:
  void send_all(const std::vector<int>& peers, const Tensor& tensor) {
    for (const int peer : peers) sent_.push_back(group_.send(context_, tensor, peer, Async::yes));
  }

  Context& context_;
  const ProcessGroup& group_;
  std::vector<Work> sent_;
};

class NodeWriter {
 public:
  NodeWriter(Context& context, const ProcessGroup& group, const SaveList& list,
             const NodePlace& place, const CheckpointInfo& info)
      : context_(context),
        group_(group),
        list_(list),
        place_(place),
        role_(place.role),
        info_(info),
        saving_(saving_path(place.node(), info.manifest.iteration)) {}

  std::string run(const EachPortion& each) {
    slices_ = exchanged_slices(context_, group_, list_.slices());
    CollectiveSteps steps(context_, group_);
    const bool good = steps.take([&] { make_files(); }) && steps.agree(write(each));
    if (good) sums_.join_at_first(context_, group_);
    if (!good || !put_everywhere(steps)) give_up();
    return steps.failure();
  }

 private:
  // Puts every node's parts into place, each with the manifest and the texts of rank 0.
  bool put_everywhere(CollectiveSteps& steps) {
    std::string manifest;
    const bool made = steps.take([&] {
      if (group_.rank() == 0) manifest = manifest_of_all();
    });
    if (!made) return false;
    manifest = text_from(context_, group_, 0, manifest);
    std::map<std::string, std::string> texts;
    for (const auto& [name, own] : info_.files) {
      texts[name] = text_from(context_, group_, 0, own);
    }
    return steps.take([&] { put_into_place(manifest, texts); });
  }

  // Also removes the checkpoint if this node has already put it into place.
  void give_up() {
    files_.clear();
    if (!role_.leads) return;
    attempt([&] { place_.files->remove(saving_); });
    if (placed_) {
      attempt([&] { remove_checkpoint(*place_.files, place_.node(), info_.manifest.iteration); });
    }
  }

  std::string path(const std::string& name) const { return (fs::path(saving_) / name).string(); }
  std::string part(int rank) const { return part_name(rank, group_.size()); }

  SafetensorsLayout layout(int rank) const {
    std::vector<TensorDeclaration> tensors;
    for (const Slice& slice : slices_[static_cast<std::size_t>(rank)]) {
      tensors.push_back(slice.declaration());
    }
    return lay_out(std::move(tensors), {{"format", "pt"}}, place_.run);
  }
  bool has_part(int rank) const { return !slices_[static_cast<std::size_t>(rank)].empty(); }

  void make_files() {
    for (int rank = 0; rank < group_.size() && group_.rank() == 0; ++rank) {
      if (has_part(rank)) sums_.of(part(rank), layout(rank).bytes);
    }
    if (has_part(group_.rank())) {
      own_ = layout(group_.rank());
      sums_.of(part(group_.rank()), own_.bytes).add(0, as_bytes_of(own_.head));
    }
    if (!role_.leads) return;
    FileSystem& files = *place_.files;
    make_node_folder(place_);  // a user or the system may have removed it
    files.remove(saving_);
    files.make_directory(path("trident"));
    for (const std::vector<int>* ranks : {&role_.ranks, &role_.node_keeps}) {
      for (const int rank : *ranks) {
        if (!has_part(rank)) continue;
        const SafetensorsLayout layout = this->layout(rank);
        files_[rank] = files.create(path(part(rank)), layout.bytes);
        files_[rank]->write_at(0, as_bytes_of(layout.head));
      }
    }
  }

  OutputFile& file(int rank) {
    const auto found = files_.find(rank);
    if (found != files_.end()) return *found->second;
    std::unique_ptr<OutputFile> opened = place_.files->open(path(part(rank)));
    return *(files_[rank] = std::move(opened));
  }

  // A rank that fails here still sends and receives for its peers. Returns the first failure.
  std::string write(const EachPortion& each) {
    PartStream stream(context_, group_);
    std::vector<int> sources;
    for (const int rank : role_.copies_of) {
      if (has_part(rank)) sources.push_back(rank);
    }
    const std::vector<int> peers = has_part(group_.rank()) ? role_.copied_to : std::vector<int>{};
    std::string failure;
    const auto note = [&](const std::string& what) {
      if (failure.empty()) failure = what;
    };
    const auto take = [&] {  // receives the next step of each source
      std::erase_if(sources, [&](int rank) {
        return !stream.receive(rank, [&](const auto& ranges, std::span<const std::byte> bytes) {
          note(attempt([&] { write_copy(rank, ranges, bytes); }));
        });
      });
    };
    note(attempt([&] {
      each([&](std::span<const std::byte> bytes, std::span<const FileWrite> writes) {
        std::vector<PartStream::Range> ranges;
        std::vector<std::byte> packed;
        for (const FileWrite& one : writes) {
          const auto from = bytes.subspan(one.begin, one.count);
          const std::uint64_t offset = own_.offsets.front() + one.offset;
          note(attempt([&] { write_own(one, offset, from); }));
          if (peers.empty()) continue;
          ranges.push_back({static_cast<std::int64_t>(offset), std::ssize(from)});
          packed.insert(packed.end(), from.begin(), from.end());
        }
        if (!ranges.empty()) stream.send(peers, ranges, packed);
        take();
      });
    }));
    stream.send(peers, {}, {});
    while (!sources.empty()) take();
    stream.finish();
    note(attempt([&] {
      for (auto& [rank, file] : files_) file->finish();
    }));
    files_.clear();
    return failure;
  }

  void write_own(const FileWrite& write, std::uint64_t offset, std::span<const std::byte> bytes) {
    list_.require_finite(bytes, write);
    sums_.of(part(group_.rank()), own_.bytes).add(offset, bytes);
    file(group_.rank()).write_at(offset, bytes);
  }

  void write_copy(int rank, const std::vector<PartStream::Range>& ranges,
                  std::span<const std::byte> bytes) {
    for (const auto& [offset, count] : ranges) {
      file(rank).write_at(static_cast<std::uint64_t>(offset),
                          bytes.first(static_cast<std::size_t>(count)));
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }

  std::string manifest_of_all() {
    Manifest manifest = info_.manifest;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (!has_part(rank)) continue;
      manifest.files[part(rank)].bytes = layout(rank).bytes;
      add_slices(manifest, slices_[static_cast<std::size_t>(rank)], part(rank));
    }
    for (const auto& [name, text] : info_.files) {
      manifest.files[name].bytes = text.size();
      sums_.of(name, text.size()).add(0, as_bytes_of(text));
    }
    sums_.enter(manifest);
    std::string text = manifest_text(manifest);
    parse_manifest(text, path(manifest_name));  // throws if it can't be read back
    return text;
  }

  void put_into_place(const std::string& manifest,
                      const std::map<std::string, std::string>& texts) {
    if (!role_.leads) return;
    FileSystem& files = *place_.files;
    for (const auto& [name, text] : texts) files.write(path(name), text);
    files.write(path(manifest_name), manifest);
    files.sync_directory(path("trident"));
    files.sync_directory(saving_);
    files.rename(saving_,
                 (fs::path(place_.node()) / checkpoint_name(info_.manifest.iteration)).string());
    placed_ = true;
    files.sync_directory(place_.node());
  }

  Context& context_;
  const ProcessGroup& group_;
  const SaveList& list_;
  const NodePlace& place_;
  const NodeRole& role_;
  const CheckpointInfo& info_;
  const std::string saving_;
  std::vector<std::vector<Slice>> slices_;  // by rank
  SafetensorsLayout own_;
  FileSums sums_;
  std::map<int, std::unique_ptr<OutputFile>> files_;  // by the rank whose part it is
  bool placed_ = false;
};

}  // namespace

std::string write_on_nodes(Context& context, const ProcessGroup& group, const SaveList& list,
                           const NodePlace& place, const CheckpointInfo& info,
                           const EachPortion& each) {
  return NodeWriter(context, group, list, place, info).run(each);
}

}  // namespace trident
