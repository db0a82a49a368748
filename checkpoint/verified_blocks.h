// The blocks of a checkpoint's files: each is compared with its sum before anybody uses a byte of
// it.
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

// One file. For several threads at once.
class VerifiedFile {
 public:
  // RequestError as ReadFile, or where the file has another size than `saved`, which must stay.
  VerifiedFile(const std::string& path, const SavedFile& saved);

  std::size_t blocks() const { return saved_.blocks.size(); }
  // RequestError, with the file's name, where the block is damaged; then its bytes are any.
  void read(std::size_t block, ByteBuffer& into) const;
  void verify_all() const;

 private:
  ReadFile file_;
  const SavedFile& saved_;
  mutable std::atomic<std::size_t> ahead_ = 0;  // the first that nobody has asked the system for
};

// The files of a checkpoint, for all threads of this process that read it: a block is read once for
// those who need it at about the same time, and who read in the files' order. `most` blocks are
// kept beside those that somebody holds.
class VerifiedBlocks {
 public:
  using Block = std::shared_ptr<const ByteBuffer>;
  // Gives each file's path.
  using Locate = std::function<std::string(const std::string& file)>;

  VerifiedBlocks(std::map<std::string, SavedFile> files, Locate locate, std::size_t most);
  // Of the folder's files: the ones that this process has open for the same manifest, or new ones.
  static std::shared_ptr<VerifiedBlocks> of(const std::string& folder, const Manifest& manifest);

  std::string path(const std::string& file) const { return locate_(file); }
  // As VerifiedFile::read(). `file`: of the manifest.
  Block block(const std::string& file, std::size_t index);

 private:
  struct Kept {
    std::string file;
    std::size_t index = 0;
    Block bytes;  // null while somebody reads it
  };
  // Buffers that nobody uses, for the next blocks: new memory may cost more than reading into it.
  struct Buffers {
    std::mutex mutex;
    std::vector<ByteBuffer> free;
  };
  std::list<Kept>::iterator find(const std::string& file, std::size_t index);
  Block read(std::unique_lock<std::mutex>& lock, const std::string& file, std::size_t index);

  const std::map<std::string, SavedFile> saved_;
  const Locate locate_;
  const std::size_t most_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, std::unique_ptr<VerifiedFile>> files_;
  std::list<Kept> kept_;  // the one used last in front
  const std::shared_ptr<Buffers> buffers_ = std::make_shared<Buffers>();
};

}  // namespace trident
