#include "checkpoint/verified_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/files/crc64.h"

namespace trident {
namespace {

constexpr std::size_t kSlice = std::size_t{256} << 10;  // bytes; summed while they are in the cache
constexpr std::size_t kAhead = 4;                       // blocks that the system reads ahead
constexpr std::size_t kMostShared = 6;                  // blocks

}  // namespace

VerifiedFile::VerifiedFile(const std::string& path, const SavedFile& saved)
    : file_(path), saved_(saved) {
  if (file_.size() != saved.bytes) {
    throw RequestError(fmt::format("{}: has {} bytes, {} says {}", path, file_.size(),
                                   manifest_name, saved.bytes));
  }
}

void VerifiedFile::read(std::size_t block, ByteBuffer& into) const {
  if (block >= blocks()) throw Error(fmt::format("{}: has no block {}", file_.path(), block));
  const std::uint64_t begin = block * checkpoint_block;
  into.resize(std::min(checkpoint_block, saved_.bytes - begin));
  std::size_t next = std::max(ahead_.load(), block + 1);
  const std::size_t end = std::min(block + 1 + kAhead, blocks());
  for (; next < end; ++next) file_.will_read(next * checkpoint_block, checkpoint_block);
  ahead_ = next;
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < into.size(); at += kSlice) {
    const auto slice = std::span(into).subspan(at, std::min(kSlice, into.size() - at));
    file_.read_at(begin + at, slice);
    sum = crc64(slice, sum);
  }
  if (sum == saved_.blocks[block]) return;
  throw RequestError(fmt::format("{}: bytes {} to {} are damaged: their sum is {}, {} says {}",
                                 file_.path(), begin, begin + into.size() - 1, hex64(sum),
                                 manifest_name, hex64(saved_.blocks[block])));
}

void VerifiedFile::verify_all() const {
  ByteBuffer bytes;
  for (std::size_t block = 0; block < blocks(); ++block) read(block, bytes);
}

VerifiedBlocks::VerifiedBlocks(std::map<std::string, SavedFile> files, Locate locate,
                               std::size_t most)
    : saved_(std::move(files)), locate_(std::move(locate)), most_(most) {}

std::shared_ptr<VerifiedBlocks> VerifiedBlocks::of(const std::string& folder,
                                                   const Manifest& manifest) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, std::weak_ptr<VerifiedBlocks>> open;
  const std::lock_guard lock(mutex);
  std::erase_if(open, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<VerifiedBlocks>& place = open[{folder, manifest.root}];
  std::shared_ptr<VerifiedBlocks> blocks = place.lock();
  if (blocks == nullptr) {
    blocks = std::make_shared<VerifiedBlocks>(
        manifest.files,
        [folder](const std::string& file) {
          return (std::filesystem::path(folder) / file).string();
        },
        kMostShared);
    place = blocks;
  }
  return blocks;
}

std::list<VerifiedBlocks::Kept>::iterator VerifiedBlocks::find(const std::string& file,
                                                               std::size_t index) {
  return std::ranges::find_if(
      kept_, [&](const Kept& one) { return one.index == index && one.file == file; });
}

VerifiedBlocks::Block VerifiedBlocks::block(const std::string& file, std::size_t index) {
  std::unique_lock lock(mutex_);
  for (bool helps = true;; helps = false) {
    const auto one = find(file, index);
    if (one == kept_.end()) return read(lock, file, index);
    if (one->bytes != nullptr) {
      kept_.splice(kept_.begin(), kept_, one);
      return one->bytes;
    }
    // Another thread reads it. Meanwhile read the next block, which sequential readers will need.
    if (helps && index + 1 < saved_.at(file).blocks.size() &&
        find(file, index + 1) == kept_.end()) {
      try {
        read(lock, file, index + 1);
      } catch (const std::exception&) {
        // A thread that requests this block gets the error.
      }
      continue;
    }
    changed_.wait(lock);
  }
}

// Holds the lock again when it returns or throws.
VerifiedBlocks::Block VerifiedBlocks::read(std::unique_lock<std::mutex>& lock,
                                           const std::string& file, std::size_t index) {
  for (auto last = kept_.end(); kept_.size() >= most_ && last != kept_.begin();) {
    if (const auto one = std::prev(last); one->bytes != nullptr) {
      kept_.erase(one);
    } else {
      last = one;
    }
  }
  const auto place = kept_.insert(kept_.begin(), {file, index, nullptr});
  std::unique_ptr<VerifiedFile>& source = files_[file];
  ByteBuffer bytes;
  try {
    if (source == nullptr) {
      source = std::make_unique<VerifiedFile>(path(file), saved_.at(file));
    }
    {
      const std::lock_guard of_buffers(buffers_->mutex);
      if (!buffers_->free.empty()) {
        bytes = std::move(buffers_->free.back());
        buffers_->free.pop_back();
      }
    }
    lock.unlock();
    source->read(index, bytes);
    const auto give_back = [buffers = buffers_](const ByteBuffer* own) {
      const std::lock_guard of_buffers(buffers->mutex);
      buffers->free.push_back(std::move(*const_cast<ByteBuffer*>(own)));
      delete own;
    };
    const Block block(new ByteBuffer(std::move(bytes)), give_back);
    lock.lock();
    place->bytes = block;
    changed_.notify_all();
    return block;
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    kept_.erase(place);
    changed_.notify_all();
    throw;
  }
}

}  // namespace trident
