// Reads the blocks of a checkpoint's files. Each block is compared with its checksum before any of
// its bytes is used. Damage is a RequestError that names the file.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/files/byte_buffer.h"
#include "base/files/file.h"
#include "checkpoint/manifest.h"

namespace trident {

// One file. Thread-safe.
class VerifiedFile {
 public:
  // Throws RequestError as ReadFile does, or if the size of the file differs from `saved`, which
  // must outlive this object.
  VerifiedFile(const std::string& path, const SavedFile& saved);

  std::size_t blocks() const { return saved_.blocks.size(); }
  // Throws RequestError, with the file's name, if the block is damaged. `into` then has unspecified
  // contents.
  void read(std::size_t block, ByteBuffer& into) const;
  void verify_all() const;

 private:
  ReadFile file_;
  const SavedFile& saved_;
  mutable std::atomic<std::size_t> ahead_ = 0;  // first block without a read-ahead request
};

// The files of a checkpoint, shared by all threads of this process that read it. Thread-safe.
// Threads that need a block at about the same time, or that read in the files' order, share one
// read of it. It keeps `most` blocks in addition to those that callers hold.
class VerifiedBlocks {
 public:
  using Block = std::shared_ptr<const ByteBuffer>;
  // Returns the path of a file.
  using Locate = std::function<std::string(const std::string& file)>;

  VerifiedBlocks(std::map<std::string, SavedFile> files, Locate locate, std::size_t most);
  // The files of `folder`: the object that this process has open for the same manifest, or a new
  // one.
  static std::shared_ptr<VerifiedBlocks> of(const std::string& folder, const Manifest& manifest);

  std::string path(const std::string& file) const { return locate_(file); }
  // Throws as VerifiedFile::read() does. The manifest must list `file`.
  Block block(const std::string& file, std::size_t index);

 private:
  struct Kept {
    std::string file;
    std::size_t index = 0;
    Block bytes;  // null while a thread reads it
  };
  // Unused buffers for the next blocks: allocating new memory may cost more than reading into it.
  struct Buffers {
    std::mutex mutex;
    std::vector<ByteBuffer> free;
  };
  std::list<Kept>::iterator find(const std::string& file, std::size_t index);
  Block read(std::unique_lock<std::mutex>& lock, const std::string& file, std::size_t index);

  const std::map<std::string, SavedFile> saved_;
  const Locate locate_;
  const std::size_t most_;
  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  std::map<std::string, std::unique_ptr<VerifiedFile>> files_;
  std::list<Kept> kept_;  // most recently used first
  const std::shared_ptr<Buffers> buffers_ = std::make_shared<Buffers>();
};

}  // namespace trident
